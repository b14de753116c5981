"""Records of many files, split across several workers, for any number of epochs.

Split. Sorted by name, as many files as possible are distributed whole: with F files and N workers, each worker reads
F // N files alone. The last F % N files are read by all workers, each of which keeps every N-th record; with fewer
files than workers these are all files. A number of files divisible by N avoids that extra reading. The split depends on
the names, F and N alone and is the same in all epochs and for all seeds: a cache on a worker's disk holds the files
that it opens in every epoch, and no example is repeated before all others of its worker, even if workers are in
different epochs because their splits differ in size.

Order. A seed gives each epoch another order of the files, a function of (seed, epoch): shared files come at the same
time on all workers if their other files have the same size. The records of several files are interleaved one by one,
then shuffled in groups of consecutive records by (seed, epoch, worker). The order does not depend on the number of
threads, on `tf.random.set_seed`, or on where an earlier process stopped. (tf.data's `shuffle`, which has a sliding
buffer, cannot be checkpointed if it reshuffles each epoch.)

Resuming. `tf.train.Checkpoint` saves the dataset's iterator in tf.data's symbolic mode: the position in each open file,
some kilobytes for a shuffle of any size. After a restore, at most two groups of records are read again, and open
compressed files from their start. A saved iterator fits only the arguments it was saved with, which is not checked. In
this mode, a restored iterator hangs if a parallel `interleave` follows, and `bucket_by_sequence_length` cannot be
saved: set the option `experimental_symbolic_checkpoint` to False after them, which saves the groups themselves.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf
from absl import logging

from keras_bert.data.random_order import random_key, shuffled
from keras_bert.io.remote_paths import look_up_each
from keras_bert.io.row_errors import plural
from keras_bert.typing import PathLike

CYCLE_LENGTH = 8
_FILE_ORDER, _RECORD_ORDER = 0, 1
_MAX_NAMED_PATHS = 5

# A path, and which of its records a worker reads: first, first + step, first + 2 * step, ...
_FileSplit = tuple[str, int, int]
ReadFile = Callable[[Any], tf.data.Dataset]


@dataclasses.dataclass(frozen=True)
class WorkerEpochs:
    """The worker that reads the input, and the epochs it reads, both counted from 0."""

    worker_index: int = 0
    num_workers: int = 1
    first_epoch: int = 0
    epochs: int | None = None  # None repeats the input forever

    def __post_init__(self) -> None:
        check_positive(num_workers=self.num_workers, epochs=self.epochs)
        if self.first_epoch < 0:
            raise ValueError(f"first_epoch must be at least 0, got {self.first_epoch}")
        if not 0 <= self.worker_index < self.num_workers:
            raise ValueError(f"worker_index must be from 0 to {self.num_workers - 1}, got {self.worker_index}")

    def epoch_numbers(self) -> tf.data.Dataset:
        """Returns the epochs' numbers as a dataset."""
        end = tf.int64.max if self.epochs is None else self.first_epoch + self.epochs
        return tf.data.Dataset.range(self.first_epoch, end)


def check_positive(**numbers: int | None) -> None:
    """Raises ValueError if one of the named numbers is less than 1."""
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def resumable_options() -> tf.data.Options:
    """Options of a dataset for one worker, in a fixed order, whose saved iterator holds no buffers."""
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_symbolic_checkpoint = True
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def worker_records(
    paths: Iterable[PathLike],
    read_file: ReadFile,
    worker: WorkerEpochs = WorkerEpochs(),
    *,
    seed: int | None = None,
    cycle_length: int = CYCLE_LENGTH,
    shuffle_buffer: int | None = None,
) -> tf.data.Dataset:
    """Reads the records of many files that one of several workers trains on.

    All workers pass the same paths, in any order; the docstring of this module describes which records each worker
    reads. An epoch is a pass over the worker's own records. Where workers have different numbers of records, the one
    with fewer starts its next pass earlier; one pass of each worker gives every example once.

    Args:
        paths: Files, also on other file systems that TensorFlow supports (gs://...).
        read_file: Function of a scalar string tensor, the path, that returns a dataset of the file's records in a fixed
            order, such as `tf.data.TFRecordDataset` or `tf.data.TextLineDataset`. It may decompress and prefetch, as
            `lambda path: tf.data.TFRecordDataset(path, "GZIP").prefetch(64)` does.
        worker: The worker that reads the files, and for which epochs.
        seed: Seed of the order; None reads the files in alphabetical order in every epoch.
        cycle_length: Number of files to interleave, record by record; 1 reads one file after the other.
        shuffle_buffer: Number of records in a group that is shuffled; None does not shuffle records. Up to three groups
            are in memory. Records must have a fixed shape: shuffle serialized records, and parse them afterwards.

    Returns the elements that `read_file` yields, in a dataset that tf.distribute does not shard again. Raises
    FileNotFoundError if a file does not exist, TypeError if `paths` is a single path, or `read_file` does not return a
    dataset, and ValueError if files or numbers do not fit, or an endless dataset would have no record.
    """
    check_positive(cycle_length=cycle_length, shuffle_buffer=shuffle_buffer)
    if shuffle_buffer is not None and seed is None:
        raise ValueError(f"shuffle_buffer={shuffle_buffer} needs a seed; without one, records are in the files' order")
    files = _sorted_files(paths)
    splits = _split_files(files, worker)
    num_shared = len(files) % worker.num_workers
    own = plural(len(splits) - num_shared, "file")
    logging.info(
        "worker %d of %d reads %s of its own and shares %d", worker.worker_index, worker.num_workers, own, num_shared
    )
    _check_first_record(splits, read_file, shuffle_buffer, worker)
    # Columns as tensors, which the dataset's function captures without a copy.
    columns = tuple(tf.constant(column) for column in zip(*splits, strict=True))

    def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        order = tf.range(len(splits))
        if seed is not None:
            order = shuffled(order, random_key(seed, _FILE_ORDER, epoch))
        split_dataset = tf.data.Dataset.from_tensor_slices(tuple(tf.gather(column, order) for column in columns))
        # Not parallel: restored in symbolic mode, a parallel interleave hangs (TensorFlow 2.21).
        records = split_dataset.interleave(
            lambda path, step, first: _read_split(read_file, path, step, first),
            cycle_length=min(cycle_length, len(splits)),
        )
        if shuffle_buffer is None or seed is None:
            return records
        return _shuffle_groups(records, shuffle_buffer, random_key(seed, _RECORD_ORDER, epoch, worker.worker_index))

    return worker.epoch_numbers().flat_map(read_epoch).with_options(resumable_options())


