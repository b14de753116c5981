import pytest
import tensorflow as tf

from keras_bert.text.random_bits import integers_below, random_bits, uniform_floats
from tests.reference import masking as reference


def test_reference_is_splitmix64():
    # The numbers of seed 1234567 that implementations of SplitMix64 are commonly checked with.
    numbers = [reference.finalize((1234567 + (i + 1) * 0x9E3779B97F4A7C15) % 2**64) for i in range(3)]
    assert numbers == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("purpose", [0, 1, 2**40])
def test_bits_equal_the_reference(purpose):
    keys = [0, 1, 2, -1, 2**63 - 1, -(2**63), 1234567890123456789]
    bits = random_bits(tf.constant(keys, tf.int64), purpose, 9)
    assert bits.dtype == tf.uint64
    expected = [[reference.random_bits(key, purpose, position) for position in range(9)] for key in keys]
    assert bits.numpy().tolist() == expected


def test_integers_and_floats_equal_the_reference():
    bits = random_bits(tf.range(20, dtype=tf.int64), 0, 10)
    flat = [int(number) for number in bits.numpy().ravel()] + [0, 2**64 - 1]
    floats = uniform_floats(tf.constant(flat, tf.uint64)).numpy().tolist()
    assert floats == [reference.uniform_float(number) for number in flat]
    for limit in (1, 2, 30522, 2**32):
        numbers = integers_below(tf.constant(flat, tf.uint64), limit).numpy().tolist()
        assert numbers == [reference.integer_below(number, limit) for number in flat]
        assert (min(numbers), max(numbers)) == (0, limit - 1)


@pytest.mark.parametrize("limit", [0, 2**32 + 1])
def test_limit_out_of_range_is_refused(limit):
    with pytest.raises(ValueError, match=r"1 to 2\*\*32"):
        integers_below(tf.zeros([1], tf.uint64), limit)
