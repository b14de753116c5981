import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.tensorflow.gradient_checkpointing import recompute_in_gradient
from keras_bert.layers.tensorflow.packed_texts import PackedTexts
from keras_bert.layers.transformer_block import TransformerBlock
from tests.tolerances import assert_close
from tests.toys import toy_classifier

X = tf.constant(np.random.default_rng(0).normal(size=(2, 5, 8)), tf.float32)
MASK = tf.ones([2, 1, 5], tf.bool)


def run(gradient_checkpointing, compiled=False, packed=False):
    """Returns loss, gradients, and all variables afterwards, of a block that is used twice with much dropout."""
    inputs = tf.reshape(X, [1, 10, 8]) if packed else X
    block = TransformerBlock(2, 16, seed=1, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3)
    block.build((None, None, 8))

    def loss_and_gradients(x):
        mask = PackedTexts(tf.ones([2, 5], tf.int32)) if packed else MASK  # draws a seed for each group
        with tf.GradientTape() as tape:
            tape.watch(x)
            for _ in range(2):
                x = (
                    recompute_in_gradient(block, x, attention_mask=mask)
                    if gradient_checkpointing
                    else block(x, attention_mask=mask, training=True)
                )
            loss = tf.reduce_sum(x**3)
        return loss, tape.gradient(loss, [variable.value for variable in block.trainable_weights])

    loss, gradients = (tf.function(loss_and_gradients) if compiled else loss_and_gradients)(inputs)
    return [np.array(value) for value in (loss, *gradients, *(variable.value for variable in block.variables))]


@pytest.mark.parametrize(("compiled", "packed"), [(False, False), (True, False), (True, True)])
def test_loss_gradients_and_random_numbers_are_the_same(compiled, packed):
    for kept, recomputed in zip(run(False, compiled, packed), run(True, compiled, packed), strict=True):
        np.testing.assert_array_equal(kept, recomputed)


def test_the_forward_pass_runs_twice_only_where_it_is_recomputed():
    calls = []

    class Counted(keras.layers.Layer):
        def call(self, x, training=False):
            calls.append(training)
            return x * 2.0

    layer = Counted()
    layer.build((2, 5, 8))
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = recompute_in_gradient(layer, X)
    assert calls == [True]
    np.testing.assert_array_equal(tape.gradient(y, X), np.full(X.shape, 2.0))
    assert calls == [True, True]


def test_an_encoder_has_the_same_gradients():
    results = []
    for gradient_checkpointing in (False, True):
        arguments = {"gradient_checkpointing": gradient_checkpointing, "num_hidden_layers": 2}
        classifier = toy_classifier(encoder_arguments=arguments)
        ids = classifier.preprocessor(["a good film", "bad"])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(classifier(ids, training=True) ** 2)
        results.append([*map(tf.convert_to_tensor, tape.gradient(loss, classifier.trainable_variables))])
        assert classifier.encoder.get_config()["gradient_checkpointing"] is gradient_checkpointing
    assert_close(*results, num_terms=64)


def test_graphs_do_not_outlive_their_functions():
    block = TransformerBlock(2, 16, seed=1)
    block.build((None, None, 8))

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = recompute_in_gradient(block, x, attention_mask=MASK)
        return tape.gradient(y, x)

    graph = weakref.ref(gradient.get_concrete_function(X).graph)
    assert graph() is not None
    del gradient
    gc.collect()
    assert graph() is None


def test_nan_gradients_are_passed_on():
    layer = keras.layers.Dense(1)
    layer.build((None, 1))

    @tf.function
    def gradient(upstream):
        x = tf.ones([1, 1])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = recompute_in_gradient(layer, x)
        return tape.gradient(y, x, upstream)

    assert np.isnan(gradient(tf.constant([[np.nan]])).numpy()).all()
    assert np.isfinite(gradient(tf.constant([[2.0]])).numpy()).all()
