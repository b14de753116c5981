import random
import unicodedata

import numpy as np
import pytest

from keras_bert.text.words import WORD_SEPARATORS, split_text, split_words, tokenize_words, tokens_of_words
from tests.reference.tokenization import ASCII_PUNCTUATION, CHINESE_RANGES
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


@pytest.mark.parametrize("name", ["uncased", "cased", "chinese"])
def test_tokens_without_places_are_the_same(tokenizers, texts, name):
    with_places = tokenize_words(tokenizers[name], texts)
    tokens, words = tokens_of_words(tokenizers[name], texts)
    assert tokens.to_list() == with_places.token_ids.to_list()
    assert words.to_list() == with_places.words.to_list()


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


def parted(text):
    """Words as `split_text` parts them, and their first bytes, one chunk after the other."""
    words, starts = [], []
    for chunk, begin in zip(*words_of(text), strict=True):
        characters = list(chunk.decode("utf-8", "surrogateescape"))
        kinds = [kind_of(character) for character in characters]
        solid = [place for place, kind in enumerate(kinds) if kind == "solid"]
        goes_on = False
        for place, (character, kind) in enumerate(zip(characters, kinds, strict=True)):
            inside = solid and solid[0] < place < solid[-1]
            single = kind == "chinese" or (kind == "punctuation" and not inside)
            byte = character.encode("utf-8", "surrogateescape")
            if goes_on and not single:
                words[-1] += byte
            else:
                words.append(byte)
                starts.append(begin)
            goes_on = not single
            begin += len(byte)
    return words, starts


def kind_of(character):
    if any(first <= ord(character) <= last for first, last in CHINESE_RANGES):
        return "chinese"
    is_punctuation = character in ASCII_PUNCTUATION or unicodedata.category(character).startswith("P")
    return "punctuation" if is_punctuation else "solid"


def test_parted_texts_are_those_of_the_reference(texts):
    hand_made = ['"Don\'t go," (he said) ...', "U.S. e-mail; 汉字abc-汉 (a)b", "-", "a-", "-a", "«été»!", "$5"]
    texts = [*texts, *(text.encode() for text in hand_made)]
    words, starts = split_text(texts)
    for text, of_text, starts_of_text in zip(texts, words.to_list(), starts.to_list(), strict=True):
        assert (of_text, starts_of_text) == parted(text)


def test_no_texts_have_no_words():
    assert split_text(np.zeros([0], object))[0].shape[0] == 0
