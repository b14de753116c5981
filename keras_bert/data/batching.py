"""Deterministic length-bucketed batching: which examples form a batch, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from keras_bert.data.masked_examples import MaskedExamples
from keras_bert.data.random_order import random_key, shuffled
from keras_bert.data.worker_records import WorkerEpochs, check_positive
from keras_bert.typing import Tensor

BUCKET_STEP = 4  # tokens
_ORDER_OF_EXAMPLES, _ORDER_OF_BATCHES = 0, 1
# The pipelines below have nothing to tune, and the thread that tunes them can hold up the end of an iterator for
# seconds.
_OPTIONS = tf.data.Options()
_OPTIONS.autotune.enabled = False


class Examples(Protocol):
    """Protocol of examples to batch: `TokenizedExamples`, `PaddedExamples` or `MaskedExamples`."""

    def __len__(self) -> int:
        """Returns the number of examples."""

    @property
    def lengths(self) -> np.ndarray:
        """int array [examples]."""

    def batch(self, indices: tf.Tensor, length_multiple: int = 1) -> Tensor:
        """Assembles a batch: inputs, and labels and sample weights if there are any."""

    def static_batch(self, indices: tf.Tensor, num_rows: int) -> Tensor:
        """Assembles a batch of one static shape."""


class BatchPlan:
    """Splits an epoch into batches of examples of similar length, in an order that a seed determines.

    In each epoch the examples are shuffled, sorted by length bucket (examples of a bucket stay shuffled), split into
    batches, and the batches are shuffled. Every example is in exactly one batch of an epoch. The plan depends on seed
    and epoch only, and the plan of any epoch costs the same, so that training can resume anywhere.

    Differs from BERT: run_classifier.py pads every text to one length and takes batches as they come;
    `bucket_step=None` does the latter.

    Args:
        lengths: int array [examples], tokens per example.
        batch_size: examples per batch; the last batch of the sorted examples may have fewer.
        token_budget: maximum number of tokens per batch, padding included; short texts then form larger batches, and
            batches do not cross buckets. A longer example forms a batch of its own. At least one of `batch_size` and
            `token_budget` is needed; with both, both limits apply.
        bucket_step: width of a length bucket in tokens; None for no buckets.
        seed: seed of the order; None keeps the given order, sorted by bucket.

    Raises:
        ValueError: if there are no examples, no size is given, or a number is not positive.

    Example:

    >>> plan = BatchPlan([3, 20, 4, 21, 5], batch_size=2, seed=1)
    >>> plan.batches_per_epoch
    3
    >>> sorted(len(batch) for batch in plan.epoch(0))
    [1, 2, 2]
    """

    def __init__(
        self,
        lengths: np.ndarray | Sequence[int],
        batch_size: int | None = None,
        token_budget: int | None = None,
        bucket_step: int | None = BUCKET_STEP,
        seed: int | None = None,
    ):
        if not len(lengths):
            raise ValueError("there are no examples to form batches of")
        if batch_size is None and token_budget is None:
            raise ValueError("give batch_size (examples), token_budget (tokens), or both")
        check_positive(batch_size=batch_size, token_budget=token_budget, bucket_step=bucket_step)
        if token_budget is not None and bucket_step is None:
            raise ValueError("token_budget needs length buckets: give bucket_step")
        self.seed = seed
        self.bucket_step = bucket_step
        step = bucket_step or int(np.max(lengths))
        buckets = -(-np.asarray(lengths, "int64") // step)
        # Tensors, which the dataset's functions capture; arrays would be copied into their graphs.
        self._buckets = tf.constant(buckets)
        self._cuts = tf.constant(np.stack(_cut(np.sort(buckets), step, batch_size, token_budget), axis=1))

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches, the same in every epoch."""
        return len(self._cuts)

    @property
    def largest_batch(self) -> int:
        """The maximum number of examples in a batch."""
        return int(tf.reduce_max(self._cuts[:, 1] - self._cuts[:, 0]))

    @tf.autograph.experimental.do_not_convert  # nothing to convert: the first batch comes sooner
    def dataset(self, first_epoch: int = 0) -> tf.data.Dataset:
        """Endless batches of example indices, int64 [batch], from `first_epoch` on; the iterator can be saved."""
        return tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(self._epoch_dataset)

    @tf.autograph.experimental.do_not_convert
    def epoch(self, epoch: int | tf.Variable) -> tf.data.Dataset:
        """Returns the batches of one epoch; `epoch` may be a variable, which each iteration of the dataset reads."""
        dataset = tf.data.Dataset.range(1).flat_map(lambda _: self._epoch_dataset(tf.cast(epoch, tf.int64)))
        return dataset.apply(tf.data.experimental.assert_cardinality(self.batches_per_epoch))

    def _epoch_dataset(self, epoch: tf.Tensor) -> tf.data.Dataset:
        order = tf.range(len(self._buckets), dtype=tf.int64)
        cuts = self._cuts  # [batches, 2]
        if self.seed is not None:
            order = shuffled(order, random_key(self.seed, _ORDER_OF_EXAMPLES, epoch))
            cuts = shuffled(cuts, random_key(self.seed, _ORDER_OF_BATCHES, epoch))
        if self.bucket_step is not None:
            order = tf.gather(order, tf.argsort(tf.gather(self._buckets, order), stable=True))
        return tf.data.Dataset.from_tensor_slices(cuts).map(lambda cut: order[cut[0] : cut[1]])


