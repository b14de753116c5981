import numpy as np
import tensorflow as tf

from keras_bert.layers.pooler import gather_positions


def test_a_position_gathered_twice_counts_twice():
    hidden = tf.Variable(np.arange(24.0).reshape([2, 3, 4]))
    with tf.GradientTape() as tape:
        chosen = gather_positions(hidden, tf.constant([[2, 2], [0, 1]]))
    np.testing.assert_array_equal(chosen, hidden.numpy()[[[0, 0], [1, 1]], [[2, 2], [0, 1]]])
    gradient = np.asarray(tf.convert_to_tensor(tape.gradient(chosen, hidden)))
    np.testing.assert_array_equal(gradient[:, :, 0], [[0, 0, 2], [1, 1, 0]])
