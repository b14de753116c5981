"""Compares the attention of JAX with the plain one, in the process that tests/models/test_jax.py starts."""

import keras
import numpy as np

from keras_bert.layers.self_attention import SelfAttention
from tests.tolerances import assert_close


def compare_attention():
    """Raises AssertionError unless both give the same outputs and gradients."""
    generator = np.random.default_rng(1)
    lengths = np.array([8, 5, 1])
    keys = np.arange(8) < lengths[:, None]  # [batch, to]
    masks = {
        "padding": keys[:, None],
        "left to right": keys[:, None] & np.tri(8, dtype=bool),
        "packed": np.tile((np.arange(8)[:, None] < 4) == (np.arange(8) < 4), (3, 1, 1)),
    }
    hidden = generator.normal(size=[3, 8, 16]).astype("float32")
    for dtype in ("float32", "bfloat16"):
        layer = SelfAttention(2, initializer_range=0.5, seed=1, dtype=dtype)
        for mask in masks.values():
            expected, _ = layer(hidden, mask, return_attention_scores=True)
            assert_close(layer(hidden, mask), expected, num_terms=64, dtype=dtype)
        assert np.isfinite(np.asarray(layer(hidden, np.zeros([3, 1, 8], bool))).astype("float32")).all()
    layer = SelfAttention(2, attention_probs_dropout_prob=0.5, seed=1)
    assert _count_calls(lambda: layer(hidden, masks["padding"], training=True)) == 0
    assert _count_calls(lambda: layer(hidden, masks["padding"], training=False)) == 1
    _compare_gradients(hidden, masks["left to right"])


def _count_calls(function):
    """Returns how often the function calls `keras.ops.dot_product_attention`."""
    calls, original = [], keras.ops.dot_product_attention
    keras.ops.dot_product_attention = lambda *arguments, **options: calls.append(1) or original(*arguments, **options)
    try:
        function()
    finally:
        keras.ops.dot_product_attention = original
    return len(calls)


def _compare_gradients(hidden, mask):
    import jax

    layer = SelfAttention(2, attention_probs_dropout_prob=0.0, initializer_range=0.5, seed=1)
    layer(hidden, mask)
    weights = [variable.value for variable in layer.trainable_variables]

    def gradients(**options):
        def loss(weights):
            output, _ = layer.stateless_call(weights, [], hidden, mask, training=True, **options)
            return ((output[0] if options else output) ** 3).sum()

        return jax.grad(loss)(weights)

    for fused, plain in zip(gradients(), gradients(return_attention_scores=True), strict=True):
        assert_close(fused / np.abs(plain).max(), plain / np.abs(plain).max(), num_terms=64)
