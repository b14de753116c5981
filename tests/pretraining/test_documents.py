import numpy as np
import pytest

from keras_bert.pretraining import documents as module
from keras_bert.pretraining.documents import TokenizedDocuments, tokenize_documents
from tests.pretraining.corpora import random_text, tokenizer


def tokenize(lines):
    return tokenize_documents(lines, tokenizer().tokenize)


def test_sentences_and_documents():
    found = tokenize(["river stone", "slowly", "", "night", ""])
    assert found.token_ids.tolist() == [5, 6, 14, 15, 12]
    assert found.token_ids.dtype == np.int32
    assert found.documents == [[0, 2, 4], [4, 5]]


def test_lines_without_tokens_are_no_sentences():
    # U+FEFF and U+0007 are no white space, and give no tokens: they do not end the document.
    found = tokenize(["\ufeffriver", "\ufeff", "\x07", "stone\r", "night"])
    assert found.token_ids.tolist() == [5, 6, 12]
    assert found.documents == [[0, 1, 2, 3]]


@pytest.mark.parametrize("blank", ["", " ", "\t \r", "\u00a0", "\u3000"])
def test_a_line_of_white_space_ends_a_document(blank):
    assert tokenize(["river", blank, "stone"]).documents == [[0, 1], [1, 2]]


@pytest.mark.parametrize("lines", [[], [""], ["", " ", ""], ["\x07", "", "\x07"]])
def test_no_text(lines):
    found = tokenize(lines)
    assert found.documents == []
    assert found.token_ids.tolist() == []
    assert found.token_ids.dtype == np.int32


def test_blank_lines_at_the_ends_and_side_by_side():
    assert tokenize(["", "", "river", "", "", "\x07", "", "stone", "", ""]).documents == [[0, 1], [1, 2]]


@pytest.mark.parametrize("lines_at_once, characters_at_once", [(1, 100), (3, 100), (100, 1), (100, 120), (7, 10**6)])
def test_batches_do_not_show(monkeypatch, lines_at_once, characters_at_once):
    lines = random_text(0).split("\n")
    expected = tokenize(lines)
    monkeypatch.setattr(module, "_LINES_AT_ONCE", lines_at_once)
    monkeypatch.setattr(module, "_CHARACTERS_AT_ONCE", characters_at_once)
    found = tokenize(iter(lines))
    assert found.token_ids.tolist() == expected.token_ids.tolist()
    assert found.documents == expected.documents


def test_few_characters_are_tokenized_at_once(monkeypatch):
    monkeypatch.setattr(module, "_CHARACTERS_AT_ONCE", 1000)
    batches = []
    tokenizer_ = tokenizer()

    def watched(lines):
        batches.append(sum(map(len, lines)))
        return tokenizer_.tokenize(lines)

    tokenize_documents(["river " * 50] * 40, watched)
    assert sum(batches) == 40 * 299  # without the space at the end
    assert max(batches) <= 1000 + 300


def test_counts():
    found = TokenizedDocuments(np.array([1, 5, 5, 1, 7, 7, 7, 7, 7], "int32"), [[0, 2], [2, 4, 5], [5, 9]])
    expected = {"documents": 3, "one_sentence_documents": 2, "tokens": 9, "unknown_tokens": 2}
    assert found.counts(unknown_id=1) == expected
