import random
import re

import numpy as np
import pytest

from keras_bert.data import tokenized_units
from keras_bert.data.tokenized_units import tokenize_units
from keras_bert.text.words import WORD_SEPARATORS
from tests.text.fuzz import fuzzed_bytes
from tests.toys import VOCABULARY, toy_preprocessor

WORDPIECES = [entry for entry in VOCABULARY if not entry.startswith("[")]
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
        words = generator.choices([*WORDPIECES, "goodly", "badly,", "film.", "\u200b", "é"], k=generator.randrange(12))
        made.append(generator.choice([" ", "  ", "\t", ""]).join(words))
    fuzzed = [fuzzed_bytes(generator, [*range(0x20, 0x250), *range(0x2000, 0x2070)]) for _ in range(20)]
    return HAND_MADE + made + [text.decode("utf-8", "ignore") for text in fuzzed]


def words_and_numbers(preprocessor, segments):
    """Returns the words of a text, and the number of each token's word, by tokenizing every word by itself."""
    tokenizer = preprocessor.tokenizer
    names, packed = [], []
    for segment in segments:
        packed.append([])
        for word in filter(None, re.split(f"[{WORD_SEPARATORS}]", segment)):
            packed[-1] += [len(names)] * len(tokenizer.tokenize(word))
            names.append(word)
    is_pair = bool(packed[1:] and packed[1])
    while sum(map(len, packed)) > preprocessor.sequence_length - (3 if is_pair else 2):
        longer = packed[0] if len(packed) == 1 or len(packed[0]) > len(packed[1]) else packed[1]
        longer.pop()
    numbers = [-1, *packed[0], -1, *([*packed[1], -1] if is_pair and packed[1] else [])]
    return names[: max(numbers) + 1], numbers


@pytest.mark.parametrize("chunk_size", [25, 2048])
@pytest.mark.parametrize("is_pair", [False, True])
@pytest.mark.parametrize("length", [5, 32])
def test_words_equal_the_reference(texts, is_pair, length, chunk_size, monkeypatch):
    monkeypatch.setattr(tokenized_units, "_CHUNK_SIZE", chunk_size)
    preprocessor = toy_preprocessor(sequence_length=length)
    columns = {"text_b": texts[::-1], "text_a": texts} if is_pair else {"text": texts}
    words, wordpieces = (tokenize_units(columns, preprocessor, unit) for unit in ("words", "wordpieces"))
    for name in ("token_ids", "lengths", "first_segment_lengths", "token_counts"):
        np.testing.assert_array_equal(getattr(words.examples, name), getattr(wordpieces.examples, name))
    segments = (columns[name] for name in sorted(columns))
    expected = [words_and_numbers(preprocessor, row) for row in zip(*segments, strict=True)]
    assert words.numbers.tolist() == [number for _, numbers in expected for number in numbers]
    assert words.names == [names for names, _ in expected]


def test_wordpieces_are_all_tokens(texts):
    units = tokenize_units({"text": texts}, toy_preprocessor())
    inputs = toy_preprocessor()(texts)
    rows = zip(inputs["token_ids"].numpy(), inputs["padding_mask"].numpy(), strict=True)
    assert units.names == [[VOCABULARY[i] for i in ids[mask > 0]] for ids, mask in rows]
    assert units.numbers.tolist() == [number for names in units.names for number in range(len(names))]


def test_refuses_other_units_and_no_texts():
    with pytest.raises(ValueError, match=r"unit must be one of \('wordpieces', 'words'\), got 'letters'"):
        tokenize_units({"text": ["a"]}, toy_preprocessor(), "letters")
    for unit in ("words", "wordpieces"):
        with pytest.raises(ValueError, match="there are no"):
            tokenize_units({"text": []}, toy_preprocessor(), unit)
