"""Words are counted as the tokenizer cuts them out of texts."""

import collections
import random

import numpy as np
import pytest

from keras_bert.text.word_counter import WordCounter
from tests.reference import tokenization as reference
from tests.text.fuzz import fuzzed_bytes, unlike_code_points

# Capitals that are new in Unicode 14, which TensorFlow does not lower yet.
NEW_CAPITALS = {0x2C2F, 0xA7C0, 0xA7D0, 0xA7D6, 0xA7D8, *range(0x10570, 0x10596)}


class EveryWord:
    """A vocabulary that has all words, so that the reference cuts none."""

    def __contains__(self, entry):
        return True


def reference_counts(texts, lower_case, strip_accents=None):
    words = (token.text for text in texts for token in reference.tokenize(text, EveryWord(), lower_case, strip_accents))
    counts = collections.Counter(words)
    return counts, counts.pop("[UNK]", 0)  # a word of more than 200 characters; no text has a bracket within a word


def known_code_points(rows):
    return [row[0] for row in rows if row[0] not in NEW_CAPITALS]


def counted(texts, *arguments):
    counter = WordCounter(*arguments)
    counter.add(texts)
    return counter.counts, counter.too_long


@pytest.mark.parametrize("case", [(True,), (False,), (True, False), (False, True)])
def test_fuzzed_bytes_agree_with_the_reference(code_point_rows, case):
    generator = random.Random(12)
    code_points = known_code_points(code_point_rows("cased"))
    texts = [fuzzed_bytes(generator, code_points) for _ in range(1_500)]
    assert counted(texts, *case) == reference_counts(texts, *case)


@pytest.mark.slow
@pytest.mark.parametrize("lower_case", [True, False])
def test_every_code_point_parts_words_as_in_the_reference(code_point_rows, lower_case):
    code_points = unlike_code_points(known_code_points(code_point_rows("cased")))
    texts = [f"a{chr(code_point)}b" for code_point in code_points]
    assert counted(texts, lower_case) == reference_counts(texts, lower_case)


def test_golden_texts_agree_with_the_reference(golden_rows):
    texts = [row["text"] for row in golden_rows("chinese")]
    assert counted(texts, True) == reference_counts(texts, True)


def test_counts_add_up_over_batches():
    texts = ["one, two", "two\tthree\nfour", "", " ", "Two!"]
    at_once, one_by_one = WordCounter(True), WordCounter(True)
    at_once.add(texts)
    for text in texts:
        one_by_one.add([text])
    assert at_once.counts == one_by_one.counts == {"one": 1, ",": 1, "two": 3, "three": 1, "four": 1, "!": 1}


def test_long_words_are_counted_apart():
    counter = WordCounter(lower_case=False)
    counter.add(["a" * 200, "a" * 201 + " b", "é" * 300 + "!" + "é" * 201])
    assert counter.counts == {"a" * 200: 1, "b": 1, "!": 1}
    assert counter.too_long == 3


def test_word_limit_is_an_argument():
    counter = WordCounter(lower_case=False, max_characters_per_word=3)
    counter.add(["abc abcd"])
    assert (dict(counter.counts), counter.too_long) == ({"abc": 1}, 1)
    with pytest.raises(ValueError, match="must be from 1 to 999"):
        WordCounter(lower_case=False, max_characters_per_word=0)


@pytest.mark.parametrize("texts", [[], np.array([], dtype=object), [""]])
def test_nothing_is_counted_where_nothing_is(texts):
    assert counted(texts, True) == ({}, 0)


def test_one_text_is_a_batch_of_one():
    assert counted("one text", True)[0] == {"one": 1, "text": 1}


def test_something_other_than_text_is_refused():
    with pytest.raises(TypeError, match="must be text"):
        WordCounter(lower_case=True).add([1, 2])
