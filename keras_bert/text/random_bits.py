"""Random numbers that are a function of a key, a purpose and a position, and of nothing else.

TensorFlow's stateless operations take one seed for a whole tensor, so that what a row draws would depend on its place
in the batch. Here every row has its own key, and integer arithmetic alone gives its numbers: the same in any batch,
under parallel calls, in any process, and in any version of TensorFlow.

Source: SplitMix64, "Fast splittable pseudorandom number generators" (Steele, Lea and Flood, OOPSLA 2014), with the
position as its counter.
"""

import tensorflow as tf

# SplitMix64's increment: 2**64 divided by the golden ratio, made odd.
_INCREMENT = 0x9E3779B97F4A7C15
# SplitMix64's finalizer: exclusive or with itself shifted right, then multiplied, twice; then shifted once more.
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31

_MANTISSA_BITS = 53  # of float64


def random_bits(keys: tf.Tensor, purpose: tf.Tensor | int, count: tf.Tensor | int) -> tf.Tensor:
    """Draws 64 random bits for each position of each row.

    Source: the module's docstring. The stream of a row begins where its key and the purpose, each finalized, lead.

    Args:
        keys: int64 tensor `[batch]`, any values; neighbouring ones give unrelated numbers.
        purpose: int, or int64 scalar, at least 0: what the numbers are for. Other purposes give unrelated numbers.
        count: int, or int32 scalar: positions in a row. A longer row begins with the numbers of a shorter one.

    Returns:
        uint64 tensor `[batch, count]`.

    Example:
        >>> random_bits(tf.constant([1, 2], tf.int64), purpose=0, count=2).numpy().tolist()
        [[4720248854425330031, 1629287585893752162], [7313295905499269398, 4994587969560392530]]
    """
    increment = tf.constant(_INCREMENT, tf.uint64)
    purpose = tf.cast(purpose, tf.uint64)
    streams = _finalize(_finalize(tf.bitcast(keys, tf.uint64)) + purpose * increment)  # [batch]
    positions = tf.cast(tf.range(1, count + 1), tf.uint64)
    return _finalize(streams[:, tf.newaxis] + positions * increment)


def integers_below(bits: tf.Tensor, limit: int) -> tf.Tensor:
    """Turns random bits into integers that are equally likely.

    Source: none in BERT, which calls Python's `randint`. The upper 32 bits are multiplied by the limit, and the upper
    half of the product is the integer: the likelihoods differ by less than limit / 2**32 of themselves.

    Args:
        bits: uint64 tensor of any shape.
        limit: int, 1 to 2**32.

    Returns:
        int64 tensor of the same shape, 0 to `limit` - 1.

    Raises:
        ValueError: `limit` is out of range.

    Example:
        >>> integers_below(tf.constant([0, 2**63, 2**64 - 1], tf.uint64), 10).numpy().tolist()
        [0, 5, 9]
    """
    if not 1 <= limit <= 2**32:
        raise ValueError(f"limit must be 1 to 2**32, so that 64 bits hold the product. Received: {limit}.")
    product = _shifted_right(bits, 32) * tf.constant(limit, tf.uint64)
    return tf.cast(_shifted_right(product, 32), tf.int64)


def uniform_floats(bits: tf.Tensor) -> tf.Tensor:
    """Turns random bits into numbers of the interval from 0 to 1, without 1.

    Source: none in BERT, which calls Python's `random`; as there, the numbers are the multiples of 2**-53.

    Args:
        bits: uint64 tensor of any shape.

    Returns:
        float64 tensor of the same shape.

    Example:
        >>> uniform_floats(tf.constant([0, 2**63], tf.uint64)).numpy().tolist()
        [0.0, 0.5]
    """
    return tf.cast(_shifted_right(bits, 64 - _MANTISSA_BITS), tf.float64) * 2.0**-_MANTISSA_BITS


def _finalize(values: tf.Tensor) -> tf.Tensor:
    for shift, factor in _ROUNDS:
        values = tf.bitwise.bitwise_xor(values, _shifted_right(values, shift)) * tf.constant(factor, tf.uint64)
    return tf.bitwise.bitwise_xor(values, _shifted_right(values, _LAST_SHIFT))


def _shifted_right(values: tf.Tensor, number: int) -> tf.Tensor:
    return tf.bitwise.right_shift(values, tf.constant(number, tf.uint64))
