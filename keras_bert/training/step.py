"""The training step: gradients of micro-batches on every replica, summed, then the optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_bert.training.batch_slices import slice_batch
from keras_bert.training.loss import sum_over_replicas
from keras_bert.training.loss_scale import DynamicLossScale
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.replica_gradients import ReplicaGradients, refuse_windows
from keras_bert.training.strategy import get_num_local_replicas, get_num_workers

_COUNTS = ("examples", "tokens", "padded_tokens")


class TrainStep:
    """Trains a model with loss terms, several batches per call, on the replicas of a strategy.

    A batch is split across the replicas, and a replica's share into micro-batches that run one after another, so that a
    large batch fits into memory. Every loss term is divided by its weight over the global batch, which depends on the
    labels alone: neither the number of micro-batches nor that of replicas changes the result, however unevenly a batch
    is split. Dropout is a function of (seed, step, micro-batch, replica, layer). Operations on whole micro-batches,
    such as batch normalization, see each by itself; losses that layers add (`model.losses`) are not included.

    Differs from BERT: the original averages the means of the shards, in which a shard with few labels counts as much as
    one with many.

    Args:
        model: built Keras model with `loss_terms(labels, outputs, sample_weight)` and `loss_weights(labels,
            sample_weight)`, such as `BertClassifier`; created in the strategy's scope.
        optimizer: a `BertAdamW`, created in the strategy's scope.
        strategy: None means the current strategy, one device unless in a scope.
        gradient_accumulation_steps: number of micro-batches per replica.
        seed: seed of the dropout.
        jit_compile: whether XLA compiles the forward and backward pass, once per shape of a micro-batch.
        loss_scale: None; "dynamic" multiplies the loss by a factor that keeps float16 gradients in range, and skips
            updates whose gradient overflows; "auto" is "dynamic" if the model computes in float16.
        mean_loss_weights: what each loss term is divided by instead of its weight over the batch: see
            `keras_bert.training.loss.mean_loss_weights`.

    Raises:
        TypeError: if the model has no loss terms, or the optimizer is not a `BertAdamW`.
        ValueError: if there is no micro-batch, nothing to train, the model was created outside the strategy, or a mean
            weight is not positive.

    Example:

    >>> class Line(keras.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.dense = keras.layers.Dense(1)
    ...         self.dense.build((None, 1))
    ...
    ...     def call(self, inputs, training=False):
    ...         return self.dense(inputs)
    ...
    ...     def loss_terms(self, labels, outputs, sample_weight=None):
    ...         return {"loss": (tf.reduce_sum((outputs - labels) ** 2), tf.cast(tf.size(labels), tf.float32))}
    ...
    ...     def loss_weights(self, labels, sample_weight=None):
    ...         return {"loss": tf.cast(tf.size(labels), tf.float32)}
    >>> step = TrainStep(Line(), BertAdamW(0.1), gradient_accumulation_steps=2)
    >>> batches = tf.data.Dataset.from_tensors((tf.ones([4, 1]), tf.ones([4, 1]))).repeat()
    >>> int(step.run(iter(batches), first_step=0, steps=3)["examples"])
    12
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: BertAdamW,
        strategy: tf.distribute.Strategy | None = None,
        gradient_accumulation_steps: int = 1,
        seed: int = 0,
        jit_compile: bool = False,
        loss_scale: str | None = "auto",
        mean_loss_weights: Mapping[str, float] | None = None,
    ):
        if mean_loss_weights is not None and min(mean_loss_weights.values()) <= 0:
            raise ValueError(f"mean_loss_weights must be positive, got {mean_loss_weights}")
        self._mean_loss_weights = mean_loss_weights
        self.strategy = tf.distribute.get_strategy() if strategy is None else strategy
        _check(model, optimizer, self.strategy, gradient_accumulation_steps)
        self.model = model
        self.optimizer = optimizer
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.seed = seed
        self.jit_compile = jit_compile
        if loss_scale == "auto":
            loss_scale = "dynamic" if keras.backend.standardize_dtype(model.compute_dtype) == "float16" else None
        self.loss_scale = DynamicLossScale() if loss_scale == "dynamic" else None
        self._workers = get_num_workers(self.strategy)
        self._gradients = ReplicaGradients(model, seed, gradient_accumulation_steps, jit_compile)
        # Without AutoGraph, which would convert every function that is called and delay the first step.
        self._run = tf.function(self._run_updates, reduce_retracing=True, autograph=False)
        with self.strategy.scope():
            optimizer.build(model.trainable_variables)

    @property
    def variables(self) -> list[tf.Variable]:
        """State that a checkpoint needs besides model and optimizer."""
        return [] if self.loss_scale is None else self.loss_scale.variables

    def run(self, iterator: Iterator[Any], first_step: int, steps: int) -> dict[str, Any]:
        """Runs several training steps.

        Stops early at the end of the data, and before a step whose loss or gradient is not finite. (With a loss scale
        such a step is skipped and the factor lowered, as long as that can help.)

        Args:
            iterator: iterator of a dataset of `(inputs, labels)` or `(inputs, labels, sample_weight)`. Each worker has
                its own, with its share of every batch; if some workers' data end earlier, the others continue.
            first_step: number of the first step in the whole training, from 0.
            steps: number of training steps.

        Returns:
            Scalar tensors, summed over steps and replicas: `examples`; `tokens` and `padded_tokens` (without and with
            padding; 0 if the inputs have no padding mask); `steps`, the number of steps; `skipped`, how many of them
            were skipped; `loss_terms`, each term's means over the batches that were not. Of the last batch:
            `last_loss_terms`; `gradient_norm`, before clipping; `failed`, whether it is not finite; `bad_variable`, the
            index of a trainable variable whose gradient is not, or -1.
        """
        return self._run(iterator, tf.constant(first_step, tf.int64), tf.constant(steps, tf.int64))

    def _run_updates(self, iterator: Any, first_step: tf.Tensor, steps: tf.Tensor) -> dict[str, Any]:
        def next_update(_: Any, done: tf.Tensor, totals: Any) -> Any:
            part = iterator.get_next_as_optional()

            def update() -> Any:
                batch = self._share_or_empty(part, iterator.element_spec)
                new_totals = self._add(totals, self._update(batch, first_step + done))
                is_made = ~new_totals["failed"]
                return is_made, done + tf.cast(is_made, tf.int64), new_totals

            return tf.cond(self._any_worker(part.has_value()), update, lambda: (tf.constant(False), done, totals))

        _, done, totals = tf.while_loop(
            lambda continues, done, _: continues & (done < steps),
            next_update,
            (tf.constant(True), tf.zeros([], tf.int64), self._empty_totals(iterator.element_spec)),
        )
        return {**totals, "steps": done}

    def _any_worker(self, has_share: tf.Tensor) -> tf.Tensor:
        """Whether any worker has a share of the next batch."""
        if self._workers == 1:
            return has_share
        return self._one(self.strategy.run(lambda: sum_over_replicas(tf.cast(has_share, tf.float32)))) > 0

    def _share_or_empty(self, part: Any, batch_spec: Any) -> Any:
        """Returns this worker's share of a batch, which is empty if only other workers have one."""
        if self._workers == 1:
            return part.get_value()  # with its static shapes
        return tf.cond(part.has_value(), part.get_value, lambda: _empty_batch(batch_spec))

    def _empty_totals(self, batch_spec: Any) -> dict[str, Any]:
        """Returns the totals before the first step, with the loss terms that tracing the weights finds."""
        _, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(batch_spec)
        weights = tf.function(self.model.loss_weights, autograph=False).get_concrete_function(labels, sample_weight)
        terms = {name: tf.zeros([]) for name in weights.structured_outputs}
        return {
            **{name: tf.zeros([], tf.int64) for name in (*_COUNTS, "skipped")},
            "loss_terms": terms,
            "last_loss_terms": terms,
            "gradient_norm": tf.zeros([]),
            "failed": tf.constant(False),
            "bad_variable": tf.constant(-1),
        }

    def _add(self, totals: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        """Adds a step to the totals; a skipped one does not count for the loss."""
        is_skipped = (new["skipped"] > 0) | new["failed"]
        return {
            **{name: totals[name] + tf.cast(new[name], tf.int64) for name in (*_COUNTS, "skipped")},
            "loss_terms": {
                name: total + tf.where(is_skipped, 0.0, new["loss_terms"][name])
                for name, total in totals["loss_terms"].items()
            },
            "last_loss_terms": new["loss_terms"],
            **{name: new[name] for name in ("gradient_norm", "failed", "bad_variable")},
        }

    def _update(self, batch: Any, step: tf.Tensor) -> dict[str, Any]:
        factor = tf.ones([]) if self.loss_scale is None else self.loss_scale.factor.read_value()
        report = self.strategy.run(self._update_replica, args=(batch, step, factor))
        report = tf.nest.map_structure(self._one, report)
        is_finite, can_shrink = report.pop("is_finite"), tf.constant(False)
        if self.loss_scale is not None:
            can_shrink = factor > 1.0  # if 1 does not help either, the overflow is not one of float16
            self.loss_scale.update(is_finite)
        return {**report, "skipped": tf.cast(~is_finite & can_shrink, tf.int64), "failed": ~is_finite & ~can_shrink}

    def _one(self, value: Any) -> Any:
        """Returns the value of one replica; it is the same on all."""
        return self.strategy.experimental_local_results(value)[0]

    def _update_replica(self, batch: Any, step: tf.Tensor, factor: tf.Tensor) -> dict[str, Any]:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        local_replicas = get_num_local_replicas(self.strategy)
        if local_replicas > 1:
            refuse_windows(batch, f"{local_replicas} replicas")
            batch = slice_batch(batch, replica % local_replicas, local_replicas)
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        weights = self._divisors(labels, sample_weight)
        gradients, sums, _ = self._gradients(batch, weights, step, replica, factor)

        sums = dict(zip(sums, tf.unstack(sum_over_replicas(tf.stack(list(sums.values())))), strict=True))
        terms = {name: tf.math.divide_no_nan(sums[name], weights[name]) for name in sums}
        counts = sum_over_replicas(_counts(inputs, labels))
        applied = self.optimizer.apply_if_finite(
            gradients, self.model.trainable_variables, loss=tf.add_n(list(terms.values())), loss_scale=factor
        )
        return {
            "loss_terms": terms,
            **dict(zip(_COUNTS, tf.unstack(counts), strict=True)),
            "gradient_norm": applied["norm"],
            "is_finite": applied["is_finite"],
            "bad_variable": self._bad_variable(gradients, applied["squared_norms"]),
        }

    def _divisors(self, labels: Any, sample_weight: Any) -> dict[str, tf.Tensor]:
        """Returns the divisors of the loss terms."""
        if self._mean_loss_weights is not None:
            return {name: tf.constant(weight, tf.float32) for name, weight in self._mean_loss_weights.items()}
        return {
            name: sum_over_replicas(weight) for name, weight in self.model.loss_weights(labels, sample_weight).items()
        }

    def _bad_variable(self, gradients: list[Any], squared_norms: tf.Tensor) -> tf.Tensor:
        """Returns the index of the first trainable variable whose gradient is not finite, or -1."""
        numbers = tf.constant([number for number, gradient in enumerate(gradients) if gradient is not None])
        is_bad = ~tf.math.is_finite(squared_norms)
        return tf.where(tf.reduce_any(is_bad), numbers[tf.argmax(tf.cast(is_bad, tf.int32))], -1)


def _check(model: Any, optimizer: Any, strategy: tf.distribute.Strategy, gradient_accumulation_steps: int) -> None:
    missing = [name for name in ("loss_terms", "loss_weights") if not callable(getattr(model, name, None))]
    if missing:
        raise TypeError(f"{type(model).__name__} cannot be trained: it has no method {' and no '.join(missing)}")
    if not isinstance(optimizer, BertAdamW):
        raise TypeError(
            f"the optimizer must be a BertAdamW, which sums gradients over replicas before it clips them; got "
            f"{type(optimizer).__name__}. With other optimizers use Keras' `fit`"
        )
    if gradient_accumulation_steps < 1:
        raise ValueError(f"gradient_accumulation_steps must be at least 1, got {gradient_accumulation_steps}")
    if not model.trainable_variables:
        raise ValueError(f"{type(model).__name__} has no trainable variables; is all of it frozen?")
    if not all(strategy.extended.variable_created_in_scope(variable.value) for variable in model.trainable_variables):
        raise ValueError(
            f"{type(model).__name__} was created outside the strategy that is to train it; create model and "
            "optimizer inside strategy.scope()"
        )


def _counts(inputs: Any, labels: Any) -> tf.Tensor:
    """Returns float32 [3]: examples, tokens without padding, and tokens with padding."""
    padding_mask = inputs.get("padding_mask") if isinstance(inputs, dict) else None
    tokens, padded_tokens, padding_rows = 0, 0, 0
    if padding_mask is not None:
        tokens, padded_tokens = tf.math.count_nonzero(padding_mask, dtype=tf.int32), tf.size(padding_mask)
        axes = list(range(1, len(padding_mask.shape)))  # a row may have several choices or texts
        padding_rows = tf.reduce_sum(tf.cast(~tf.reduce_any(padding_mask != 0, axis=axes), tf.int32))
    rows = tf.shape(tf.nest.flatten(labels)[0])[0]
    return tf.cast(tf.stack([rows - padding_rows, tokens, padded_tokens]), tf.float32)


def _empty_batch(spec: Any) -> Any:
    """Returns a batch without rows or, with a static shape and weights, rows of weight 0; other unknown sizes are 1."""
    has_weights = keras.utils.unpack_x_y_sample_weight(spec)[2] is not None

    def zeros(part: Any) -> tf.Tensor:
        rows = part.shape[0] if has_weights else None
        return tf.zeros([rows or 0, *(size or 1 for size in part.shape[1:])], part.dtype)

    return tf.nest.map_structure(zeros, spec)
