import json
import random

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.pack import PackingPreprocessor, pack, packed_lengths
from tests.reference import packing as reference

SPECIAL = {"cls_id": 101, "sep_id": 102, "pad_id": 7}
NAMES = ("token_ids", "segment_ids", "padding_mask")


def ragged(rows):
    return tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1)


@pytest.mark.parametrize("sequence_length", [2, 3, 4, 5, 8, 9, 16])
def test_equals_the_reference(sequence_length):
    generator = random.Random(sequence_length)
    first, second = (
        [list(range(begin, begin + generator.randrange(12))) for _ in range(300)] for begin in (1000, 2000)
    )
    for other in (None, second) if sequence_length > 2 else (None,):
        packed = pack(ragged(first), other and ragged(other), sequence_length=sequence_length, **SPECIAL)
        for index, a in enumerate(first):
            expected = reference.pack(a, other and other[index], sequence_length=sequence_length, **SPECIAL)
            assert tuple(packed[name][index].numpy().tolist() for name in NAMES) == expected


def test_longest_pads_to_the_longest_row_after_truncation():
    segment = ragged([[5], [5, 5, 5, 5, 5, 5], []])
    for second, sequence_length, width in ((None, 6, 6), (segment, 20, 15)):
        full = pack(segment, second, sequence_length=sequence_length, pad_to="max_length", **SPECIAL)
        longest = pack(segment, second, sequence_length=sequence_length, pad_to="longest", **SPECIAL)
        assert longest["token_ids"].shape == [3, width]
        for name in NAMES:
            np.testing.assert_array_equal(longest[name], full[name][:, :width])


def test_a_graph_has_static_shapes_and_int32_results():
    specification = tf.RaggedTensorSpec([None, None], tf.int64)

    @tf.function(input_signature=[specification, specification])
    def packed(a, b):
        result = pack(a, b, sequence_length=9, **SPECIAL)
        assert [result[name].shape.as_list() for name in NAMES] == [[None, 9]] * 3
        return result

    a, b = tf.cast(ragged([[1, 2]]), tf.int64), tf.cast(ragged([[3], [4]]), tf.int64)
    result = packed(a, b[:1])
    assert {result[name].dtype for name in NAMES} == {tf.int32}
    assert result["segment_ids"].numpy().tolist() == [[0, 0, 0, 0, 1, 1, 0, 0, 0]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="same number of rows"):
        packed(a, b)


def test_packed_lengths_ignore_truncation():
    a = ragged([[1, 2, 3], [], [1]])
    assert packed_lengths(a, None).numpy().tolist() == [5, 2, 3]
    assert packed_lengths(a, ragged([[1], [1], []])).numpy().tolist() == [7, 4, 3]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sequence_length": 1}, ValueError, "at least 2.*Received: 1"),
        ({"sequence_length": 2, "segment_b": ragged([[1]])}, ValueError, "at least 3.*Received: 2"),
        ({"sequence_length": 8.0}, TypeError, "sequence_length must be an int"),
        ({"segment_a": [[1, 2]]}, TypeError, "segment_a must be a RaggedTensor of integer ids"),
        ({"segment_b": tf.ragged.constant([["a"]])}, TypeError, "segment_b must be a RaggedTensor of integer ids"),
        ({"pad_to": "batch"}, ValueError, "pad_to must be one of"),
        ({"segment_b": ragged([[1], [2]])}, ValueError, "same number of rows.*Received: 1 and 2"),
    ],
)
def test_invalid_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        pack(**{"segment_a": ragged([[1]]), "segment_b": None, "sequence_length": 8, **SPECIAL, **arguments})


def test_preprocessor_packs_with_the_special_ids_of_its_tokenizer(toy):
    preprocessor = PackingPreprocessor.from_config(json.loads(json.dumps(PackingPreprocessor(toy, 8).get_config())))
    ids = toy.tokenize(["play playing"])
    row = [toy.cls_id, *ids.values.numpy(), toy.sep_id]
    assert preprocessor.pack(ids)["token_ids"].numpy().tolist() == [row]
    padded = preprocessor.pack(ids, pad_to="max_length")["token_ids"].numpy()
    np.testing.assert_array_equal(padded, [[*row, *[toy.pad_id] * (8 - len(row))]])
