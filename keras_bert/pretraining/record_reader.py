"""Files of instances, ours and google-research/bert's, to batches."""

import re

import tensorflow as tf
from absl import logging

from keras_bert.data.worker_records import worker_records
from keras_bert.io.remote_paths import look_up_each
from keras_bert.pretraining.records import parse, record_form
from keras_bert.pretraining.shard_files import describe_vocabulary, read_sidecars

SHUFFLE_BUFFER = 4096  # instances
_SHARD_NAME = re.compile(r"(.*-)([0-9]+)-of-([0-9]+)(\..*)?")
_GZIP_MARK = b"\x1f\x8b\x08"  # no TFRecord file begins so whose first record has less than half a megabyte
_FORM = ("form", "sequence_length", "max_predictions", "compression")
_PLACE_IN_TENSORFLOW = re.compile(r"\{\{.*?\}\} | \[Op:.*", re.DOTALL)
_TFRECORD_COMPRESSIONS = {"none": "", "gzip": "GZIP"}
_OF_THE_VOCABULARY = {
    "vocabulary_sha256": "the vocabulary (SHA-256)",
    "vocab_size": "the size of the vocabulary",
    "lower_case": "lower_case",
    "strip_accents": "strip_accents",
}


def describe_shards(paths):
    """What files of instances hold, from their sidecars and a first record.

    Args:
        paths: list of str.

    Returns:
        dict: `form`, `sequence_length`, `max_predictions`, `compression`; `sidecars`, a list of what made each file,
        with None for one that has nothing beside it, as the original's files have not; and `instances`, how many there
        are, or None if a sidecar is missing.

    Raises:
        FileNotFoundError: if there are no files, or one or some of a numbered set are missing.
        ValueError: if a file of ours is not finished or has lost bytes, files differ in length, form or compression, or
            are no instances.
        TypeError: if `paths` is one path.
    """
    if isinstance(paths, (str, bytes)):
        raise TypeError(f"paths must be a list of paths, got {paths!r}; tf.io.gfile.glob gives those of a pattern")
    if not paths:
        raise FileNotFoundError("no files of instances are given")
    _check_complete(paths)
    compressions, sizes = zip(*look_up_each(_compression_and_size, paths), strict=True)
    found = read_sidecars(paths)
    sidecars = [found.get(path) for path in paths]
    unfinished = [path for path, sidecar in zip(paths, sidecars, strict=True) if sidecar is None]
    if unfinished and len(unfinished) < len(paths):
        raise ValueError(
            f"{unfinished[0]} is not finished: nothing beside it says what made it, as it does beside the others. Run "
            "the program that makes them again"
        )
    for path, size, sidecar in zip(paths, sizes, sidecars, strict=True):
        if sidecar is not None and sidecar.get("bytes", size) != size:
            raise ValueError(f"{path} is damaged: it has {size:,} bytes instead of {sidecar['bytes']:,}. Make it again")
    form = _common_form(paths, compressions, sidecars)
    if unfinished:
        logging.warning(
            "of %s it cannot be checked whether the vocabulary is the model's: nothing beside %s says what made it",
            "the file" if len(paths) == 1 else f"{len(paths)} files",
            paths[0],
        )
    instances = None if unfinished else sum(sidecar["instances"] for sidecar in sidecars)
    return {**form, "sidecars": sidecars, "instances": instances}


def check_shards(description, tokenizer, max_position_embeddings):
    """Refuses instances that a model cannot learn from.

    Args:
        description: dict of `describe_shards`.
        tokenizer: `BertTokenizer` of the model.
        max_position_embeddings: int. The longest sequence of the model.

    Raises:
        ValueError: if the vocabulary is another one, or sequences are longer than the model's positions; the message
            has both values.
    """
    if description["sequence_length"] > max_position_embeddings:
        raise ValueError(
            f"the instances have {description['sequence_length']} tokens, and the model has "
            f"{max_position_embeddings} positions; make shorter ones (--max_seq_length)"
        )
    expected = describe_vocabulary(tokenizer)
    for sidecar in description["sidecars"]:
        for name, what in _OF_THE_VOCABULARY.items():
            if sidecar is not None and sidecar.get(name) != expected[name]:
                raise ValueError(
                    f"the instances were made otherwise than the model reads: {what} was {sidecar.get(name)}, and is "
                    f"{expected[name]} for the model. Give the vocabulary of then, or make the instances again"
                )


