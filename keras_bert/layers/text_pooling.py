"""Vectors of texts from those of their tokens."""

from __future__ import annotations

import numpy as np
from keras import ops

from keras_bert.typing import Tensor

_MIN_NORM = 1e-12  # divisor of a zero vector, as in sentence-transformers


def pool_tokens(tokens: Tensor, padding_mask: Tensor | None, pooling: str) -> Tensor:
    """Returns one vector per row, float [batch, size], of vectors of tokens [batch, length, size].

    "mean" and "max" are over all tokens except padding, including [CLS] and [SEP] (arXiv 1908.10084, section 3);
    "weighted" is a mean in which the nth token has the weight n (arXiv 2202.08904); "cls" is the vector of [CLS]. A row
    of padding only is 0.

    >>> pool_tokens(np.array([[[1.0], [4.0], [9.0]]]), np.array([[1, 1, 0]]), "weighted").numpy().tolist()
    [[3.0]]
    """
    if padding_mask is None:
        padding_mask = ops.ones(ops.shape(tokens)[:2])
    is_token = ops.expand_dims(ops.cast(padding_mask, tokens.dtype), -1)
    if pooling == "cls":
        return tokens[:, 0] * is_token[:, 0]
    if pooling == "max":
        highest = ops.max(ops.where(is_token > 0, tokens, -np.inf), axis=1)
        return ops.where(ops.any(is_token > 0, axis=1), highest, 0.0)
    weights = is_token * ops.cumsum(is_token, axis=1) if pooling == "weighted" else is_token
    return ops.sum(tokens * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)


def scale_to_unit_length(vectors: Tensor) -> Tensor:
    """Divides vectors [..., size] by their lengths.

    >>> scale_to_unit_length(np.array([[3.0, 4.0], [0.0, 0.0]])).numpy().round(3).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    # The maximum is inside the root, whose gradient at 0 would be infinite.
    norm = ops.sqrt(ops.maximum(ops.sum(ops.square(vectors), axis=-1, keepdims=True), _MIN_NORM**2))
    return vectors / norm
