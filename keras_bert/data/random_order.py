"""Random orders that are a function of a seed and of numbers, and of nothing else."""

import tensorflow as tf


def random_key(seed, purpose, *numbers):
    """The key of one random order among many.

    Args:
        seed: int.
        purpose: int. What the order is of; other purposes have unrelated orders.
        *numbers: int or scalar integer tensors, such as that of the epoch.

    Returns:
        int64 tensor [2], a seed of TensorFlow's stateless operations.

    Example:

    >>> int(tf.random.stateless_uniform([], random_key(1, 0, 5), maxval=100, dtype=tf.int64))
    47
    """
    key = tf.constant([seed, purpose], tf.int64)
    for number in numbers:
        key = tf.random.fold_in(key, number)
    return key


def shuffled(values, key):
    """The rows of a tensor in the order of a key.

    Args:
        values: tensor [rows, ...].
        key: int64 tensor [2], as `random_key` gives.

    Returns:
        tensor like `values`.

    Example:

    >>> shuffled(tf.range(5), random_key(1, 0)).numpy().tolist()
    [4, 3, 1, 2, 0]
    """
    return tf.random.experimental.stateless_shuffle(values, seed=key)
