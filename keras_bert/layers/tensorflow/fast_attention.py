"""The core of self-attention, from the projected query, key and value to the context."""

import functools
from typing import Any

import tensorflow as tf

from keras_bert.layers.tensorflow.custom_gradients import custom_gradient, first_order_only
from keras_bert.layers.tensorflow.fast_dropout import keep_mask


def attend(
    projected: tf.Tensor,
    masked_scores: tf.Tensor,
    num_attention_heads: int,
    dropout_rate: float,
    dropout_seed: tf.Tensor | None,
) -> tf.Tensor:
    """Returns the context [batch, length, hidden] of `projected` [batch, length, 3 * hidden].

    `projected` is query, key and value, each head by head. `masked_scores` [batch, 1, 1 or from, to] of the same dtype
    is 0 where a key may be attended to, else a large negative number. `dropout_seed` is an integer tensor [2].

    Scores, softmax and sums are computed in float32 and rounded to the compute dtype in between. Of the tensors that
    grow with the square of the length, only the probabilities before and after dropout are kept for the gradient. The
    sum over a row in the gradient of the softmax is taken over the context, which is shorter and gives the same
    (arXiv 2205.14135, appendix B.2).

    >>> projected = tf.reshape(tf.range(12.0), [1, 2, 6])
    >>> attend(projected, tf.constant([[[[0.0, -10000.0]]]]), 1, 0.0, None).numpy().tolist()
    [[[4.0, 5.0], [4.0, 5.0]]]
    """
    batch, length, width = tf.unstack(tf.shape(projected))
    heads, head_size, dtype = num_attention_heads, projected.shape[-1] // (3 * num_attention_heads), projected.dtype
    scale, gain = head_size**-0.5, 1.0 / (1.0 - dropout_rate)
    keep = keep_mask(tf.stack([batch, heads, length, length]), dropout_rate, dropout_seed) if dropout_rate else None

    @custom_gradient
    def compute_context(projected: tf.Tensor) -> tuple[tf.Tensor, Any]:
        parts = tf.transpose(tf.reshape(projected, [batch, length, 3, heads, head_size]), [2, 0, 3, 1, 4])
        query, key, value = tf.unstack(parts, 3)  # each [batch, heads, length, head size]
        # TensorFlow fuses the three operations into one, which rounds once.
        scores = tf.matmul(query, key, transpose_b=True) * tf.cast(scale, dtype) + masked_scores
        probabilities = _softmax(scores)  # [batch, heads, from, to]
        dropped = probabilities if keep is None else tf.where(keep, probabilities, tf.zeros([], dtype))
        context = _times(tf.matmul(dropped, value), gain)  # [batch, heads, from, head size]

        def gradient(d_context: tf.Tensor) -> tf.Tensor:
            d_context = tf.transpose(tf.reshape(d_context, [batch, length, heads, head_size]), [0, 2, 1, 3])
            exact = tf.cast(d_context, tf.float32)
            row_sums = tf.reduce_sum(exact * tf.cast(context, tf.float32), axis=-1, keepdims=True)
            # The scale of the scores is applied here, where it is cheapest.
            d_dropped = tf.matmul(tf.cast(exact * (gain * scale), dtype), value, transpose_b=True)
            d_scores = dropped * d_dropped - probabilities * tf.cast(row_sums * scale, dtype)
            d_parts = [
                tf.matmul(d_scores, key),
                tf.matmul(d_scores, query, transpose_a=True),
                tf.matmul(dropped, _times(d_context, gain), transpose_a=True),
            ]
            d_projected = tf.reshape(tf.transpose(tf.stack(d_parts), [1, 3, 0, 2, 4]), [batch, length, width])
            return first_order_only(d_projected)

        return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [batch, length, heads * head_size]), gradient

    return compute_context(projected)


def _softmax(scores: tf.Tensor) -> tf.Tensor:
    """Computes the softmax in float32, and returns it in the dtype of the scores."""
    if _softmax_is_exact(scores.dtype):
        return tf.nn.softmax(scores)
    return tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32)), scores.dtype)


@functools.cache
def _softmax_is_exact(dtype: tf.DType) -> bool:
    """Returns whether TensorFlow's softmax computes in float32 and rounds only the result.

    In bfloat16, oneDNN's does, which saves two passes over the scores. TensorFlow's own, which runs without oneDNN, and
    that for float16 are off by several times the rounding error.
    """
    if dtype != tf.bfloat16:
        return dtype != tf.float16
    with tf.init_scope():  # eagerly, even while a graph is being built
        scores = tf.cast(tf.linspace(0.0, 8.0, 128)[None], dtype)
        error = tf.cast(tf.nn.softmax(scores), tf.float32) / tf.nn.softmax(tf.cast(scores, tf.float32)) - 1.0
        return bool(tf.reduce_max(tf.abs(error)) < 2.0**-8)  # half a unit in the last place of bfloat16


def _times(x: tf.Tensor, factor: float) -> tf.Tensor:
    """Multiplies by a factor that is not rounded to the dtype of `x`."""
    return x if factor == 1.0 else tf.cast(tf.cast(x, tf.float32) * factor, x.dtype)
