import random
import unicodedata

import pytest
import tensorflow as tf

from keras_bert.text.words import WORD_SEPARATORS, split_text, split_words, tokenize_words, tokens_of_words
from tests.reference.tokenization import ASCII_PUNCTUATION, CHINESE_RANGES
from tests.text.fuzz import fuzzed_bytes, invalid_bytes


def reference_words(text):
    """Splits text into words with their first bytes, one character at a time."""
    words, starts, position = [], [], 0
    is_inside = False
    for character in text.decode("utf-8", "surrogateescape"):
        byte = character.encode("utf-8", "surrogateescape")
        if character in WORD_SEPARATORS:
            is_inside = False
        elif is_inside:
            words[-1] += byte
        else:
            is_inside = True
            words.append(byte)
            starts.append(position)
        position += len(byte)
    return words, starts


def reference_text(text):
    """Splits text as `split_text` does, one chunk at a time."""
    words, starts = [], []
    for chunk, begin in zip(*reference_words(text), strict=True):
        characters = list(chunk.decode("utf-8", "surrogateescape"))
        kinds = [character_kind(character) for character in characters]
        solid = [position for position, kind in enumerate(kinds) if kind == "solid"]
        continues = False
        for position, (character, kind) in enumerate(zip(characters, kinds, strict=True)):
            is_inside = solid and solid[0] < position < solid[-1]
            is_single = kind == "chinese" or (kind == "punctuation" and not is_inside)
            byte = character.encode("utf-8", "surrogateescape")
            if continues and not is_single:
                words[-1] += byte
            else:
                words.append(byte)
                starts.append(begin)
            continues = not is_single
            begin += len(byte)
    return words, starts


def character_kind(character):
    if any(first <= ord(character) <= last for first, last in CHINESE_RANGES):
        return "chinese"
    is_punctuation = character in ASCII_PUNCTUATION or unicodedata.category(character).startswith("P")
    return "punctuation" if is_punctuation else "solid"


@pytest.fixture(scope="module")
def texts():
    written = ["", " ", "a", " a\u202fb\tc\r\nd ", "a\u00a0b c\u200bd", "12\u00a0people;", "naïve  café", "汉字 汉"]
    written += ['"Don\'t go," (he said) ...', "U.S. e-mail; 汉字abc-汉 (a)b", "-", "a-", "-a", "«été»!", "$5"]
    generator = random.Random(0)
    code_points = [*range(0x20, 0x250), *range(0x2000, 0x2070), *range(0x4E00, 0x4E20)]
    fuzzed = [fuzzed_bytes(generator, code_points) + invalid_bytes(generator) for _ in range(200)]
    return [text.encode() for text in written] + fuzzed


@pytest.mark.parametrize(("split", "reference"), [(split_words, reference_words), (split_text, reference_text)])
def test_words_equal_the_reference(texts, split, reference):
    words, starts = split(texts)
    found = list(zip(words.to_list(), starts.to_list(), strict=True))
    assert found == [reference(text) for text in texts]


@pytest.mark.parametrize("name", ["uncased", "cased", "chinese"])
def test_tokens_equal_those_of_the_whole_text(tokenizers, texts, name):
    result = tokenize_words(tokenizers[name], texts)
    whole = tokenizers[name].tokenize_with_offsets(texts)
    assert result.token_ids.to_list() == whole.token_ids.to_list()
    assert result.start_bytes.to_list() == whole.start_bytes.to_list()
    assert result.end_bytes.to_list() == whole.end_bytes.to_list()
    tokens, words = tokens_of_words(tokenizers[name], texts)
    assert tokens.to_list() == result.token_ids.to_list()
    assert words.to_list() == result.words.to_list()


def test_every_token_lies_in_its_word(tokenizers, texts):
    result = tokenize_words(tokenizers["uncased"], texts)
    words, starts = split_words(texts)
    ends = starts + tf.strings.length(words)
    assert (tf.gather(starts, result.words, batch_dims=1) <= result.start_bytes).values.numpy().all()
    assert (result.end_bytes <= tf.gather(ends, result.words, batch_dims=1)).values.numpy().all()
