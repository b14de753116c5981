import random

import numpy as np
import pytest

from keras_bert.text.words import WORD_SEPARATORS, split_words, tokenize_words
from tests.text.fuzz import fuzzed_bytes, invalid_bytes


def words_of(text):
    """Words and their first bytes, one character after the other."""
    words, starts, position = [], [], 0
    inside = False
    for character in text.decode("utf-8", "surrogateescape"):
        byte = character.encode("utf-8", "surrogateescape")
        if character in WORD_SEPARATORS:
            inside = False
        elif inside:
            words[-1] += byte
        else:
            inside = True
            words.append(byte)
            starts.append(position)
        position += len(byte)
    return words, starts


@pytest.fixture(scope="module")
def texts():
    hand_made = ["", " ", "a", " a\u202fb\tc\r\nd ", "a\u00a0b c\u200bd", "12\u00a0people;", "naïve  café", "汉字 汉"]
    generator = random.Random(0)
    code_points = [*range(0x20, 0x250), *range(0x2000, 0x2070), *range(0x4E00, 0x4E20)]
    made = [fuzzed_bytes(generator, code_points) + invalid_bytes(generator) for _ in range(200)]
    return [text.encode() for text in hand_made] + made


def test_words_are_those_of_the_reference(texts):
    words, starts = split_words(texts)
    for text, of_text, starts_of_text in zip(texts, words.to_list(), starts.to_list(), strict=True):
        assert (of_text, starts_of_text) == words_of(text)


def test_a_book_is_split_in_linear_memory():
    words, starts = split_words(["one two\t" * 100_000])
    assert words.row_lengths().numpy().tolist() == [200_000]
    np.testing.assert_array_equal(starts.values, np.arange(200_000) * 4)


@pytest.mark.parametrize("name", ["uncased", "cased", "chinese"])
def test_the_tokens_are_those_of_the_whole_text(tokenizers, texts, name):
    tokenizer = tokenizers[name]
    result = tokenize_words(tokenizer, texts)
    whole = tokenizer.tokenize_with_offsets(texts)
    assert result.token_ids.to_list() == whole.token_ids.to_list()
    assert result.start_bytes.to_list() == whole.start_bytes.to_list()
    assert result.end_bytes.to_list() == whole.end_bytes.to_list()


def test_every_token_lies_in_its_word(tokenizers, texts):
    result = tokenize_words(tokenizers["uncased"], texts)
    words, starts = split_words(texts)
    starts = starts.to_list()
    lengths = [[len(word) for word in of_text] for of_text in words.to_list()]
    for row, (numbers, begins, ends) in enumerate(
        zip(result.words.to_list(), result.start_bytes.to_list(), result.end_bytes.to_list(), strict=True)
    ):
        assert numbers == sorted(numbers)
        first = np.array(starts[row], int)[numbers]
        assert np.all(first <= begins)
        assert np.all(np.array(ends, int) <= first + np.array(lengths[row], int)[numbers])


def test_a_batch_without_texts(tokenizers):
    assert tokenize_words(tokenizers["uncased"], np.zeros([0], object)).words.shape[0] == 0
