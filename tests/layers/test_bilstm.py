import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.bilstm import BiLstm
from tests.tolerances import assert_close

UNITS, LENGTH, HIDDEN = 4, 5, 3
STATES = np.random.default_rng(1).normal(size=[3, LENGTH, HIDDEN]).astype("float32")
LENGTHS = {"no_padding": None, "padding": [5, 2, 1], "row_of_padding": [0, 3, 5]}


def keras_bilstm(layer):
    """Returns Keras' two LSTMs with the layer's weights."""
    both = []
    for lstm, backwards in ((layer.forward, False), (layer.backward, True)):
        own = keras.layers.LSTM(
            UNITS, return_sequences=True, return_state=True, go_backwards=backwards, use_cudnn=False, dtype="float32"
        )
        own.build([None, None, HIDDEN])
        own.set_weights(lstm.get_weights())
        both.append(own)
    return both


def with_gradients(function, weights, states):
    """Returns a function's outputs, and the gradients of a sum in which every number has its own weight."""
    with tf.GradientTape() as tape:
        tape.watch(states)
        outputs = function(states)
        loss = sum(tf.tensordot(tf.reshape(x, [-1]), tf.range(tf.size(x), dtype=tf.float32), 1) for x in outputs)
    return [*outputs, *tape.gradient(loss, [states, *(weight.value for weight in weights)])]


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("compiled", [False, True])
def test_outputs_and_gradients_equal_those_of_keras(lengths, compiled):
    layer = BiLstm(UNITS, seed=1)
    layer.build([None, None, HIDDEN])
    for weight in (layer.forward.cell.bias, layer.backward.cell.bias):
        weight.assign(np.random.default_rng(2).normal(size=weight.shape))
    forward, backward = keras_bilstm(layer)
    mask = None if lengths is None else tf.sequence_mask(lengths, LENGTH)

    def reference(states):
        left, last, _ = forward(states, mask=mask)
        right, first, _ = backward(states, mask=mask)
        return tf.concat([left, tf.reverse(right, [1])], -1), tf.concat([last, first], -1)

    results = []
    for function, weights in (
        (lambda states: layer(states, mask), layer.weights),
        (reference, [*forward.weights, *backward.weights]),
    ):
        function = tf.function(function) if compiled else function
        results.append(with_gradients(function, weights, tf.constant(STATES)))
    assert_close(*results, num_terms=LENGTH * (HIDDEN + UNITS))


def test_states_are_float32_in_mixed_precision():
    states = tf.cast(tf.cast(STATES, tf.bfloat16), tf.float32)  # exact in bfloat16
    outputs, final = BiLstm(UNITS, seed=1, dtype="mixed_bfloat16")(states)
    assert outputs.dtype == final.dtype == tf.bfloat16
    for found, expected in zip((outputs, final), BiLstm(UNITS, seed=1)(states), strict=True):
        np.testing.assert_array_equal(found, tf.cast(expected, tf.bfloat16))
