"""Makes Keras' own `fit` train a head as the `Trainer` does, with the same batches and the same step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_bert.data.batching import BatchPlan, Examples, epoch_batches
from keras_bert.training.batch_slices import slice_batch
from keras_bert.training.loss import sum_over_replicas
from keras_bert.training.replica_gradients import ReplicaGradients
from keras_bert.training.strategy import get_num_local_replicas, get_num_workers, needs_static_shapes


class FitStep:
    """The training step of a compiled head, for Keras' train function.

    Forward and backward pass are the same as in `TrainStep`; any Keras optimizer can apply the gradients. It must be
    built, and the step be made in the scope of the head's strategy. The dropout depends on the seed and the optimizer's
    iterations.
    """

    def __init__(self, head: keras.Model, seed: int, jit_compile: bool, gradient_accumulation_steps: int = 1):
        self._head = head
        self._gradients = ReplicaGradients(head, seed, gradient_accumulation_steps, jit_compile)
        # Variables, as the compiled step is kept from one `fit` to the next. 0: each batch's own weight.
        self._mean_weights = {name: tf.Variable(0.0, trainable=False) for name in head.loss_names}

    def set_mean_loss_weights(self, mean_weights: Mapping[str, float] | None) -> None:
        """Sets what loss terms are divided by (see `keras_bert.training.loss.mean_loss_weights`); None for each batch's
        own weight."""
        for name, variable in self._mean_weights.items():
            variable.assign((mean_weights or {}).get(name, 0.0))

    def train(self, batch: tuple[Any, ...]) -> dict[str, Any]:
        """Updates the weights on this replica's share of a batch, and returns Keras' logs."""
        head, optimizer = self._head, self._head.optimizer
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        weights = {name: sum_over_replicas(value) for name, value in head.loss_weights(labels, sample_weight).items()}
        divisors = {
            name: tf.where(self._mean_weights[name] > 0, self._mean_weights[name], weight)
            for name, weight in weights.items()
        }
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        loss_scale = tf.convert_to_tensor(optimizer.scale_loss(tf.ones([])))
        step = tf.convert_to_tensor(optimizer.iterations)
        gradients, sums, outputs = self._gradients(batch, divisors, step, replica, loss_scale)
        optimizer.apply(gradients, head.trainable_variables)
        _track_loss(head, sums, weights, labels)
        return head.compute_metrics(inputs, labels, outputs, sample_weight)

    def evaluate(self, batch: tuple[Any, ...]) -> dict[str, Any]:
        """Adds this replica's share of a batch to loss and metrics, and returns Keras' logs."""
        head = self._head
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        outputs = head(inputs, training=False)
        terms = head.loss_terms(labels, outputs, sample_weight)
        weights = {name: sum_over_replicas(weight) for name, (_, weight) in terms.items()}
        _track_loss(head, {name: loss_sum for name, (loss_sum, _) in terms.items()}, weights, labels)
        return head.compute_metrics(inputs, labels, outputs, sample_weight)


def _track_loss(head: keras.Model, sums: dict[str, tf.Tensor], weights: dict[str, tf.Tensor], labels: Any) -> None:
    """Adds a batch to Keras' mean of the loss: weighted by its examples' weights, or with several terms by its rows."""
    totals = sum_over_replicas(tf.stack([sums[name] for name in weights]))
    divisors = tf.stack(list(weights.values()))
    weight = divisors[0]
    if len(weights) > 1:
        weight = sum_over_replicas(tf.cast(tf.shape(tf.nest.flatten(labels)[0])[0], tf.float32))
    tracker = next(metric for metric in head.metrics if metric.name == "loss")
    num_replicas = tf.distribute.get_replica_context().num_replicas_in_sync  # which Keras adds up
    tracker.update_state(tf.reduce_sum(tf.math.divide_no_nan(totals, divisors)), sample_weight=weight / num_replicas)


class EpochCallback(keras.callbacks.Callback):
    """Callback that passes the epoch to the batches, so that their order is a function of seed and epoch.

    `first_epoch` is the data's epoch in epoch 0 of this `fit`.
    """

    def __init__(self, first_epoch: int):
        super().__init__()
        self._first_epoch = first_epoch
        with tf.init_scope():
            self.epoch = tf.Variable(first_epoch, dtype=tf.int64, trainable=False)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Sets the data's epoch before the epoch's iterator is made."""
        self.epoch.assign(self._first_epoch + epoch)


def training_dataset(
    examples: Examples, plan: BatchPlan, epoch: tf.Variable | int, strategy: tf.distribute.Strategy
) -> tuple[tf.data.Dataset, Any]:
    """Returns an epoch's batches for Keras, with each replica's share as the `Trainer` splits them, and their spec."""
    num_replicas = get_num_local_replicas(strategy)
    is_static = needs_static_shapes(strategy)
    batches = epoch_batches(examples, plan, epoch, num_replicas if is_static else None)
    if num_replicas == 1:
        return batches, batches.element_spec

    replicas = tf.data.Dataset.range(num_replicas, output_type=tf.int32)

    def replica_shares(*batch: Any) -> tf.data.Dataset:
        return replicas.map(lambda replica: slice_batch(batch, replica, num_replicas))

    num_shares = plan.batches_per_epoch * num_replicas
    shares = batches.flat_map(replica_shares).apply(tf.data.experimental.assert_cardinality(num_shares))
    # Consecutive elements go to the replicas in turn. Keras would split batches itself, by another rule.
    return strategy.distribute_datasets_from_function(lambda _: shares), batches.element_spec


def refuse_workers(strategy: tf.distribute.Strategy) -> None:
    """Raises under several workers, where Keras' own `fit` fails."""
    if get_num_workers(strategy) > 1:
        raise ValueError(
            "Keras' `fit` and `evaluate` do not run under MultiWorkerMirroredStrategy; use keras_bert.Trainer or "
            "keras_bert.fine_tune, which do"
        )
