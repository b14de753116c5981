"""Records of many files, of which each of several workers reads its own share, an epoch after the other.

Share. Sorted by name, the files are dealt out whole as far as they go round: with F files and N workers each worker has
F // N of them for itself. The F % N that are left, the last ones, are read by all workers, and each keeps every N-th
record; with fewer files than workers these are all. A number of files that N divides saves the workers that reading.
A share depends on names, F and N alone, and is the same in all epochs and for all seeds: a cache on a worker's disk
holds the files that it opens again and again, and no example comes again before the others of its share have come, even
where workers are not in the same epoch, as they are not if their shares differ in length.

Order. A seed gives each epoch another order of the files, a function of (seed, epoch): shared files come at the same
time on all workers, as far as their other files are of one length. The records of several files are mixed one by one,
then shuffled in groups of consecutive ones by (seed, epoch, worker). Nothing depends on the number of threads, on
`tf.random.set_seed`, or on where an earlier process stopped. (tf.data's `shuffle`, whose buffer slides on, cannot be
checkpointed if it begins anew in each epoch.)

Place. `tf.train.Checkpoint` saves the dataset's iterator in tf.data's symbolic mode: where in which file it stands,
some kilobytes for a shuffle of any size. Restored, it reads at most two groups of records again, and compressed files,
of which `cycle_length` are open, from their beginning. A place fits only the arguments that it was saved with; that is
not checked. In this mode a restored iterator waits without end if a parallel `interleave` follows, and
`bucket_by_sequence_length` cannot be saved: set the option `experimental_symbolic_checkpoint` to False behind them, and
the groups themselves are stored.
"""

import os

import tensorflow as tf
from absl import logging

from keras_bert.data.random_order import random_key, shuffled
from keras_bert.data.worker_pipeline import check_numbers, resumable_options
from keras_bert.io.remote_paths import look_up_each
from keras_bert.io.row_errors import plural

CYCLE_LENGTH = 8  # files
_ORDER_OF_FILES, _ORDER_OF_RECORDS = 0, 1
_NAMED_PATHS = 5


def worker_records(
    paths,
    read_file,
    worker_index=0,
    num_workers=1,
    *,
    seed=None,
    cycle_length=CYCLE_LENGTH,
    shuffle_buffer=None,
    first_epoch=0,
    epochs=None,
):
    """The records of this worker's share of many files.

    All workers give the same paths, in whatever order; this module's documentation says which records are whose. An
    epoch is a pass over the worker's own share. Where shares have different numbers of records, the worker with fewer
    begins its next pass earlier; one pass of each gives every example once.

    Args:
        paths: iterable of str or Path. Files, also those of other file systems that TensorFlow knows (gs://...).
        read_file: function of a scalar string tensor, the path, that returns a tf.data.Dataset of its records in an
            order that is always the same; tf.data.TFRecordDataset and tf.data.TextLineDataset are. It decompresses and
            reads ahead as it likes, as in `lambda path: tf.data.TFRecordDataset(path, "GZIP").prefetch(64)`.
        worker_index, num_workers: int.
        seed: int or None. None is the alphabetical order of the files in every epoch.
        cycle_length: int. Files that are read at once, record by record in turn; 1 is one file after the other.
        shuffle_buffer: int or None. Records in a group that is shuffled; None does not shuffle records. Up to three
            groups are in memory. Records then need one shape: shuffle the bytes, and parse what comes out.
        first_epoch: int.
        epochs: int or None. How many; None is without end.

    Returns:
        tf.data.Dataset of what `read_file` gives. tf.distribute does not share it out once more.

    Raises:
        FileNotFoundError: if a file does not exist.
        TypeError: if `paths` is one path, or `read_file` gives no dataset.
        ValueError: if there are no files, one is given twice, this worker's first file with records cannot be read, a
            number is out of range, records are to be shuffled without a seed or have no fixed shape, or a dataset
            without end would have no record.

    Example:

    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("a", "b", "c"):
    ...     _ = (folder / name).write_text(f"{name}1\\n{name}2\\n")
    >>> for worker in range(2):
    ...     records = worker_records(folder.glob("*"), tf.data.TextLineDataset, worker, num_workers=2, epochs=1)
    ...     [record.decode() for record in records.as_numpy_iterator()]
    ['a1', 'c1', 'a2']
    ['b1', 'c2', 'b2']
    """
    check_numbers(
        worker_index, num_workers, first_epoch, epochs, cycle_length=cycle_length, shuffle_buffer=shuffle_buffer
    )
    if shuffle_buffer is not None and seed is None:
        raise ValueError(f"shuffle_buffer={shuffle_buffer} needs a seed; without one records come in the files' order")
    paths = _sorted_files(paths)
    share = _share(paths, worker_index, num_workers)
    shared = len(paths) % num_workers
    own = plural(len(share) - shared, "file")
    logging.info("worker %d of %d reads %s of its own and shares %d", worker_index, num_workers, own, shared)
    _check_records(share, read_file, shuffle_buffer, is_endless=epochs is None, worker_index=worker_index)

    records_of_epoch = _epochs(share, read_file, worker_index, seed, cycle_length, shuffle_buffer)
    end = tf.int64.max if epochs is None else first_epoch + epochs
    return tf.data.Dataset.range(first_epoch, end).flat_map(records_of_epoch).with_options(resumable_options())


