"""Tokenized texts as examples of masked language modelling, with new masks in every epoch."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_bert.data.random_order import random_key
from keras_bert.data.tokenized_examples import TokenizedExamples
from keras_bert.text.masking import TokenMasker, predictions_per_sequence

_MASKS = 2  # purpose of the random numbers, next to those of the order of examples and batches


class MaskedExamples:
    """Masks the tokens of batches in the graph; the mask is a function of seed, epoch and example.

    The labels of `examples`, which have one row each, are next sentence labels. The number of predictions follows from
    `sequence_length`, the maximum length of a row.
    """

    has_windows = False

    def __init__(self, examples: TokenizedExamples, vocabulary: list[str], sequence_length: int, seed: int):
        self._examples = examples
        self._masker = TokenMasker(vocabulary, predictions_per_sequence(sequence_length))
        self._seed = seed
        self._epoch: int | tf.Tensor | tf.Variable = 0
        self.labels = np.zeros([len(examples)]) if examples.labels is None else examples.labels

    def at_epoch(self, epoch: int | tf.Tensor | tf.Variable) -> Self:
        """Returns the same examples with the masks of an epoch; a variable is read for every batch."""
        examples = copy.copy(self)
        examples._epoch = epoch
        return examples

    def __len__(self) -> int:
        """Returns the number of examples."""
        return len(self._examples)

    @property
    def lengths(self) -> np.ndarray:
        """int32 array [examples]: tokens per example."""
        return self._examples.lengths

    def batch(self, indices: tf.Tensor, length_multiple: int = 1) -> Any:
        """Assembles a batch: inputs and labels of `BertPretrainer`."""
        batch = self._examples.batch(indices, length_multiple)
        inputs, *labels = batch if isinstance(batch, tuple) else (batch,)
        epoch_key = random_key(self._seed, _MASKS, tf.cast(self._epoch, tf.int64))
        keys = tf.map_fn(
            lambda index: tf.random.stateless_uniform(
                [], tf.random.fold_in(epoch_key, index), minval=None, maxval=None, dtype=tf.int64
            ),
            tf.cast(indices, tf.int64),
        )
        masked = self._masker(inputs["token_ids"], inputs["padding_mask"], keys)
        inputs = {**inputs, "token_ids": masked["token_ids"], "masked_positions": masked["masked_positions"]}
        targets = {name: masked[name] for name in ("masked_labels", "masked_weights")}
        if labels:
            targets["next_sentence_labels"] = labels[0]
        return inputs, targets
