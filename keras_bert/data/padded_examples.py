"""Ids that a caller holds in memory as padded arrays, with the interface of `TokenizedExamples`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

# Inputs with one value per token, which are trimmed to the longest row of a batch.
_PER_TOKEN = ("token_ids", "segment_ids", "padding_mask", "position_ids", "sequence_ids")


class PaddedExamples:
    """Examples as padded arrays of ids, from which batches are assembled in the graph.

    `inputs` are arrays [examples, ...] by name, `token_ids` [examples, (choices,) length] among them; `labels` are an
    array or a dict of arrays [examples, ...], with `has_token_labels` [examples, length]; `sample_weight` is a float
    array [examples].
    """

    has_windows = False

    def __init__(
        self,
        inputs: Mapping[str, np.ndarray],
        labels: Any = None,
        sample_weight: np.ndarray | None = None,
        has_token_labels: bool = False,
    ):
        self._inputs = dict(inputs)
        self._has_token_labels = has_token_labels
        self._shape = inputs["token_ids"].shape
        self.num_choices = self._shape[1] if len(self._shape) == 3 else None
        mask = inputs.get("padding_mask")
        self.lengths = np.full(len(self), self._shape[-1], "int32")
        if mask is not None:
            positions = np.arange(1, self._shape[-1] + 1, dtype="int32") * (mask != 0)
            self.lengths = positions.reshape(len(self), -1).max(axis=1, initial=1)
        self.set_labels(labels, sample_weight)

    def set_labels(self, labels: Any, sample_weight: np.ndarray | None = None) -> None:
        """Sets labels, and how much each example counts in the loss."""
        self.labels = labels = labels if labels is None or isinstance(labels, Mapping) else np.asarray(labels)
        parts = (self._inputs, labels, None if sample_weight is None else np.asarray(sample_weight, "float32"))
        self._tensors = tf.nest.map_structure(tf.constant, tuple(part for part in parts if part is not None))

    def __len__(self) -> int:
        """Returns the number of examples."""
        return self._shape[0]

    def all_labels(self) -> tuple[Any, tf.Tensor | None]:
        """Returns the labels of all examples, and the sample weights (or None)."""
        _, labels, *weights = self._tensors
        return labels, weights[0] if weights else None

    def batch(self, indices: tf.Tensor, length_multiple: int = 1) -> Any:
        """Assembles a batch, as `TokenizedExamples.batch` does."""
        longest = tf.reduce_max(tf.gather(tf.constant(self.lengths), indices))
        length = tf.minimum(-(-tf.maximum(longest, 1) // length_multiple) * length_multiple, self._shape[-1])
        inputs, *rest = tf.nest.map_structure(lambda values: tf.gather(values, indices), self._tensors)
        inputs = {name: values[..., :length] if name in _PER_TOKEN else values for name, values in inputs.items()}
        if rest and self._has_token_labels:
            rest[0] = rest[0][..., :length]
        return (inputs, *rest) if rest else inputs
