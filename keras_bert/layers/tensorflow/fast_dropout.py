"""Dropout with a mask that differs between replicas and meets its rate in every dtype."""

import tensorflow as tf

# An element compares 8 random bits with a threshold, and a row draws 16 more to round that threshold up or down.
_LEVELS = 1 << 8
_ROUNDING_LEVELS = 1 << 16


def dropout(x, rate, seed):
    """Sets elements to zero with probability `rate` and divides the others by `1 - rate`.

    Keras' own dropout draws the same mask on every replica of a distribution strategy, and in bfloat16 draws numbers
    too coarse for the rate (0.1 becomes 0.1016).

    Args:
        x: float tensor of any shape.
        rate: float in (0, 1).
        seed: integer tensor [2]; the same seed gives the same mask on the same replica.

    Returns:
        A tensor of `x`'s shape and dtype.

    Example:

    >>> y = dropout(tf.ones([1000]), 0.5, seed=tf.constant([1, 2]))
    >>> sorted(set(y.numpy().tolist()))
    [0.0, 2.0]
    """
    factors = tf.where(keep_mask(tf.shape(x), rate, seed), tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))
    return x * factors  # the gradient is one product with the same factors


def keep_mask(shape, rate, seed):
    """Which elements dropout keeps: each with probability `1 - rate`, to 1 / 16,777,216.

    Random bits are what dropout costs, so an element draws 8 only. The rate's remainder decides row by row whether the
    threshold is rounded up or down, which ties the elements of a row together by a correlation of less than 0.0001.

    Args:
        shape: int32 tensor [rank]. The shape of what is dropped; its last axis is a row.
        rate: float in (0, 1).
        seed: integer tensor [2]; the same seed gives the same mask on the same replica.

    Returns:
        bool tensor of that shape.

    Example:

    >>> keep = keep_mask(tf.constant([100, 100]), 0.1, seed=tf.constant([1, 2]))
    >>> 0.88 < float(tf.reduce_mean(tf.cast(keep, tf.float32))) < 0.92
    True
    """
    rows, columns = tf.reduce_prod(shape[:-1]), tf.concat([[1], shape], axis=0)[-1]
    drawn, rounded = (rows * columns + 3) // 4, (rows + 1) // 2  # 32-bit words for the elements, and for the rows
    words = tf.random.stateless_uniform(
        [drawn + rounded], seed=_replica_seed(seed), minval=None, maxval=None, dtype=tf.uint32
    )
    levels = tf.reshape(tf.reshape(tf.bitcast(words[:drawn], tf.uint8), [-1])[: rows * columns], [rows, columns])
    rounding = tf.reshape(tf.bitcast(words[drawn:], tf.uint16), [-1])[:rows, None]
    # Of rate and 1 - rate the smaller one: its threshold fits into 8 bits after rounding up, too.
    thresholds = _thresholds(min(rate, 1.0 - rate), rounding)
    return tf.reshape(levels >= thresholds if rate <= 0.5 else levels < thresholds, shape)


def _thresholds(probability, rounding):
    """`probability` in 256ths, rounded up or down so that its mean over the rows is exact."""
    steps = round(probability * _LEVELS * _ROUNDING_LEVELS)
    up = tf.cast(rounding, tf.int32) < steps % _ROUNDING_LEVELS
    return tf.cast(steps // _ROUNDING_LEVELS + tf.cast(up, tf.int32), tf.uint8)


def _replica_seed(seed):
    """The seed with the replica's number in its upper half, so that every replica draws numbers of its own."""
    context = tf.distribute.get_replica_context()
    replica = 0 if context is None else context.replica_id_in_sync_group
    return tf.cast(seed, tf.int64) + tf.stack([tf.zeros([], tf.int64), tf.cast(replica, tf.int64) * (1 << 32)])
