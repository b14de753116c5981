import numpy as np
import pytest
import tensorflow as tf
from seqeval.metrics.sequence_labeling import get_entities

from keras_bert.text.entity_spans import are_entity_tags, find_entities

LABELS = ["O", "B-a", "I-a", "E-a", "S-a", "B-b", "I-b", "E-b", "S-b", "I-c-d", "B"]


def test_entities_equal_those_of_seqeval():
    generator = np.random.default_rng(0)
    rows = [generator.integers(0, len(LABELS), size).tolist() for size in (0, 1, 30, 0, 200, 7, 0)]
    spans = find_entities(tf.ragged.constant(rows, tf.int32, ragged_rank=1), LABELS)
    num_entities = 0
    for row, ids in enumerate(rows):
        expected = get_entities([LABELS[label] for label in ids])
        found = (spans.types[row].numpy(), spans.first_words[row].numpy(), spans.last_words[row].numpy())
        assert [(name.decode(), first, last) for name, first, last in zip(*found, strict=True)] == expected
        entity_ids = np.full(len(ids), -1)
        for number, (_, first, last) in enumerate(expected, num_entities):
            entity_ids[first : last + 1] = number
        assert spans.entity_ids[row].numpy().tolist() == entity_ids.tolist()
        num_entities += len(expected)


@pytest.mark.parametrize("rows", [[], [[]], [[0, 0]]])
def test_texts_without_entities(rows):
    ids = tf.ragged.constant(rows, tf.int32, ragged_rank=1, inner_shape=())
    assert find_entities(ids, LABELS).types.to_list() == [[]] * len(rows)


def test_distinguishes_entity_tags_from_parts_of_speech():
    assert are_entity_tags(["O", "B-a"])
    assert not are_entity_tags(["NOUN", "VERB", "O"])
