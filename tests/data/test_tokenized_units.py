"""Words and pieces are parted on the same tokens, and every token is of the word that it stands in."""

import random

import numpy as np
import pytest

from keras_bert.data import tokenized_units
from keras_bert.data.tokenized_units import tokenize_units
from keras_bert.text.words import WORD_SEPARATORS
from tests.text.fuzz import fuzzed_bytes
from tests.toys import VOCABULARY, toy_preprocessor

PIECES = [piece for piece in VOCABULARY if not piece.startswith("[")]
HAND_MADE = [
    "",
    " ",
    "good",
    "\u200b good\u200b",
    "goodly,the\tfilm.\r\n",
    "a\u202fplot\u00a0was",
    "good\u200b \u200b.",
]


@pytest.fixture(scope="module")
def texts():
    generator = random.Random(0)
    made = []
    for _ in range(60):
        words = generator.choices([*PIECES, "goodly", "badly,", "film.", "\u200b", "é"], k=generator.randrange(12))
        made.append(generator.choice([" ", "  ", "\t", ""]).join(words))
    fuzzed = [fuzzed_bytes(generator, [*range(0x20, 0x250), *range(0x2000, 0x2070)]) for _ in range(20)]
    return HAND_MADE + made + [text.decode("utf-8", "ignore") for text in fuzzed]


def words_of(text):
    for separator in WORD_SEPARATORS:
        text = text.replace(separator, " ")
    return [word for word in text.split(" ") if word]


def slowly(preprocessor, segments):
    """The numbers of the words of a text's tokens, and the words: by tokenizing each word by itself."""
    tokenizer = preprocessor.tokenizer
    names, packed = [], []
    for segment in segments:
        of_segment = []
        for word in words_of(segment):
            of_segment += [len(names)] * len(tokenizer.tokenize(word))
            names.append(word)
        packed.append(of_segment)
    room = preprocessor.sequence_length - (3 if packed[1:] and packed[1] else 2)
    while sum(map(len, packed)) > room:
        longer = packed[0] if len(packed) == 1 or len(packed[0]) > len(packed[1]) else packed[1]
        longer.pop()
    numbers = [-1, *packed[0], -1]
    return ([*numbers, *packed[1], -1] if packed[1:] and packed[1] else numbers), names


@pytest.mark.parametrize("chunk_size", [25, 2048])
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("length", [5, 32])
def test_words_equal_the_reference(texts, pairs, length, chunk_size, monkeypatch):
    monkeypatch.setattr(tokenized_units, "_CHUNK_SIZE", chunk_size)
    preprocessor = toy_preprocessor(sequence_length=length)
    columns = {"text_a": texts, "text_b": texts[::-1]} if pairs else {"text": texts}
    found, pieces = (tokenize_units(columns, preprocessor, unit) for unit in ("words", "wordpieces"))
    np.testing.assert_array_equal(found.examples.token_ids, pieces.examples.token_ids)
    np.testing.assert_array_equal(found.examples.lengths, pieces.examples.lengths)
    np.testing.assert_array_equal(found.examples.first_segment_lengths, pieces.examples.first_segment_lengths)
    np.testing.assert_array_equal(found.examples.token_counts, pieces.examples.token_counts)
    expected = [slowly(preprocessor, row) for row in zip(*columns.values(), strict=True)]
    assert found.numbers.tolist() == [number for numbers, _ in expected for number in numbers]
    assert found.names == [names[: max(numbers) + 1] for numbers, names in expected]


def test_wordpieces_are_all_tokens(texts):
    preprocessor = toy_preprocessor()
    units = tokenize_units({"text": texts}, preprocessor)
    ids = preprocessor(texts)
    lengths = ids["padding_mask"].numpy().sum(axis=1)
    assert units.numbers.tolist() == [number for length in lengths for number in range(length)]
    names = [
        [VOCABULARY[i] for i in row[:length]] for row, length in zip(ids["token_ids"].numpy(), lengths, strict=True)
    ]
    assert units.names == names


def test_columns_may_be_in_any_order():
    columns = {"text_b": ["the film"], "text_a": ["good"]}
    for unit, names in (
        ("words", ["good", "the", "film"]),
        ("wordpieces", ["[CLS]", "good", "[SEP]", "the", "film", "[SEP]"]),
    ):
        assert tokenize_units(columns, toy_preprocessor(), unit).names == [names]


def test_refuses_other_units_and_no_texts():
    with pytest.raises(ValueError, match=r"unit must be one of \('wordpieces', 'words'\), got 'letters'"):
        tokenize_units({"text": ["a"]}, toy_preprocessor(), "letters")
    for unit in ("words", "wordpieces"):
        with pytest.raises(ValueError, match="there are no"):
            tokenize_units({"text": []}, toy_preprocessor(), unit)
