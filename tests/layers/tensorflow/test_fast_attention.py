import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.tensorflow.fast_attention import attend
from keras_bert.layers.tensorflow.fast_dropout import keep_mask
from tests.layers.tensorflow.derivatives import second_derivative, value_and_gradients
from tests.tolerances import assert_close

BATCH, LENGTH, HEADS, HEAD_SIZE = 3, 7, 2, 4
HIDDEN = HEADS * HEAD_SIZE
SEED = tf.constant([1, 2])
ROWS = {"one row": 1, "all rows": LENGTH}


def plain(projected, masked_scores, rate):
    """Computes attention by its definition, with the same dropout."""
    parts = tf.reshape(projected, [BATCH, LENGTH, 3, HEADS, HEAD_SIZE])
    query, key, value = (tf.transpose(parts[:, :, i], [0, 2, 1, 3]) for i in range(3))
    scores = tf.matmul(query, key, transpose_b=True) / HEAD_SIZE**0.5 + masked_scores
    probabilities = tf.nn.softmax(scores)
    if rate:
        keep = keep_mask(tf.constant([BATCH, HEADS, LENGTH, LENGTH]), rate, SEED)
        probabilities *= tf.cast(keep, projected.dtype) / (1.0 - rate)
    return tf.reshape(tf.transpose(tf.matmul(probabilities, value), [0, 2, 1, 3]), [BATCH, LENGTH, HIDDEN])


def fast(projected, masked_scores, rate):
    return attend(projected, masked_scores, HEADS, rate, SEED if rate else None)


def arguments(dtype, rows):
    generator = np.random.default_rng(0)
    projected = generator.normal(size=[BATCH, LENGTH, 3 * HIDDEN])
    masked_scores = np.where(generator.random([BATCH, 1, rows, LENGTH]) < 0.3, -10000.0, 0.0)
    masked_scores[..., 0] = 0.0  # each position sees at least one key
    d_context = generator.normal(size=[BATCH, LENGTH, HIDDEN])
    return [tf.constant(part, dtype) for part in (projected, masked_scores, d_context)]


def value_and_gradient(function, projected, masked_scores, d_context, rate):
    return value_and_gradients(lambda x: function(x, masked_scores, rate), projected, d_context)


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_equals_tensorflows_gradients(rows, rate):
    expected = value_and_gradient(plain, *arguments("float64", rows), rate)
    assert_close(value_and_gradient(fast, *arguments("float32", rows), rate), expected, num_terms=32)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_low_precision_is_as_close_as_its_rounding(rows, rate, dtype):
    low = arguments(dtype, rows)
    expected = value_and_gradient(plain, *(tf.cast(part, tf.float32) for part in low), rate)
    graph = tf.function(fast)  # in a graph TensorFlow fuses operations
    found = value_and_gradient(graph, *low, rate)
    assert {part.dtype.name for part in found} == {dtype}
    assert_close(found, expected, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_position_that_sees_nothing_is_finite(dtype):
    projected, masked_scores, d_context = arguments(dtype, LENGTH)
    nothing = tf.fill(tf.shape(masked_scores), tf.constant(-10000.0, dtype))
    for found in value_and_gradient(fast, projected, nothing, d_context, 0.4):
        assert np.isfinite(tf.cast(found, tf.float32)).all()


def test_a_graph_of_unknown_shape_gives_the_same_results():
    specs = [tf.TensorSpec([None, None, 3 * HIDDEN]), tf.TensorSpec([None, 1, None, None])]
    graph = tf.function(lambda projected, mask: fast(projected, mask, 0.4), input_signature=specs)
    *inputs, d_context = arguments("float32", LENGTH)
    found = value_and_gradient(lambda projected, mask, _: graph(projected, mask), *inputs, d_context, None)
    assert_close(found, value_and_gradient(fast, *inputs, d_context, 0.4), num_terms=32)


@pytest.mark.parametrize("wrap", [lambda function: function, tf.function])
def test_second_derivatives_raise(wrap):
    projected, masked_scores, _ = arguments("float32", 1)
    with pytest.raises(Exception, match="only first derivatives"):
        wrap(lambda x: second_derivative(lambda x: fast(x, masked_scores, 0.0), x))(projected)