def _sorted_files(paths):
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise TypeError(f"paths must be a list of paths, got {paths!r}; tf.io.gfile.glob gives those of a pattern")
    paths = sorted(os.fsdecode(path) for path in paths)
    if not paths:
        raise ValueError("no files are given")
    seen = {}
    for path in paths:
        seen.setdefault(path if "://" in path else os.path.abspath(path), []).append(path)
    repeated = [path for spellings in seen.values() if len(spellings) > 1 for path in spellings]
    if repeated:
        raise ValueError(f"these files would be read more than once: {_some(repeated)}")
    missing = [path for path, is_file in zip(paths, look_up_each(_is_file, paths), strict=True) if not is_file]
    if missing:
        raise FileNotFoundError(f"{len(missing)} of {plural(len(paths), 'path')} are no files: {_some(missing)}")
    return paths


def _is_file(path):
    try:
        return not tf.io.gfile.stat(path).is_directory
    except tf.errors.NotFoundError:
        return False


def _some(paths):
    rest = len(paths) - _NAMED_PATHS
    return ", ".join(paths[:_NAMED_PATHS]) + (f" and {rest} more" if rest > 0 else "")


def _share(paths, worker_index, num_workers):
    """Of each file of this worker (path, every, first): it reads the rows first, first + every, and so on."""
    whole = len(paths) - len(paths) % num_workers
    own = [(path, 1, 0) for path in paths[worker_index:whole:num_workers]]
    # Begins one worker later in each shared file, so that short ones do not all fall to the same workers.
    shared = [(path, num_workers, (worker_index - number) % num_workers) for number, path in enumerate(paths[whole:])]
    return own + shared


def _rows(read_file, path, every, first):
    records = read_file(path)
    if not isinstance(records, tf.data.Dataset):
        raise TypeError(f"read_file must return a tf.data.Dataset, got {type(records).__name__}")
    return records.shard(tf.cast(every, tf.int64), tf.cast(first, tf.int64))


def _check_records(share, read_file, shuffle_buffer, is_endless, worker_index):
    """Reads the first record: what does not suit the files shows at once, and an empty share, which has no end."""
    for path, every, first in share:
        records = _rows(read_file, tf.constant(path), every, first)
        if shuffle_buffer is not None:
            _check_shapes(records.element_spec)
        try:
            if any(True for _ in records.take(1)):
                return
        except tf.errors.OpError as error:
            raise ValueError(
                f"{path} cannot be read: {error.message}. Does read_file suit its form and compression?"
            ) from error
    if is_endless:
        raise ValueError(
            f"no record falls to worker {worker_index}, which reads {plural(len(share), 'file')}: empty, or with fewer "
            "records than there are workers. Use fewer workers, or make more files of the records"
        )


def _check_shapes(element_spec):
    for spec in tf.nest.flatten(element_spec):
        if not isinstance(spec, tf.TensorSpec) or not spec.shape.is_fully_defined():
            raise ValueError(
                f"records that are shuffled must be tensors of one shape, got {spec}. Let read_file give the bytes of "
                "a record, and parse them in what comes out"
            )


def _epochs(share, read_file, worker_index, seed, cycle_length, shuffle_buffer):
    """A function from the number of an epoch to the dataset of its records."""
    # Columns of tensors, which the function holds as they are.
    columns = tuple(tf.constant(column) for column in zip(*share, strict=True))

    def records_of_epoch(epoch):
        order = tf.range(len(share))
        if seed is not None:
            order = shuffled(order, random_key(seed, _ORDER_OF_FILES, epoch))
        files = tf.data.Dataset.from_tensor_slices(tuple(tf.gather(column, order) for column in columns))
        # Not parallel: restored in symbolic mode, a parallel interleave waits without end (TensorFlow 2.21).
        records = files.interleave(
            lambda path, every, first: _rows(read_file, path, every, first), cycle_length=min(cycle_length, len(share))
        )
        if shuffle_buffer is None:
            return records
        return _shuffle_groups(records, shuffle_buffer, random_key(seed, _ORDER_OF_RECORDS, epoch, worker_index))

    return records_of_epoch


def _shuffle_groups(records, group_size, key):
    def in_another_order(number, group):
        size = tf.shape(tf.nest.flatten(group)[0])[0]
        order = shuffled(tf.range(size), tf.random.fold_in(key, number))
        return tf.nest.map_structure(lambda values: tf.gather(values, order), group)

    # A group is shuffled while the one before it is used up.
    return records.batch(group_size).enumerate().map(in_another_order).prefetch(1).unbatch()
