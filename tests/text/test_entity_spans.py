import numpy as np
import pytest
import tensorflow as tf
from seqeval.metrics.sequence_labeling import get_entities

from keras_bert.text.entity_spans import find_entities, spell_entities

LABELS = ["O", "B-a", "I-a", "E-a", "S-a", "B-b", "I-b", "E-b", "S-b", "I-c-d", "B"]


def test_entities_are_those_of_seqeval():
    generator = np.random.default_rng(0)
    rows = [generator.integers(0, len(LABELS), size).tolist() for size in (0, 1, 30, 0, 200, 7, 0)]
    spans = find_entities(tf.ragged.constant(rows, tf.int32, ragged_rank=1), LABELS)
    number = 0
    for row, ids in enumerate(rows):
        expected = get_entities([LABELS[label] for label in ids])
        found = (spans.types[row].numpy(), spans.first_words[row].numpy(), spans.last_words[row].numpy())
        assert [(kind.decode(), first, last) for kind, first, last in zip(*found, strict=True)] == expected
        of_words = spans.of_words[row].numpy()
        for of_row, (_, first, last) in enumerate(expected):
            assert np.all(of_words[first : last + 1] == number + of_row)
        assert np.sum(of_words >= 0) == sum(last - first + 1 for _, first, last in expected)
        number += len(expected)


@pytest.mark.parametrize("rows", [[], [[]], [[0, 0]]])
def test_texts_without_entities(rows):
    ids = tf.ragged.constant(rows, tf.int32, ragged_rank=1, inner_shape=())
    assert find_entities(ids, LABELS).types.to_list() == [[]] * len(rows)


def test_parts_of_speech_spell_none():
    assert spell_entities(["O", "B-a"])
    assert not spell_entities(["NOUN", "VERB", "O"])
