import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.tensorflow.gradients import first_order_only, sum_over_rows


def test_gradients_are_handed_on_unchanged():
    one, two = first_order_only(tf.constant([1.0, 2.0]), tf.constant(3.0))
    np.testing.assert_array_equal(one, [1.0, 2.0])
    assert float(two) == 3.0
    assert float(first_order_only(tf.constant(4.0))) == 4.0


@pytest.mark.parametrize("wrap", [lambda function: function, tf.function])
def test_differentiating_them_raises(wrap):
    @wrap
    def derivative(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = first_order_only(x * x)
        return tape.gradient(y, x)

    with pytest.raises(Exception, match="first derivatives only"):
        derivative(tf.constant(3.0))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_sum_of_many_rows_is_not_rounded_on_the_way(dtype):
    # Added one by one in bfloat16 the second column would stay at 256.
    matrix = tf.cast(np.stack([np.arange(2048) % 2, np.ones(2048)], axis=1), dtype)
    np.testing.assert_array_equal(tf.cast(sum_over_rows(matrix), tf.float32), [1024.0, 2048.0])


def test_a_sum_of_no_rows():
    np.testing.assert_array_equal(sum_over_rows(tf.ones([0, 3])), [0.0, 0.0, 0.0])