def _sorted_files(paths: Iterable[PathLike]) -> list[str]:
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise TypeError(f"paths must be a list of paths, got {paths!r}; use tf.io.gfile.glob to expand a pattern")
    files = sorted(os.fsdecode(path) for path in paths)
    if not files:
        raise ValueError("no files are given")
    spellings: dict[str, list[str]] = {}
    for path in files:
        spellings.setdefault(path if "://" in path else os.path.abspath(path), []).append(path)
    repeated = [path for group in spellings.values() if len(group) > 1 for path in group]
    if repeated:
        raise ValueError(f"these files would be read more than once: {_abbreviated(repeated)}")
    missing = [path for path, is_file in zip(files, look_up_each(_is_file, files), strict=True) if not is_file]
    if missing:
        raise FileNotFoundError(f"{len(missing)} of {len(files)} paths are not files: {_abbreviated(missing)}")
    return files


def _is_file(path: str) -> bool:
    try:
        return not tf.io.gfile.stat(path).is_directory
    except tf.errors.NotFoundError:
        return False


def _abbreviated(paths: list[str]) -> str:
    rest = len(paths) - _MAX_NAMED_PATHS
    return ", ".join(paths[:_MAX_NAMED_PATHS]) + (f" and {rest} more" if rest > 0 else "")


def _split_files(files: list[str], worker: WorkerEpochs) -> list[_FileSplit]:
    index, num_workers = worker.worker_index, worker.num_workers
    num_whole = len(files) - len(files) % num_workers
    own = [(path, 1, 0) for path in files[index:num_whole:num_workers]]
    # The first record moves by one worker with each shared file, so that short files do not all fall to the same ones.
    shared = [(path, num_workers, (index - number) % num_workers) for number, path in enumerate(files[num_whole:])]
    return own + shared


def _read_split(read_file: ReadFile, path: tf.Tensor, step: Any, first: Any) -> tf.data.Dataset:
    records = read_file(path)
    if not isinstance(records, tf.data.Dataset):
        raise TypeError(f"read_file must return a tf.data.Dataset, got {type(records).__name__}")
    return records.shard(tf.cast(step, tf.int64), tf.cast(first, tf.int64))


def _check_first_record(
    splits: list[_FileSplit], read_file: ReadFile, shuffle_buffer: int | None, worker: WorkerEpochs
) -> None:
    """Reads the first record, to find unreadable files and endless datasets without records at once."""
    for path, step, first in splits:
        records = _read_split(read_file, tf.constant(path), step, first)
        if shuffle_buffer is not None:
            _check_shapes(records.element_spec)
        try:
            if any(True for _ in records.take(1)):
                return
        except tf.errors.OpError as error:
            raise ValueError(
                f"{path} cannot be read: {error.message}. Does read_file match its format and compression?"
            ) from error
    if worker.epochs is None:
        raise ValueError(
            f"worker {worker.worker_index} has no records: {plural(len(splits), 'file')} that it reads are empty, or "
            "have fewer records than there are workers. Use fewer workers, or split the records into more files"
        )


def _check_shapes(element_spec: Any) -> None:
    for spec in tf.nest.flatten(element_spec):
        if not isinstance(spec, tf.TensorSpec) or not spec.shape.is_fully_defined():
            raise ValueError(
                f"records to shuffle must be tensors of a fixed shape, got {spec}. Let read_file return serialized "
                "records, and parse them after `worker_records`"
            )


def _shuffle_groups(records: tf.data.Dataset, group_size: int, key: tf.Tensor) -> tf.data.Dataset:
    def shuffle_group(number: tf.Tensor, group: Any) -> Any:
        size = tf.shape(tf.nest.flatten(group)[0])[0]
        order = shuffled(tf.range(size), tf.random.fold_in(key, number))
        return tf.nest.map_structure(lambda values: tf.gather(values, order), group)

    # The next group is shuffled while the previous one is consumed.
    return records.batch(group_size).enumerate().map(shuffle_group).prefetch(1).unbatch()
