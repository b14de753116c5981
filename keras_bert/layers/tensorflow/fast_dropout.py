"""Dropout whose mask differs between replicas and has the exact rate in every dtype."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# An element compares 8 random bits with a threshold; 16 more per row round the threshold up or down.
_LEVELS = 1 << 8
_ROUNDING_LEVELS = 1 << 16


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """Zeroes elements with probability `rate`, and divides the others by `1 - rate`.

    The same integer `seed` [2] gives the same mask on the same replica. Keras' own dropout draws the same mask on every
    replica of a distribution strategy, and in bfloat16 its random numbers are too coarse for the rate (0.1 becomes
    0.1016).

    >>> y = dropout(tf.ones([1000]), 0.5, seed=tf.constant([1, 2]))
    >>> sorted(set(y.numpy().tolist()))
    [0.0, 2.0]
    """
    keep = keep_mask(tf.shape(x), rate, seed)
    keep.set_shape(x.shape)
    factors = tf.where(keep, tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))
    return x * factors  # its gradient is a product with the same factors


def keep_mask(shape: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """Returns a bool tensor, True with probability `1 - rate`, exact to 1 / 16,777,216.

    Random bits dominate the cost of dropout, so an element draws only 8. The remainder of the rate decides per row (the
    last axis) whether the threshold is rounded up or down, which correlates the elements of a row by less than 0.0001.
    """
    mask = _keep_mask_function(rate)(shape, _replica_seed(seed))
    if shape.shape[0] is not None:
        mask.set_shape([None] * shape.shape[0])
    return mask


@functools.cache
def _keep_mask_function(rate: float) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns the function behind `keep_mask`, traced once in a process: a model has three dropouts per block."""

    def mask(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        rows, columns = tf.reduce_prod(shape[:-1]), tf.concat([[1], shape], axis=0)[-1]
        drawn, rounded = (rows * columns + 3) // 4, (rows + 1) // 2  # 32-bit words for the elements, and for the rows
        words = tf.random.stateless_uniform([drawn + rounded], seed=seed, minval=None, maxval=None, dtype=tf.uint32)
        levels = tf.reshape(tf.reshape(tf.bitcast(words[:drawn], tf.uint8), [-1])[: rows * columns], [rows, columns])
        rounding = tf.reshape(tf.bitcast(words[drawn:], tf.uint16), [-1])[:rows, None]
        # The smaller of rate and 1 - rate: its threshold fits into 8 bits even when rounded up.
        thresholds = _thresholds(min(rate, 1.0 - rate), rounding)
        return tf.reshape(levels >= thresholds if rate <= 0.5 else levels < thresholds, shape)

    signature = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([2], tf.int64)]
    return tf.function(mask, input_signature=signature, autograph=False)


def _thresholds(probability: float, rounding: tf.Tensor) -> tf.Tensor:
    """Returns `probability` in 256ths, rounded up or down so that its mean over the rows is exact."""
    steps = round(probability * _LEVELS * _ROUNDING_LEVELS)
    up = tf.cast(rounding, tf.int32) < steps % _ROUNDING_LEVELS
    return tf.cast(steps // _ROUNDING_LEVELS + tf.cast(up, tf.int32), tf.uint8)


def _replica_seed(seed: tf.Tensor) -> tf.Tensor:
    """Adds the replica's number to the upper half of the seed, so that every replica draws different numbers."""
    context = tf.distribute.get_replica_context()
    replica = 0 if context is None else context.replica_id_in_sync_group
    return tf.cast(seed, tf.int64) + tf.stack([tf.zeros([], tf.int64), tf.cast(replica, tf.int64) * (1 << 32)])


def make_trackable(variable: Any) -> tf.train.Checkpoint:
    """Wraps a Keras variable so that tf.train.Checkpoint finds it as an attribute of a layer."""
    return tf.train.Checkpoint(state=variable.value)