def _cut(
    sorted_buckets: np.ndarray, step: int, batch_size: int | None, token_budget: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first and last-plus-one positions of the batches among the examples sorted by bucket."""
    positions = np.arange(len(sorted_buckets))
    if token_budget is None:
        assert batch_size is not None
        starts = positions[positions % batch_size == 0]
    else:
        largest = np.maximum(token_budget // (sorted_buckets * step), 1)  # examples per batch of this bucket
        if batch_size is not None:
            largest = np.minimum(largest, batch_size)
        first_of_bucket = np.searchsorted(sorted_buckets, sorted_buckets)
        starts = positions[(positions - first_of_bucket) % largest == 0]
    return starts, np.append(starts[1:], len(positions))


@tf.autograph.experimental.do_not_convert
def training_batches(
    examples: Examples,
    plan: BatchPlan,
    worker_index: int = 0,
    num_workers: int = 1,
    static_rows_multiple: int | None = None,
) -> tf.data.Dataset:
    """Endless training batches of all epochs.

    Args:
        examples: examples with labels.
        plan: `BatchPlan` of their lengths.
        worker_index, num_workers: this worker's index, and the number of workers. Each takes a part of the rows of each
            batch, as evenly as possible; some get none of a batch with fewer rows than workers.
        static_rows_multiple: if given, all batches have one shape, as TPUs require: as many rows as this worker's part
            of the largest batch, rounded up to a multiple of this, and one length. Results are the same: padding has
            weight 0.

    Returns:
        Dataset of `(inputs, labels)` or `(inputs, labels, sample_weight)`, padded to the end of the batch's longest
        bucket, not beyond the longest example; with a static shape there are always weights. Its iterator can be
        checkpointed.

    Raises:
        ValueError: if there is no such worker, or a static shape is asked for and the examples have windows.
    """
    WorkerEpochs(worker_index, num_workers)  # raises for a worker that does not exist
    batch, batches_per_epoch = _batch_function(plan, num_workers, static_rows_multiple), plan.batches_per_epoch

    def worker_share(number: tf.Tensor, indices: tf.Tensor) -> Tensor:
        rows = tf.size(indices)
        share = indices[rows * worker_index // num_workers : rows * (worker_index + 1) // num_workers]
        return batch(_at_epoch(examples, number // batches_per_epoch), share)

    return plan.dataset().enumerate().map(worker_share, num_parallel_calls=1).prefetch(2).with_options(_OPTIONS)


def _at_epoch(examples: Examples, epoch: int | tf.Tensor | tf.Variable) -> Examples:
    return examples.at_epoch(epoch) if isinstance(examples, MaskedExamples) else examples


def _batch_function(
    plan: BatchPlan, num_workers: int, static_rows_multiple: int | None
) -> Callable[[Examples, tf.Tensor], Tensor]:
    """Returns a function that assembles a worker's share of a batch from the numbers of its examples."""
    if static_rows_multiple is None:
        return lambda examples, indices: examples.batch(indices, length_multiple=plan.bucket_step or 1)
    num_rows = -(-plan.largest_batch // num_workers)
    num_rows = -(-num_rows // static_rows_multiple) * static_rows_multiple
    return lambda examples, indices: examples.static_batch(indices, num_rows=num_rows)


@tf.autograph.experimental.do_not_convert
def epoch_batches(
    examples: Examples, plan: BatchPlan, epoch: int | tf.Variable, static_rows_multiple: int | None = None
) -> tf.data.Dataset:
    """Returns the training batches of one epoch, as in `training_batches`; see `BatchPlan.epoch`."""
    batch, examples = _batch_function(plan, 1, static_rows_multiple), _at_epoch(examples, epoch)
    batches = plan.epoch(epoch).map(lambda indices: batch(examples, indices), num_parallel_calls=1)
    return batches.prefetch(2).with_options(_OPTIONS)


@tf.autograph.experimental.do_not_convert
def sorted_batches(
    examples: Examples, batch_size: int, token_budget: int | None = None, static_shape: bool = False
) -> tuple[tf.data.Dataset, list[np.ndarray]]:
    """Returns batches of inputs, without labels, of every example once, sorted by length to save padding.

    A batch has `batch_size` examples, or fewer if they would have more than `token_budget` tokens, padding included.
    Returns the dataset, and the indices of the examples in each batch. With `static_shape` the last batch ends with
    rows of padding; examples with windows raise ValueError.
    """
    order = np.argsort(examples.lengths, kind="stable")
    starts = [0]
    for position, length in enumerate(examples.lengths[order].tolist()):
        size = position - starts[-1]
        if size == batch_size or (token_budget is not None and size and (size + 1) * length > token_budget):
            starts.append(position)
    stops = [*starts[1:], len(order)]
    indices = tf.constant(order)

    def inputs_only(start: tf.Tensor, stop: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = indices[start:stop]
        batch = examples.static_batch(rows, batch_size) if static_shape else examples.batch(rows)
        return batch[0] if isinstance(batch, tuple) else batch

    batches = tf.data.Dataset.from_tensor_slices((starts, stops)).map(inputs_only, num_parallel_calls=1)
    return batches.prefetch(2).with_options(_OPTIONS), np.split(order, starts[1:])
