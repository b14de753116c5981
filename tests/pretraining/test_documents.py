import numpy as np
import pytest

from keras_bert.pretraining import documents as module
from keras_bert.pretraining.documents import TokenizedDocuments, tokenize_documents
from tests.pretraining.corpora import random_text, tokenizer


def tokenize(lines):
    return tokenize_documents(lines, tokenizer().tokenize)


@pytest.mark.parametrize(
    "lines, token_ids, documents",
    [
        (["", "", "river stone", "slowly", "", "\x07", "", "night", "", ""], [5, 6, 14, 15, 12], [[0, 2, 4], [4, 5]]),
        # U+FEFF and U+0007 are not white space, and have no tokens: they do not end the document.
        (["\ufeffriver", "\ufeff", "\x07", "stone\r", "night"], [5, 6, 12], [[0, 1, 2, 3]]),
        *((["river", blank, "stone"], [5, 6], [[0, 1], [1, 2]]) for blank in ("", " ", "\t \r", "\u00a0", "\u3000")),
        *((lines, [], []) for lines in ([], ["", " "], ["\x07", "", "\x07"])),
    ],
)
def test_sentences_and_documents_are_ranges_of_tokens(lines, token_ids, documents):
    found = tokenize(lines)
    assert (found.token_ids.tolist(), found.documents) == (token_ids, documents)
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
