import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.text_pooling import pool_tokens, scale_to_unit_length
from keras_bert.weights.layout import POOLINGS

TOKENS = np.random.default_rng(0).normal(size=[4, 5, 3]).astype("float32")
LENGTHS = [5, 1, 3, 0]
MASK = np.array([[1] * length + [0] * (5 - length) for length in LENGTHS])


def pooled(tokens, pooling):
    """Pools the tokens of one text by definition."""
    if not len(tokens):
        return np.zeros(tokens.shape[1:])
    weights = np.arange(1, len(tokens) + 1)[:, None]
    by_name = {
        "mean": lambda: tokens.mean(axis=0),
        "cls": lambda: tokens[0],
        "max": lambda: tokens.max(axis=0),
        "weighted": lambda: (weights * tokens).sum(axis=0) / weights.sum(),
    }
    return by_name[pooling]()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_equals_the_definition(pooling):
    expected = [pooled(tokens[:length], pooling) for tokens, length in zip(TOKENS, LENGTHS, strict=True)]
    np.testing.assert_allclose(pool_tokens(TOKENS, MASK, pooling), expected, atol=1e-6)
    whole = [pooled(tokens, pooling) for tokens in TOKENS]
    np.testing.assert_allclose(pool_tokens(TOKENS, None, pooling), whole, atol=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_gradients_of_padding_are_zero_and_finite(pooling):
    tokens = tf.constant(TOKENS)
    with tf.GradientTape() as tape:
        tape.watch(tokens)
        vectors = scale_to_unit_length(pool_tokens(tokens, MASK, pooling))
        total = tf.reduce_sum(vectors**3)
    gradient = keras.ops.convert_to_numpy(tape.gradient(total, tokens))
    assert np.isfinite(gradient).all() and np.abs(gradient[0]).max() > 0
    np.testing.assert_array_equal(gradient[MASK == 0], 0)
