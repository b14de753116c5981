import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.dense import get_activation
from keras_bert.layers.tensorflow.fast_dense import dense
from tests.layers.tensorflow.derivatives import second_derivative, value_and_gradients
from tests.tolerances import assert_close


def arguments(dtype="float32", rows=64):
    """Returns rows, kernel, bias, and the gradient of the output."""
    generator = np.random.default_rng(0)
    shapes = ([rows, 24], [24, 16], [16], [rows, 16])
    return [tf.constant(generator.normal(size=shape), dtype) for shape in shapes]


def plain(activation):
    return lambda rows, kernel, bias: get_activation(activation)(tf.matmul(rows, kernel) + bias)


def fast(activation, training):
    return lambda *parts: dense(*parts, activation, get_activation(activation), training)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "tanh", "linear"])
def test_equals_tensorflows_gradients(activation, training):
    expected = value_and_gradients(plain(activation), *arguments("float64"))
    assert_close(value_and_gradients(fast(activation, training), *arguments()), expected, num_terms=64)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "linear"])  # relu's slope jumps, tanh's saturates
def test_bfloat16_is_as_close_as_its_rounding(activation, training):
    low = arguments("bfloat16", rows=512)
    expected = value_and_gradients(plain(activation), *(tf.cast(part, tf.float32) for part in low))
    graph = tf.function(fast(activation, training))  # in a graph TensorFlow fuses operations
    found = value_and_gradients(graph, *low)
    assert {part.dtype for part in found} == {tf.bfloat16}
    assert_close(found, expected, dtype="bfloat16")  # rounds the product, the slope and the result, but no sums


@pytest.mark.parametrize("training", [False, True])
def test_a_graph_of_unknown_shape_and_a_saved_model_give_the_same_results(training, tmp_path):
    module = tf.Module()
    specs = [tf.TensorSpec([None] * rank) for rank in (2, 2, 1)]
    module.run = tf.function(lambda rows, *weights: fast("gelu", training)(rows * 1.0, *weights), input_signature=specs)
    tf.saved_model.save(module, str(tmp_path))
    expected = value_and_gradients(fast("gelu", training), *arguments())
    for function in (module.run, tf.saved_model.load(str(tmp_path)).run):
        assert_close(value_and_gradients(function, *arguments()), expected, num_terms=64)


@pytest.mark.parametrize("wrap", [lambda function: function, tf.function])
def test_second_derivatives_raise(wrap):
    def function(rows):
        return dense(rows, tf.ones([2, 1]), tf.ones([1]), "tanh", tf.tanh, training=True)

    with pytest.raises(Exception, match="only first derivatives"):
        wrap(lambda rows: second_derivative(function, rows))(tf.ones([3, 2]))
