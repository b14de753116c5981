"""Vectors of selected tokens of a row, and the pooler."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.dense import Dense
from keras_bert.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class Pooler(Dense):
    """A dense layer with tanh on one token of each row (paper, section 3; google-research/bert, modeling.py).

    Takes the sequence output [batch, length, hidden] and `positions` [batch]; without them, the first token, [CLS], is
    used. Returns float [batch, units].
    """

    def __init__(
        self,
        units: int,
        activation: str = "tanh",
        initializer_range: float = 0.02,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, activation, initializer_range, seed, **kwargs)

    def call(  # type: ignore[override]  # unlike a dense layer, it selects tokens
        self, sequence_output: Tensor, positions: Tensor | None = None, training: bool = False
    ) -> Tensor:
        """Returns the pooled vector of each row."""
        if positions is None:
            token = sequence_output[:, 0]
        else:
            token = gather_positions(sequence_output, positions[:, None])[:, 0]
        return super().call(token, training=training)

    def compute_output_shape(self, input_shape: Sequence[int | None], *other_shapes: Any) -> tuple[int | None, ...]:
        """Returns [batch, units]."""
        return (input_shape[0], self.units)


def gather_positions(hidden: Tensor, positions: Tensor) -> Tensor:
    """Returns the vectors [batch, number, size] at `positions` [batch, number] of `hidden` [batch, length, size]."""
    batch, length, size = ops.shape(hidden)
    # One gather of flat rows: its gradient is one scatter-add, and a position given twice counts twice.
    rows = ops.cast(positions, "int32") + length * ops.arange(batch, dtype="int32")[:, None]
    flat = ops.take(ops.reshape(hidden, (-1, size)), ops.reshape(rows, (-1,)), axis=0)
    return ops.reshape(flat, (batch, ops.shape(positions)[1], size))


def last_positions(padding_mask: Tensor) -> Tensor:
    """Returns the position of the last token of each row, int32 [batch]; 0 if a row is all padding.

    With left-to-right attention, this token sees the whole input (Radford et al. 2018, "Improving Language
    Understanding by Generative Pre-Training", section 3.2).

    >>> last_positions(np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]])).numpy().tolist()
    [1, 2, 0]
    """
    is_token = ops.cast(ops.cast(padding_mask, "bool"), "int32")
    return ops.max(is_token * ops.arange(ops.shape(padding_mask)[1], dtype="int32"), axis=1)
