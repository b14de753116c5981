import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.dropout import Dropout


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_drops_at_the_rate_and_scales_the_rest(dtype):
    dropped = np.array(Dropout(0.1, seed=1, dtype=dtype)(tf.ones([1000, 1000], dtype), training=True), "float32")
    zeros = (dropped == 0).mean()
    # Four standard deviations of a million draws. Keras' own bfloat16 dropout is off by five.
    assert abs(zeros - 0.1) < 4 * np.sqrt(0.1 * 0.9 / 1e6)
    np.testing.assert_array_equal(dropped[dropped != 0], np.float32(tf.cast(1 / 0.9, dtype)))  # of ones, so exactly


def test_draws_differ_from_call_to_call_and_repeat_with_the_seed():
    first, again = Dropout(0.5, seed=3), Dropout(0.5, seed=3)
    x = tf.ones([8, 8])
    draws = [np.array(layer(x, training=True)) for layer in (first, first, again)]
    assert (draws[0] != draws[1]).any()
    assert (draws[0] == draws[2]).all()


def test_does_nothing_without_training():
    x = tf.random.stateless_uniform([4], [0, 1])
    assert Dropout(0.9)(x) is x


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_rejects_a_rate_out_of_range(rate):
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        Dropout(rate)


def test_checkpoints_contain_the_random_state(tmp_path):
    layer, x = Dropout(0.5, seed=3), tf.ones([8, 8])
    path = tf.train.Checkpoint(layer=layer).write(str(tmp_path / "checkpoint"))
    expected = np.array(layer(x, training=True))
    other = Dropout(0.5, seed=4)
    tf.train.Checkpoint(layer=other).read(path).assert_consumed()
    np.testing.assert_array_equal(other(x, training=True), expected)
    assert not layer.weights
