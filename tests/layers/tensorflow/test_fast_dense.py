import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.dense import get_activation
from keras_bert.layers.tensorflow.fast_dense import dense

ACTIVATIONS = ["gelu", "gelu_new", "relu", "tanh", "linear"]


def arguments(dtype="float32", rows=64):
    generator = np.random.default_rng(0)
    shapes = ([rows, 24], [24, 16], [16], [rows, 16])
    return [tf.constant(generator.normal(size=shape), dtype) for shape in shapes]


def value_and_gradients(function, rows, kernel, bias, d_output):
    with tf.GradientTape() as tape:
        tape.watch([rows, kernel, bias])
        output = function(rows, kernel, bias)
    return [output, *tape.gradient(output, [rows, kernel, bias], output_gradients=d_output)]


def plain(activation):
    return lambda rows, kernel, bias: get_activation(activation)(tf.matmul(rows, kernel) + bias)


def fast(activation, training):
    return lambda *parts: dense(*parts, activation, get_activation(activation), training)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_equals_what_tensorflow_derives(activation, training):
    expected = value_and_gradients(plain(activation), *arguments("float64"))
    for found, exact in zip(value_and_gradients(fast(activation, training), *arguments()), expected, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-6, atol=2e-6 * np.abs(exact).max())


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "linear"])  # relu's slope jumps, tanh's saturates
def test_bfloat16_is_as_near_as_its_rounding(activation, training):
    low = arguments("bfloat16", rows=512)
    expected = value_and_gradients(plain(activation), *(tf.cast(part, tf.float32) for part in low))
    graph = tf.function(fast(activation, training))  # in a graph TensorFlow fuses operations
    for found, exact in zip(value_and_gradients(graph, *low), expected, strict=True):
        assert found.dtype == "bfloat16"
        # Three roundings: of the product, of the slope and of the result.
        np.testing.assert_allclose(tf.cast(found, tf.float32), exact, rtol=2**-7, atol=2**-7 * np.abs(exact).max())


@pytest.mark.parametrize("training", [False, True])
def test_a_graph_of_unknown_shape(training):
    rows, kernel, bias, d_output = arguments()
    graph = tf.function(fast("gelu", training), input_signature=[tf.TensorSpec([None] * rank) for rank in (2, 2, 1)])
    found = value_and_gradients(graph, rows, kernel, bias, d_output)
    for one, other in zip(found, value_and_gradients(fast("gelu", training), *arguments()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wrap", [lambda function: function, tf.function])
def test_a_second_derivative_raises(wrap):
    @wrap
    def second_derivative(rows):
        with tf.GradientTape() as outer:
            outer.watch(rows)
            with tf.GradientTape() as inner:
                inner.watch(rows)
                output = dense(rows, tf.ones([2, 1]), tf.ones([1]), "tanh", tf.tanh, training=True)
            slope = inner.gradient(output, rows)
        return outer.gradient(slope, rows)

    with pytest.raises(Exception, match="only first derivatives"):
        second_derivative(tf.ones([3, 2]))


def test_a_saved_model_gives_the_same_and_its_gradient(tmp_path):
    rows, kernel, bias, d_output = arguments()
    module = tf.Module()
    module.run = tf.function(
        lambda rows, kernel, bias: fast("gelu", training=False)(rows * 1.0, kernel, bias),
        input_signature=[tf.TensorSpec([None, 24]), tf.TensorSpec([24, 16]), tf.TensorSpec([16])],
    )
    tf.saved_model.save(module, str(tmp_path))
    found = value_and_gradients(tf.saved_model.load(str(tmp_path)).run, rows, kernel, bias, d_output)
    for one, other in zip(found, value_and_gradients(fast("gelu", False), *arguments()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
