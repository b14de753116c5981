"""The one module of this room that needs TensorFlow: fast paths that the layers take when Keras runs on it."""

import tensorflow as tf

# Dropout compares 16 random bits an element, so that its rate is met to 1 / 65,536.
_RANDOM_LEVELS = 1 << 16


def dropout(x, rate, seed):
    """Sets elements to zero with probability `rate` and divides the others by `1 - rate`.

    Keras' own dropout draws the same mask on every replica of a distribution strategy, and in bfloat16 draws numbers
    too coarse for the rate (0.1 becomes 0.1016). This one draws 16 bits an element and mixes the replica's number into
    the seed.

    Args:
        x: float tensor of any shape.
        rate: float in [0, 1).
        seed: integer tensor [2]; the same seed gives the same mask on the same replica.

    Returns:
        A tensor of `x`'s shape and dtype.

    Example:

    >>> y = dropout(tf.ones([1000]), 0.5, seed=tf.constant([1, 2]))
    >>> sorted(set(y.numpy().tolist()))
    [0.0, 2.0]
    """
    size = tf.size(x)
    words = tf.random.stateless_uniform(
        [(size + 1) // 2], seed=_replica_seed(seed), minval=None, maxval=None, dtype=tf.uint32
    )
    bits = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:size]
    keep = tf.reshape(bits >= tf.constant(round(rate * _RANDOM_LEVELS), tf.uint16), tf.shape(x))
    return tf.where(keep, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))


def _replica_seed(seed):
    """The seed with the replica's number in its upper half, so that every replica draws numbers of its own."""
    context = tf.distribute.get_replica_context()
    replica = 0 if context is None else context.replica_id_in_sync_group
    return tf.cast(seed, tf.int64) + tf.stack([tf.zeros([], tf.int64), tf.cast(replica, tf.int64) * (1 << 32)])
