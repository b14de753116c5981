import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_bert.text.random_bits import integers_below, random_bits, uniform_floats
from tests.reference import masking as reference

MIN_P_VALUE = 1e-3  # seeds are fixed, so a test that passes once always passes


def keys_from(first, count):
    return tf.range(first, first + count, dtype=tf.int64)


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
    bits = random_bits(keys_from(0, 20), 0, 10)
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


def test_row_depends_on_its_own_key_only():
    keys = keys_from(-5, 40)
    bits = random_bits(keys, 3, 12).numpy()
    tf.random.set_seed(99)
    for i in (0, 7, 39):
        assert np.array_equal(random_bits(keys[i : i + 1], 3, 12)[0], bits[i])
    assert np.array_equal(random_bits(keys, 3, 5), bits[:, :5])


def test_traced_function_equals_eager_mode():
    signature = [tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int32)]
    traced = tf.function(random_bits, input_signature=signature)
    for rows, count in ((0, 3), (3, 0), (4, 5)):
        bits = traced(keys_from(0, rows), tf.constant(2, tf.int64), count)
        assert bits.shape == [rows, count]
        assert np.array_equal(bits, random_bits(keys_from(0, rows), 2, count))


def test_numbers_are_uniform():
    bits = random_bits(keys_from(0, 20_000), 0, 10)
    floats = uniform_floats(bits).numpy().ravel()
    assert 0 <= floats.min() < floats.max() < 1
    assert stats.chisquare(np.histogram(floats, bins=1000, range=(0, 1))[0]).pvalue > MIN_P_VALUE
    assert stats.chisquare(np.bincount(integers_below(bits, 997).numpy().ravel(), minlength=997)).pvalue > MIN_P_VALUE
    # The low bits are as good as the high ones.
    low = (bits.numpy() & np.uint64(1023)).astype(np.int64).ravel()
    assert stats.chisquare(np.bincount(low, minlength=1024)).pvalue > MIN_P_VALUE


def neighbours(kind):
    """Returns two tensors of bits that differ only in the key, the position or the purpose."""
    bits = random_bits(keys_from(0, 20_000), 0, 2)
    if kind == "key":
        return bits[:-1, 0], bits[1:, 0]
    if kind == "position":
        return bits[:, 0], bits[:, 1]
    other = random_bits(keys_from(0, 20_000), 1, 1)[:, 0]
    # The next position of one purpose is not the first position of the next purpose.
    return bits[:, 0 if kind == "purpose" else 1], other


@pytest.mark.parametrize("kind", ["key", "position", "purpose", "purpose and position"])
def test_neighbours_are_independent(kind):
    first, second = neighbours(kind)
    flipped = first.numpy() ^ second.numpy()
    fractions = [((flipped >> np.uint64(bit)) & np.uint64(1)).mean() for bit in range(64)]
    assert np.abs(np.array(fractions) - 0.5).max() < 4 * 0.5 / np.sqrt(len(flipped))
    pairs = integers_below(first, 20) * 20 + integers_below(second, 20)
    assert stats.chisquare(np.bincount(pairs.numpy(), minlength=400)).pvalue > MIN_P_VALUE
    floats = uniform_floats(first).numpy(), uniform_floats(second).numpy()
    assert stats.pearsonr(*floats).pvalue > MIN_P_VALUE
