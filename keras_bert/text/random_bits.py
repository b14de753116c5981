"""Random numbers that are a function of a key, a purpose and a position: the same in any batch and process.

Source: SplitMix64, "Fast splittable pseudorandom number generators" (Steele, Lea and Flood, OOPSLA 2014), with the
position as its counter.
"""

import tensorflow as tf

# SplitMix64's increment: 2**64 divided by the golden ratio, made odd.
_INCREMENT = 0x9E3779B97F4A7C15
# SplitMix64's finalizer: xor with itself shifted right, then multiplication, twice; then one more shift and xor.
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31

_MANTISSA_BITS = 53  # of float64


def random_bits(keys: tf.Tensor, purpose: tf.Tensor | int, count: tf.Tensor | int) -> tf.Tensor:
    """Draws 64 random bits per position, uint64 `[batch, count]`; other keys and purposes give unrelated numbers."""
    increment = tf.constant(_INCREMENT, tf.uint64)
    purpose = tf.cast(purpose, tf.uint64)
    streams = _finalize(_finalize(tf.bitcast(keys, tf.uint64)) + purpose * increment)  # [batch]
    positions = tf.cast(tf.range(1, count + 1), tf.uint64)
    return _finalize(streams[:, tf.newaxis] + positions * increment)


def integers_below(bits: tf.Tensor, limit: int) -> tf.Tensor:
    """Converts random bits to uniform int64 integers from 0 to `limit` - 1, for a limit of 1 to 2**32."""
    if not 1 <= limit <= 2**32:
        raise ValueError(f"limit must be 1 to 2**32, so that 64 bits hold the product. Received: {limit}.")
    product = _shift_right(bits, 32) * tf.constant(limit, tf.uint64)
    return tf.cast(_shift_right(product, 32), tf.int64)


def uniform_floats(bits: tf.Tensor) -> tf.Tensor:
    """Converts random bits to float64 multiples of 2**-53 in [0, 1), as in Python's `random`."""
    return tf.cast(_shift_right(bits, 64 - _MANTISSA_BITS), tf.float64) * 2.0**-_MANTISSA_BITS


def _finalize(values: tf.Tensor) -> tf.Tensor:
    for shift, factor in _ROUNDS:
        values = tf.bitwise.bitwise_xor(values, _shift_right(values, shift)) * tf.constant(factor, tf.uint64)
    return tf.bitwise.bitwise_xor(values, _shift_right(values, _LAST_SHIFT))


def _shift_right(values: tf.Tensor, num_bits: int) -> tf.Tensor:
    return tf.bitwise.right_shift(values, tf.constant(num_bits, tf.uint64))
