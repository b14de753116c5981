"""Forward and backward pass of one replica's share of a batch; the part of a training step that `fit` and the
`Trainer` share."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from keras_bert.training.batch_slices import slice_batch
from keras_bert.training.dropout_seeds import DropoutSeeds


class ReplicaGradients:
    """Computes the gradients of one replica's share of a batch.

    Each loss term is a sum that is divided by a number known beforehand, so gradients and losses of micro-batches and
    replicas simply add up. Dropout is a function of (seed, step, micro-batch, replica, layer). The built model has a
    method `loss_terms(labels, outputs, sample_weight)`.
    """

    def __init__(
        self, model: keras.Model, seed: int = 0, gradient_accumulation_steps: int = 1, jit_compile: bool = False
    ):
        self._model = model
        self._accumulation_steps = gradient_accumulation_steps
        self._dropout_seeds = DropoutSeeds(model, seed)
        # Seeds are drawn outside of the compiled function: XLA would draw others.
        self._micro_batch_gradients = (
            tf.function(self._gradients, jit_compile=True, autograph=False) if jit_compile else self._gradients
        )

    def __call__(
        self,
        batch: tuple[Any, ...],
        divisors: dict[str, tf.Tensor],
        step: tf.Tensor,
        replica: tf.Tensor,
        loss_scale: tf.Tensor,
    ) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor], Any]:
        """Returns dense gradients, the sums of the loss terms, and the model's outputs.

        The batch is this replica's; `divisors` are what the sums of the loss terms are divided by, and `step` and
        `replica` are integer scalars. A variable that the loss does not depend on has the gradient None. With several
        micro-batches, the outputs are None.
        """
        key = self._dropout_seeds.key(step, replica)
        if self._accumulation_steps == 1:
            return self._micro_batch_gradients(batch, divisors, self._dropout_seeds.values(key, 0), loss_scale)
        refuse_windows(batch, "micro-batches")
        unused: set[int] = set()  # variables that the loss does not depend on: the optimizer must leave them alone

        def add_micro_batch(
            number: tf.Tensor, gradients: list[tf.Tensor], sums: dict[str, tf.Tensor]
        ) -> tuple[tf.Tensor, list[tf.Tensor], dict[str, tf.Tensor]]:
            part = slice_batch(batch, number, self._accumulation_steps)
            seeds = self._dropout_seeds.values(key, number)
            new_gradients, new_sums, _ = self._micro_batch_gradients(part, divisors, seeds, loss_scale)
            unused.update(index for index, new in enumerate(new_gradients) if new is None)
            gradients = [
                total if new is None else total + new for total, new in zip(gradients, new_gradients, strict=True)
            ]
            return number + 1, gradients, {name: sums[name] + new_sums[name] for name in sums}

        gradients = [tf.zeros(variable.shape, variable.dtype) for variable in self._model.trainable_variables]
        sums = {name: tf.zeros_like(divisor) for name, divisor in divisors.items()}
        _, gradients, sums = tf.while_loop(
            lambda number, *_: number < self._accumulation_steps, add_micro_batch, (tf.constant(0), gradients, sums)
        )
        return [None if index in unused else gradient for index, gradient in enumerate(gradients)], sums, None

    def _gradients(
        self,
        batch: tuple[Any, ...],
        divisors: dict[str, tf.Tensor],
        dropout_seeds: list[tf.Tensor],
        loss_scale: tf.Tensor,
    ) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor], Any]:
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        with self._dropout_seeds.scope(dropout_seeds):
            with tf.GradientTape() as tape:
                outputs = self._model(inputs, training=True)
                terms = self._model.loss_terms(labels, outputs, sample_weight)
                sums = {name: loss_sum for name, (loss_sum, _) in terms.items()}
                loss = loss_scale * tf.add_n(
                    [tf.math.divide_no_nan(loss_sum, divisors[name]) for name, loss_sum in sums.items()]
                )
            gradients = tape.gradient(loss, self._model.trainable_variables)
        # Dense, so that the rows of repeated tokens are summed, which Keras' own optimizers omit.
        gradients = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
        return gradients, sums, outputs if self._accumulation_steps == 1 else None


def refuse_windows(batch: tuple[Any, ...], split_by: str) -> None:
    """Raises if a batch holds texts of several windows, which a split would separate."""
    if isinstance(batch[0], dict) and "window_text_ids" in batch[0]:
        raise ValueError(
            f"a batch of windows cannot be split by {split_by}, which would separate the windows of a text. "
            'Use long_texts="truncate", or one device without gradient accumulation'
        )
