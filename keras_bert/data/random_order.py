"""Random orders that depend on a seed and on numbers only."""

from __future__ import annotations

import tensorflow as tf


def random_key(seed: int, purpose: int, *numbers: int | tf.Tensor) -> tf.Tensor:
    """Returns the int64 [2] key of one random order, a seed for TensorFlow's stateless operations.

    Keys of different purposes, and of different numbers (such as the epoch), are unrelated.

    >>> int(tf.random.stateless_uniform([], random_key(1, 0, 5), maxval=100, dtype=tf.int64))
    47
    """
    key = tf.constant([seed, purpose], tf.int64)
    for number in numbers:
        key = tf.random.fold_in(key, number)
    return key


def shuffled(values: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Returns the rows of a tensor in the order of a key.

    >>> shuffled(tf.range(5), random_key(1, 0)).numpy().tolist()
    [4, 3, 1, 2, 0]
    """
    return tf.random.experimental.stateless_shuffle(values, seed=key)
