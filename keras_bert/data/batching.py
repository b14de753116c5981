"""Which examples make a batch, in which order: a function of seed and epoch, and of nothing else."""

import functools

import numpy as np
import tensorflow as tf

from keras_bert.data.random_order import random_key, shuffled
from keras_bert.data.worker_records import WorkerEpochs

BUCKET_STEP = 8  # tokens
_ORDER_OF_EXAMPLES, _ORDER_OF_BATCHES = 0, 1


class BatchPlan:
    """Cuts an epoch into batches of examples of similar length, in an order that a seed fixes.

    In each epoch the examples are shuffled, sorted by length bucket (those of one bucket stay shuffled), cut into
    batches, and the batches are shuffled. Every example is in exactly one batch of an epoch. Nothing depends on the
    number of threads, and the plan of any epoch costs the same, so that training can resume anywhere.

    Differs from BERT: run_classifier.py pads every text to one length and takes batches as they come;
    `bucket_step=None` does the latter.

    Args:
        lengths: int array [examples]. Tokens of each.
        batch_size: int or None. Examples in a batch; the last batch of the sorted examples may have fewer.
        token_budget: int or None. Most tokens in a batch, padding included; short texts then make larger batches, and
            batches do not cross buckets. An example that is longer makes a batch of its own. At least one of
            `batch_size` and `token_budget` is needed; with both, both hold.
        bucket_step: int or None. Width of a length bucket in tokens; None is no bucket at all.
        seed: int or None. None is the order given, sorted by bucket.

    Raises:
        ValueError: if there are no examples, no size is given, or a number is not positive.

    Example:

    >>> plan = BatchPlan([3, 20, 4, 21, 5], batch_size=2, seed=1)
    >>> plan.batches_per_epoch
    3
    >>> sorted(len(batch) for batch in plan.epoch(0))
    [1, 2, 2]
    """

    def __init__(self, lengths, batch_size=None, token_budget=None, bucket_step=BUCKET_STEP, seed=None):
        if not len(lengths):
            raise ValueError("there are no examples to make batches of")
        if batch_size is None and token_budget is None:
            raise ValueError("give batch_size (examples), token_budget (tokens), or both")
        for name, value in (("batch_size", batch_size), ("token_budget", token_budget), ("bucket_step", bucket_step)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if token_budget is not None and bucket_step is None:
            raise ValueError("token_budget needs buckets: give bucket_step")
        self.seed = seed
        self.bucket_step = bucket_step
        step = bucket_step or int(np.max(lengths))
        buckets = -(-np.asarray(lengths, "int64") // step)
        # Tensors, which the dataset's functions hold as they are: arrays would be copied into their graphs.
        self._buckets = tf.constant(buckets)
        self._cuts = tf.constant(np.stack(_cut(np.sort(buckets), step, batch_size, token_budget), axis=1))

    @property
    def batches_per_epoch(self):
        """int. It is the same in every epoch."""
        return len(self._cuts)

    @property
    def largest_batch(self):
        """int. The most examples that a batch has."""
        return int(tf.reduce_max(self._cuts[:, 1] - self._cuts[:, 0]))

    @tf.autograph.experimental.do_not_convert  # nothing in it to rewrite: the first batch comes sooner
    def dataset(self, first_epoch=0):
        """The batches of all epochs, without end.

        Args:
            first_epoch: int.

        Returns:
            tf.data.Dataset of int64 tensors [batch], numbers of examples. Its iterator can be checkpointed.
        """
        return tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(self._epoch_dataset)

    @tf.autograph.experimental.do_not_convert
    def epoch(self, epoch):
        """The batches of one epoch.

        Args:
            epoch: int.

        Returns:
            tf.data.Dataset of int64 tensors [batch], numbers of examples.
        """
        return self._epoch_dataset(tf.constant(epoch, tf.int64))

    def _epoch_dataset(self, epoch):
        order = tf.range(len(self._buckets), dtype=tf.int64)
        cuts = self._cuts  # [batches, 2]
        if self.seed is not None:
            order = shuffled(order, random_key(self.seed, _ORDER_OF_EXAMPLES, epoch))
            cuts = shuffled(cuts, random_key(self.seed, _ORDER_OF_BATCHES, epoch))
        if self.bucket_step is not None:
            order = tf.gather(order, tf.argsort(tf.gather(self._buckets, order), stable=True))
        return tf.data.Dataset.from_tensor_slices(cuts).map(lambda cut: order[cut[0] : cut[1]])


def _cut(sorted_buckets, step, batch_size, token_budget):
    """First and last-plus-one positions of the batches among the examples sorted by bucket."""
    positions = np.arange(len(sorted_buckets))
    if token_budget is None:
        starts = positions[positions % batch_size == 0]
    else:
        most = np.maximum(token_budget // (sorted_buckets * step), 1)  # examples, in a batch of this bucket
        if batch_size is not None:
            most = np.minimum(most, batch_size)
        first_of_bucket = np.searchsorted(sorted_buckets, sorted_buckets)
        starts = positions[(positions - first_of_bucket) % most == 0]
    return starts, np.append(starts[1:], len(positions))


@tf.autograph.experimental.do_not_convert
def training_batches(examples, plan, worker_index=0, num_workers=1, static_rows_multiple=None):
    """Batches of ids and labels for training, without end, from examples that were tokenized.

    Args:
        examples: `TokenizedExamples` with labels.
        plan: a `BatchPlan` of their lengths.
        worker_index, num_workers: int. Of each batch this worker takes the rows that are its part, as even as can be;
            a batch of fewer rows than workers leaves some without any.
        static_rows_multiple: int or None. If given, all batches have one shape, as a TPU wants them: as many rows as
            this worker's part of the largest batch, rounded up to a multiple of this, and one length. The results are
            the same: what is padding has weight 0.

    Returns:
        tf.data.Dataset of `(inputs, labels)`, padded to the end of the batch's longest bucket, not beyond the longest
        example; with a static shape of `(inputs, labels, sample_weight)`. Its iterator can be checkpointed.

    Raises:
        ValueError: if there is no such worker, or a static shape is asked for and the examples have windows.

    Example:

    >>> from keras_bert.data.tokenized_examples import TokenizedExamples
    >>> examples = TokenizedExamples([2, 7, 3, 2, 3], [3, 2], [3, 2], labels=np.array([0, 1]))
    >>> batches = training_batches(examples, BatchPlan(examples.lengths, batch_size=2, seed=1))
    >>> next(iter(batches))[0]["token_ids"].shape
    TensorShape([2, 3])
    """
    WorkerEpochs(worker_index, num_workers)  # raises for a worker that does not exist
    if static_rows_multiple is None:
        batch = functools.partial(examples.batch, length_multiple=plan.bucket_step or 1)
    else:
        rows = -(-plan.largest_batch // num_workers)
        rows = -(-rows // static_rows_multiple) * static_rows_multiple
        batch = functools.partial(examples.static_batch, rows=rows)

    def part_of_worker(indices):
        rows = tf.size(indices)
        return batch(indices[rows * worker_index // num_workers : rows * (worker_index + 1) // num_workers])

    return plan.dataset().map(part_of_worker, num_parallel_calls=1).prefetch(2)


@tf.autograph.experimental.do_not_convert
def sorted_batches(examples, batch_size, static_shape=False):
    """Every example once, sorted by length so that batches hold little padding.

    Args:
        examples: `TokenizedExamples`.
        batch_size: int. Examples in a batch.
        static_shape: bool. Whether all batches have one shape; the last one then ends with rows of padding.

    Returns:
        A pair: tf.data.Dataset of batches of inputs (labels are left out), and an int array [examples], the numbers of
        the examples in the order in which they come.

    Raises:
        ValueError: if a static shape is asked for and the examples have windows.

    Example:

    >>> from keras_bert.data.tokenized_examples import TokenizedExamples
    >>> batches, order = sorted_batches(TokenizedExamples([2, 7, 3, 2, 3], [3, 2], [3, 2]), batch_size=1)
    >>> [batch["token_ids"].numpy().tolist() for batch in batches], order.tolist()
    ([[[2, 3]], [[2, 7, 3]]], [1, 0])
    """
    order = np.argsort(examples.lengths, kind="stable")

    def inputs_of(indices):
        batch = examples.static_batch(indices, batch_size) if static_shape else examples.batch(indices)
        return batch if examples.labels is None else batch[0]

    batches = tf.data.Dataset.from_tensor_slices(order).batch(batch_size)
    return batches.map(inputs_of, num_parallel_calls=1).prefetch(2), order
