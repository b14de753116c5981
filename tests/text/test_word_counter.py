import collections
import random

import numpy as np
import pytest

from keras_bert.text.word_counter import WordCounter
from tests.reference import tokenization as reference
from tests.text.conftest import code_point_rows
from tests.text.fuzz import LONG_TEXTS, fuzzed_bytes

# Capitals that are new in Unicode 14, which TensorFlow does not lower-case yet.
NEW_CAPITALS = {0x2C2F, 0xA7C0, 0xA7D0, 0xA7D6, 0xA7D8, *range(0x10570, 0x10596)}


class EveryWord:
    """A vocabulary that contains every word, so that the reference splits none."""

    def __contains__(self, entry):
        return True


def reference_counts(texts, lower_case, strip_accents=None):
    words = (token.text for text in texts for token in reference.tokenize(text, EveryWord(), lower_case, strip_accents))
    counts = collections.Counter(words)
    return counts, counts.pop("[UNK]", 0)  # a word of more than 200 characters; no text has a bracket inside a word


def count(texts, *arguments):
    counter = WordCounter(*arguments)
    counter.add(texts)
    return counter.counts, counter.num_too_long


@pytest.mark.parametrize("case", [(True,), (False,), (True, False), (False, True)])
def test_counts_of_fuzzed_bytes_equal_the_reference(shared, case):
    generator = random.Random(12)
    code_points = [row[0] for row in code_point_rows(shared, "cased") if row[0] not in NEW_CAPITALS]
    texts = [fuzzed_bytes(generator, code_points) for _ in range(1_000)] + [text.encode() for text in LONG_TEXTS]
    assert count(texts, *case) == reference_counts(texts, *case)


def test_counts_add_up_over_batches():
    texts = ["one, two", "two\tthree\nfour", "", " ", "Two!"]
    counter = WordCounter(True)
    for text in texts:
        counter.add([text])
    assert counter.counts == count(texts, True)[0] == {"one": 1, ",": 1, "two": 3, "three": 1, "four": 1, "!": 1}


def test_the_word_limit_is_an_argument():
    assert count(["abc abcd"], False, None, 3) == ({"abc": 1}, 1)


@pytest.mark.parametrize("texts", [[], np.array([], dtype=object), [""]])
def test_empty_texts_have_no_words(texts):
    assert count(texts, True) == ({}, 0)
