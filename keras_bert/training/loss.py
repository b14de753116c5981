"""Loss terms: sums over examples, and the numbers that they are divided by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_bert.typing import Tensor

if TYPE_CHECKING:
    from keras_bert.data.batching import BatchPlan


def total_loss(terms: Mapping[str, tuple[Tensor, Tensor]]) -> Tensor:
    """Adds the loss terms of a batch, each divided by its weight over the global batch.

    Under a distribution strategy a replica sees a part of the batch. The weights are summed over the replicas first, so
    the sum over replicas of the gradients is the gradient of the global batch, however unevenly labels and weights are
    distributed.

    Differs from BERT: the original averages the means of the shards, in which a shard with few labels counts as much as
    one with many.

    `terms` maps names to the weighted sum of the losses and the sum of the weights. Returns this replica's part of the
    loss, a scalar.

    >>> float(total_loss({"masked_lm": (6.0, 3.0), "next_sentence": (1.0, 2.0)}))
    2.5
    """
    # A batch without any weight has loss 0, not 0 / 0.
    return sum(
        ops.divide_no_nan(loss_sum, sum_over_replicas(ops.convert_to_tensor(weight, "float32")))
        for loss_sum, weight in terms.values()
    )


def mean_loss_weights(model: keras.Model, examples: Any, plan: BatchPlan) -> dict[str, float] | None:
    """Returns the mean weight of each loss term over the batches of an epoch, by which every batch's sum is divided.

    Batches of similar lengths differ in their number of tokens (and with a token budget in their number of examples):
    divided by the mean weight, every example counts the same. None for a plan without length buckets: such batches
    hardly differ, and each is divided by its own weight, as in the original.
    """
    if plan.bucket_step is None:
        return None
    weights = model.loss_weights(*examples.all_labels())
    return {name: float(weight) / plan.batches_per_epoch for name, weight in weights.items()}


def sum_over_replicas(value: Any) -> Any:
    """Sums a tensor, or a structure of tensors, over the replicas; returns it unchanged where there is only one."""
    if keras.backend.backend() != "tensorflow":
        return value
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def gather_over_replicas(rows: Tensor) -> tuple[Tensor, int]:
    """Joins the rows of a float tensor [rows, size] of all replicas, in their order; returns them and the number of
    replicas.

    The gradient of a row is the sum of those that all replicas have for it. With several workers the number of rows
    must be static: TensorFlow's collective operations must have the same shape in every step of a loop.
    """
    context = None
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        from keras_bert.training.strategy import get_num_workers

        context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return rows, 1
    number, replica, own = context.num_replicas_in_sync, context.replica_id_in_sync_group, rows.shape[0]
    if own is not None:
        # A sum, whose gradient TensorFlow computes correctly, and not `all_gather`.
        return sum_over_replicas(tf.pad(rows, [[replica * own, (number - 1 - replica) * own], [0, 0]])), number
    if get_num_workers(context.strategy) > 1:
        raise ValueError(
            "with several workers, the texts of a batch can be compared with those of all replicas only if all batches "
            "have the same shape: set static_shapes=True"
        )

    @tf.custom_gradient
    def join(rows: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def concatenate(strategy: tf.distribute.Strategy, rows: Any) -> tuple[tf.Tensor, tf.Tensor]:
            parts = strategy.experimental_local_results(rows)
            return tf.concat(parts, axis=0), tf.stack([tf.shape(part)[0] for part in parts])

        def add(strategy: tf.distribute.Strategy, gradients: Any) -> tf.Tensor:
            return tf.add_n(strategy.experimental_local_results(gradients))

        joined, counts = context.merge_call(concatenate, args=(rows,))
        start = tf.reduce_sum(counts[:replica])

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return context.merge_call(add, args=(upstream,))[start : start + tf.shape(rows)[0]]

        return joined, gradient

    return join(rows), number
