import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.tensorflow.packed_texts import PackedTexts
from tests.layers.tensorflow.derivatives import value_and_gradients

RNG = np.random.default_rng(1)


def random_mask(texts, length):
    """Texts of random lengths; some have holes, or no token."""
    lengths = RNG.integers(0, length + 1, [texts, 1])
    return tf.constant((np.arange(length) < lengths) & (RNG.random([texts, length]) < 0.9), tf.int32)


@pytest.mark.parametrize("texts", [0, 1, 3, 4, 21])
def test_groups_have_the_tokens_of_the_batch(texts):
    mask = random_mask(texts, 9)
    ids = tf.range(1, 1 + tf.size(mask))
    ids = tf.reshape(ids, mask.shape) * mask
    packed = PackedTexts(mask)
    row = packed.pack(ids)
    assert row.shape == packed.position_ids.shape == (1, np.sum(mask))
    groups = packed.split(row)
    np.testing.assert_array_equal(packed.join(groups), row)
    sums = packed.in_order([tf.reduce_sum(group, axis=1) for group in groups])
    np.testing.assert_array_equal(sums, tf.reduce_sum(ids, axis=1))
    positions = packed.in_order([tf.reduce_sum(group, axis=1) for group in packed.split(packed.position_ids)])
    np.testing.assert_array_equal(positions, tf.reduce_sum(tf.range(9) * mask, axis=1))
    for group, own in zip(groups, packed.padding_masks, strict=True):
        np.testing.assert_array_equal(group != 0, own != 0)


def test_groups_are_padded_to_their_longest_text():
    lengths = [8, 1, 2, 7, 3, 2, 8, 1]
    packed = PackedTexts(tf.sequence_mask(lengths, 10, tf.int32))
    assert [tuple(mask.shape) for mask in packed.padding_masks] == [(2, 1), (2, 2), (2, 7), (2, 8)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_are_those_of_the_tokens(dtype):
    mask = random_mask(7, 6)
    packed = PackedTexts(mask)
    row = tf.cast(RNG.normal(size=[1, np.sum(mask), 3]), dtype)
    factors = [tf.cast(RNG.normal(size=[*group.shape, 3]), dtype) for group in packed.padding_masks]

    def scaled(row):
        return packed.join([a * b for a, b in zip(packed.split(row), factors, strict=True)])

    upstream = tf.cast(RNG.normal(size=row.shape), dtype)
    value, gradient = value_and_gradients(scaled, row, upstream)
    factor = packed.join(factors)
    np.testing.assert_array_equal(value, row * factor)
    np.testing.assert_array_equal(gradient, upstream * factor)