def shard_batches(
    paths,
    batch_size,
    worker_index=0,
    num_workers=1,
    seed=None,
    shuffle_buffer=SHUFFLE_BUFFER,
    first_epoch=0,
    epochs=None,
):
    """Batches of instances from files.

    Args:
        paths: list of str. TFRecord files of `tools.create_pretraining_data` or of google-research/bert, in either
            form of names, gzipped or not.
        batch_size: int. Instances in a batch of this worker; the last ones of a dataset that ends may be left out.
        worker_index, num_workers, seed, shuffle_buffer, first_epoch, epochs: as for `worker_records`. Without a seed
            nothing is shuffled.

    Returns:
        tf.data.Dataset of dicts of tensors [batch_size, ...], as of `InstanceMaker.make`. Its iterator can be
        checkpointed. A record whose check sum is wrong is an error of the iterator, `tf.errors.DataLossError`.

    Raises:
        FileNotFoundError, ValueError: as `describe_shards` and `worker_records`.

    Example:

    >>> from keras_bert.pretraining.records import FEATURE_NAMES, serialize
    >>> path = tempfile.mkdtemp() + "/instances.tfrecord"
    >>> with tf.io.TFRecordWriter(path) as writer:
    ...     for record in serialize({name: np.zeros([2, 3]) for name in FEATURE_NAMES["bert"]} | {
    ...         "next_sentence_labels": np.ones([2])
    ...     }):
    ...         writer.write(record)
    >>> next(iter(shard_batches([path], batch_size=2)))["next_sentence_labels"].numpy().tolist()
    [1, 1]
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    description = describe_shards(paths)
    compression = _TFRECORD_COMPRESSIONS[description["compression"]]
    records = worker_records(
        paths,
        lambda path: tf.data.TFRecordDataset(path, compression),
        worker_index,
        num_workers,
        seed=seed,
        shuffle_buffer=None if seed is None else shuffle_buffer,
        first_epoch=first_epoch,
        epochs=epochs,
    )
    form = {name: description[name] for name in _FORM if name != "compression"}
    return records.batch(batch_size, drop_remainder=True).map(lambda batch: parse(batch, **form)).prefetch(2)


def _check_complete(paths):
    """Refuses a part of a numbered set of files: what is missing was lost, or is not made yet."""
    sets = {}
    for path in paths:
        match = _SHARD_NAME.fullmatch(path)
        if match:
            sets.setdefault((match[1], match[3], match[4]), set()).add(int(match[2]))
    for (prefix, number, suffix), found in sets.items():
        missing = sorted(set(range(int(number))) - found)
        if missing:
            raise FileNotFoundError(
                f"{len(missing)} of the {int(number)} files {prefix}*-of-{number}{suffix or ''} are missing, such as "
                f"number {missing[0]}. Run the program that makes them again"
            )


def _compression_and_size(path):
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return "gzip" if file.read(len(_GZIP_MARK)) == _GZIP_MARK else "none", file.size()
    except (tf.errors.NotFoundError, tf.errors.FailedPreconditionError) as error:
        raise FileNotFoundError(f"there is no file {path}; give files of instances") from error


def _common_form(paths, compressions, sidecars):
    """What the first record says, after comparison with the other files."""
    common = first = None
    for path, compression, sidecar in zip(paths, compressions, sidecars, strict=True):
        # Where something says what is in a file, a record is read of the first one only.
        if common is None or sidecar is None:
            form = _form_of_file(path, compression)
            if form is None:
                continue
            common, first = common or form, first or path
            _check_same_form(path, form, first, common)
        if sidecar is not None:
            _check_same_form(path, {**sidecar, "compression": compression}, first, common)
    if common is None:
        raise ValueError(f"none of {len(paths)} files has an instance, such as {paths[0]}")
    return common


def _form_of_file(path, compression):
    try:
        for record in tf.data.TFRecordDataset(path, _TFRECORD_COMPRESSIONS[compression]).take(1):
            return {**record_form(record.numpy()), "compression": compression}
    except tf.errors.DataLossError as error:
        raise ValueError(f"{path} is no TFRecord file, or is damaged: {_reason(error)}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return None


def _reason(error):
    return _PLACE_IN_TENSORFLOW.sub("", error.message)


def _check_same_form(path, form, first, common):
    for name in _FORM:
        if form.get(name) != common[name]:
            raise ValueError(
                f"{path} has {name} {form.get(name)!r}, and {first} has {common[name]!r}; give files of one kind"
            )
