import numpy as np
import pytest

from keras_bert.pretraining import documents as module
from keras_bert.pretraining.documents import TokenizedDocuments, tokenize_documents
from tests.pretraining.corpora import random_text, tokenizer


def tokenize(lines):
    return tokenize_documents(lines, tokenizer().tokenize)


def test_sentences_and_documents_are_ranges_of_tokens():
    found = tokenize(["", "", "river stone", "slowly", "", "\x07", "", "night", "", ""])
    assert found.token_ids.tolist() == [5, 6, 14, 15, 12]
    assert found.token_ids.dtype == np.int32
    assert found.documents == [[0, 2, 4], [4, 5]]


def test_lines_without_tokens_are_not_sentences():
    # U+FEFF and U+0007 are not white space, and have no tokens: they do not end the document.
    found = tokenize(["\ufeffriver", "\ufeff", "\x07", "stone\r", "night"])
    assert found.token_ids.tolist() == [5, 6, 12]
    assert found.documents == [[0, 1, 2, 3]]


def test_a_line_of_white_space_ends_a_document():
    for blank in ("", " ", "\t \r", "\u00a0", "\u3000"):
        assert tokenize(["river", blank, "stone"]).documents == [[0, 1], [1, 2]]


def test_text_without_tokens_has_no_documents():
    for lines in ([], ["", " "], ["\x07", "", "\x07"]):
        found = tokenize(lines)
        assert found.documents == [] and found.token_ids.tolist() == []
        assert found.token_ids.dtype == np.int32


@pytest.mark.parametrize("max_lines, max_characters", [(1, 100), (3, 100), (100, 1), (7, 10**6)])
def test_the_result_does_not_depend_on_the_size_of_a_batch(monkeypatch, max_lines, max_characters):
    lines = random_text(0).split("\n")
    expected = tokenize(lines)
    monkeypatch.setattr(module, "_LINES_PER_CALL", max_lines)
    monkeypatch.setattr(module, "_CHARACTERS_PER_CALL", max_characters)
    sizes = []

    def watch(batch):
        sizes.append((len(batch), sum(map(len, batch[:-1]))))
        return tokenizer().tokenize(batch)

    found = tokenize_documents(iter(lines), watch)
    assert found.token_ids.tolist() == expected.token_ids.tolist()
    assert found.documents == expected.documents
    assert all(size <= max_lines and characters < max_characters for size, characters in sizes)


def test_documents_and_tokens_are_counted():
    found = TokenizedDocuments(np.array([1, 5, 5, 1, 7, 7, 7, 7, 7], "int32"), [[0, 2], [2, 4, 5], [5, 9]])
    expected = {"documents": 3, "one_sentence_documents": 2, "tokens": 9, "unknown_tokens": 2}
    assert found.counts(unknown_id=1) == expected
