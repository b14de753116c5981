"""Forward and backward pass of one replica's share of a batch; the part of a training step that `fit` and the
`Trainer` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

    A model with `loss_spans_batch` has a loss that compares the examples of a batch, and does not add up. Its
    micro-batches are then computed twice: first their outputs, from which the loss of the whole batch has its gradient,
    then the gradients of the weights from those of the outputs (GradCache, arXiv 2101.06983). The result equals the
    whole batch's, except for dropout.

    Raises:
        ValueError: if such a model is to be compiled by XLA, which needs shapes that do not depend on the texts.
    """

    def __init__(
        self, model: keras.Model, seed: int = 0, gradient_accumulation_steps: int = 1, jit_compile: bool = False
    ):
        self._model = model
        self._accumulation_steps = gradient_accumulation_steps
        self._loss_spans_batch = getattr(model, "loss_spans_batch", False)
        if jit_compile and self._loss_spans_batch:
            raise ValueError(
                f"XLA cannot compile the training of a {type(model).__name__}, which computes texts without their "
                "padding; leave jit_compile out"
            )
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
        micro-batches, the outputs are None, unless the model has `loss_spans_batch`.
        """
        key = self._dropout_seeds.key(step, replica)
        if self._accumulation_steps == 1:
            return self._micro_batch_gradients(batch, divisors, self._dropout_seeds.values(key, 0), loss_scale)
        refuse_windows(batch, "micro-batches")
        if self._loss_spans_batch:
            return self._cached_gradients(batch, divisors, key, loss_scale)

        def part(number: tf.Tensor) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor]]:
            micro_batch = slice_batch(batch, number, self._accumulation_steps)
            seeds = self._dropout_seeds.values(key, number)
            gradients, sums, _ = self._micro_batch_gradients(micro_batch, divisors, seeds, loss_scale)
            return gradients, sums

        return *self._add_micro_batches(part, divisors), None

    def _add_micro_batches(
        self,
        part: Callable[[tf.Tensor], tuple[list[tf.Tensor | None], dict[str, tf.Tensor]]],
        names: Iterable[str] = (),
    ) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor]]:
        """Adds up the gradients, and the sums of these names, that a function returns for each micro-batch."""
        unused: set[int] = set()  # variables that the loss does not depend on: the optimizer must leave them alone

        def add(
            number: tf.Tensor, gradients: list[tf.Tensor], sums: dict[str, tf.Tensor]
        ) -> tuple[tf.Tensor, list[tf.Tensor], dict[str, tf.Tensor]]:
            new_gradients, new_sums = part(number)
            unused.update(index for index, new in enumerate(new_gradients) if new is None)
            gradients = [
                total if new is None else total + new for total, new in zip(gradients, new_gradients, strict=True)
            ]
            return number + 1, gradients, {name: sums[name] + new_sums[name] for name in sums}

        gradients = [tf.zeros(variable.shape, variable.dtype) for variable in self._model.trainable_variables]
        sums = {name: tf.zeros([]) for name in names}
        _, gradients, sums = tf.while_loop(
            lambda number, *_: number < self._accumulation_steps,
            add,
            (tf.constant(0), gradients, sums),
            parallel_iterations=1,  # TensorFlow's default of 10 would hold the activations of ten micro-batches
        )
        return [None if index in unused else gradient for index, gradient in enumerate(gradients)], sums

    def _cached_gradients(
        self, batch: tuple[Any, ...], divisors: dict[str, tf.Tensor], key: tf.Tensor, loss_scale: tf.Tensor
    ) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor], Any]:
        """Computes the gradients of a loss that spans the micro-batches."""
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        steps = self._accumulation_steps
        shape: Any = None  # of the outputs, without the rows, which a TensorArray does not keep

        def outputs_of(number: tf.Tensor) -> tf.Tensor:
            nonlocal shape
            # Dropout is the same both times.
            with self._dropout_seeds.scope(self._dropout_seeds.values(key, number)):
                outputs = self._model(slice_batch(inputs, number, steps), training=True)
            shape = outputs.shape[1:]
            return outputs

        _, parts = tf.while_loop(
            lambda number, _: number < steps,
            lambda number, parts: (number + 1, parts.write(number, outputs_of(number))),
            (tf.constant(0), tf.TensorArray(tf.float32, steps, infer_shape=False)),
            parallel_iterations=1,
        )
        with tf.GradientTape() as tape:
            outputs = tf.ensure_shape(parts.concat(), [None, *shape])
            tape.watch(outputs)
            sums, loss = self._weighted_loss(labels, outputs, sample_weight, divisors, loss_scale)
        output_gradients = tape.gradient(loss, outputs)

        def part(number: tf.Tensor) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor]]:
            with tf.GradientTape() as tape:
                outputs = outputs_of(number)
            upstream = slice_batch(output_gradients, number, steps)
            return _dense(tape.gradient(outputs, self._model.trainable_variables, upstream)), {}

        gradients, _ = self._add_micro_batches(part)
        return gradients, sums, outputs

    def _weighted_loss(
        self, labels: Any, outputs: Any, sample_weight: Any, divisors: dict[str, tf.Tensor], loss_scale: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns the sums of the loss terms, and the loss to differentiate."""
        terms = self._model.loss_terms(labels, outputs, sample_weight)
        sums = {name: loss_sum for name, (loss_sum, _) in terms.items()}
        parts = [tf.math.divide_no_nan(loss_sum, divisors[name]) for name, loss_sum in sums.items()]
        return sums, loss_scale * tf.add_n(parts)

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
                sums, loss = self._weighted_loss(labels, outputs, sample_weight, divisors, loss_scale)
            gradients = tape.gradient(loss, self._model.trainable_variables)
        return _dense(gradients), sums, outputs if self._accumulation_steps == 1 else None


def _dense(gradients: list[Any]) -> list[tf.Tensor | None]:
    """Returns dense gradients, in which the rows of repeated tokens are summed; Keras' own optimizers omit that."""
    return [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]


def refuse_windows(batch: tuple[Any, ...], split_by: str) -> None:
    """Raises if a batch holds texts of several windows, which a split would separate."""
    if isinstance(batch[0], dict) and "window_text_ids" in batch[0]:
        raise ValueError(
            f"a batch of windows cannot be split by {split_by}, which would separate the windows of a text. "
            'Use long_texts="truncate", or one device without gradient accumulation'
        )
