import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.tensorflow.fast_dropout import dropout, keep_mask

SEED = tf.constant([1, 2])


def test_gradient_passes_through_what_was_kept():
    x = tf.ones([100])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = dropout(x, 0.5, SEED)
    np.testing.assert_array_equal(tape.gradient(y, x), np.where(y == 0, 0.0, 2.0))


# The threshold is rounded except for 0.25; 0.001 and 0.999 are at the ends of what 8 bits represent.
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999])
def test_observed_rate_equals_the_argument(rate):
    keep = keep_mask(tf.constant([40_000, 100]), rate, SEED).numpy()
    # Four standard deviations of the draws, and of the rounding of the rows' thresholds.
    deviation = np.sqrt(rate * (1 - rate) / keep.size + 0.25 / 256**2 / len(keep))
    assert abs(1 - keep.mean() - rate) < 4 * deviation


def test_elements_are_independent_of_their_neighbors():
    keep = keep_mask(tf.constant([2000, 500]), 0.1, SEED).numpy() - 0.9
    for one, other in ((keep[:, 1:], keep[:, :-1]), (keep[1:], keep[:-1]), (keep[:, 4:], keep[:, :-4])):
        assert abs((one * other).mean()) < 4 * 0.09 / np.sqrt(one.size)


@pytest.mark.parametrize("shape", [[], [1], [7], [3, 5], [2, 3, 5], [0, 5], [5, 0]])
def test_shapes_are_kept(shape):
    assert keep_mask(tf.constant(shape, tf.int32), 0.1, SEED).shape == shape
    assert dropout(tf.ones(shape), 0.1, SEED).shape == shape


def test_a_graph_of_unknown_shape_draws_the_same():
    graph = tf.function(lambda x: dropout(x, 0.3, SEED), input_signature=[tf.TensorSpec(None)])
    for shape in ([3, 5], [2, 3, 4]):
        np.testing.assert_array_equal(graph(tf.ones(shape)), dropout(tf.ones(shape), 0.3, SEED))
