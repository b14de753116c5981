"""From the loss terms of a head to the one number that is differentiated."""

import keras
from keras import ops


def total_loss(terms):
    """The sum of the terms, each divided by its weight over the whole batch.

    Under a distribution strategy a replica sees a part of the batch. Its weight is summed over the replicas first, so
    that the gradients, summed over the replicas, are those of the whole batch, however unevenly labels and weights
    fall.

    Differs from BERT: the original averages over the means of the shards, which gives a shard with few labels as much
    say as one with many.

    Args:
        terms: dict of name to `(sum, weight)`, two float scalars: the weighted sum of the losses and the sum of the
            weights.

    Returns:
        float scalar, this replica's share of the loss.

    Example:

    >>> float(total_loss({"masked_lm": (6.0, 3.0), "next_sentence": (1.0, 2.0)}))
    2.5
    """
    total = 0.0
    for loss_sum, weight in terms.values():
        # A batch without any weight has no loss, rather than 0 / 0.
        total = total + ops.divide_no_nan(loss_sum, sum_over_replicas(ops.convert_to_tensor(weight, "float32")))
    return total


def share_of_evaluation(loss, rows):
    """A replica's share of an evaluation loss, so that Keras' mean over replicas is the mean over the whole batch.

    Keras' loss tracker multiplies a replica's share by the number of replicas and weighs it by its rows, which is right
    only where all replicas have equally many.

    Args:
        loss: float scalar, from `total_loss`.
        rows: int scalar, this replica's rows of the batch.

    Returns:
        float scalar; on one device the loss itself.

    Example:

    >>> share_of_evaluation(1.5, 8)
    1.5
    """
    replicas = _number_of_replicas()
    if replicas == 1:
        return loss
    rows = ops.cast(rows, "float32")
    return loss * ops.divide_no_nan(sum_over_replicas(rows), replicas * rows)


def _number_of_replicas():
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def sum_over_replicas(value):
    """The sum of what the replicas of the current strategy give; on one device, or outside a replica, the value itself.

    Args:
        value: tensor, or nested structure of tensors.

    Returns:
        The same structure.

    Example:

    >>> sum_over_replicas(1.5)
    1.5
    """
    if _number_of_replicas() == 1:
        return value
    import tensorflow as tf

    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)
