"""Batches of instances from files, those of `tools.create_pretraining_data` and of google-research/bert."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from keras_bert.data.worker_records import WorkerEpochs, check_positive, worker_records
from keras_bert.io.remote_paths import look_up_each
from keras_bert.pretraining.records import describe_record, parse_records
from keras_bert.pretraining.shard_files import describe_vocabulary, read_sidecars
from keras_bert.text.tokenizer import BertTokenizer

SHUFFLE_BUFFER = 4096  # instances
_SHARD_NAME = re.compile(r"(.*-)([0-9]+)-of-([0-9]+)(\..*)?")
_GZIP_MARK = b"\x1f\x8b\x08"  # a TFRecord file starts like this only if its first record is over half a megabyte
_COMMON_NAMES = ("record_format", "sequence_length", "max_predictions", "compression")
_TENSORFLOW_LOCATION = re.compile(r"\{\{.*?\}\} | \[Op:.*", re.DOTALL)
_TFRECORD_COMPRESSIONS = {"none": "", "gzip": "GZIP"}
_VOCABULARY_LABELS = {
    "vocabulary_sha256": "the vocabulary's SHA-256",
    "vocab_size": "the vocabulary size",
    "lower_case": "lower_case",
    "strip_accents": "strip_accents",
}


def describe_shards(paths: Sequence[str]) -> dict[str, Any]:
    """Describes TFRecord files of instances, from their sidecars and a first record.

    Returns `record_format` ("bert" or "models"), `sequence_length`, `max_predictions`, `compression`; `sidecars`, the
    metadata of each file, None for those of google-research/bert; and `instances`, their number, or None if a sidecar
    is missing. Raises FileNotFoundError if there are no files, or some of a numbered set are missing, and ValueError if
    a file is unfinished, truncated or not of instances, or files differ in length, format or compression.
    """
    if isinstance(paths, (str, bytes)):
        raise TypeError(f"paths must be a list of paths, got {paths!r}; expand a pattern with tf.io.gfile.glob")
    if not paths:
        raise FileNotFoundError("no files of instances are given")
    _check_is_complete(paths)
    compressions, sizes = zip(*look_up_each(_read_compression_and_size, paths), strict=True)
    found = read_sidecars(paths)
    sidecars = [found.get(path) for path in paths]
    without_sidecar = [path for path, sidecar in zip(paths, sidecars, strict=True) if sidecar is None]
    if without_sidecar and len(without_sidecar) < len(paths):
        raise ValueError(
            f"{without_sidecar[0]} is unfinished: it has no sidecar ({without_sidecar[0]}.json), unlike other files. "
            "Run the program that made them again"
        )
    for path, size, sidecar in zip(paths, sizes, sidecars, strict=True):
        if sidecar is not None and sidecar.get("bytes", size) != size:
            raise ValueError(f"{path} is damaged: it has {size:,} bytes instead of {sidecar['bytes']:,}. Make it again")
    common = _check_common_format(paths, compressions, sidecars)
    if without_sidecar:
        logging.warning("%s has no sidecar: the vocabulary of the instances cannot be checked", paths[0])
    num_instances = None if without_sidecar else sum(sidecar["instances"] for sidecar in found.values())
    return {**common, "sidecars": sidecars, "instances": num_instances}


def check_shards(description: Mapping[str, Any], tokenizer: BertTokenizer, max_position_embeddings: int) -> None:
    """Raises ValueError if a model cannot be trained on instances with the given result of `describe_shards`.

    The vocabulary must be that of the tokenizer, and sequences no longer than `max_position_embeddings`.
    """
    if description["sequence_length"] > max_position_embeddings:
        raise ValueError(
            f"the instances have {description['sequence_length']} tokens, but the model has "
            f"{max_position_embeddings} positions; make shorter instances (--max_seq_length)"
        )
    expected = describe_vocabulary(tokenizer)
    for sidecar in description["sidecars"]:
        for name, label in _VOCABULARY_LABELS.items():
            if sidecar is not None and sidecar.get(name) != expected[name]:
                raise ValueError(
                    f"the instances were made for another tokenizer: {label} is {sidecar.get(name)} for the instances "
                    f"and {expected[name]} for the model. Give the vocabulary of the instances, or make them again"
                )


def shard_batches(
    paths: Sequence[str],
    batch_size: int,
    worker_index: int = 0,
    num_workers: int = 1,
    seed: int | None = None,
    shuffle_buffer: int = SHUFFLE_BUFFER,
    first_epoch: int = 0,
    epochs: int | None = None,
) -> tf.data.Dataset:
    """Reads batches of instances from files.

    Args:
        paths: TFRecord files of `tools.create_pretraining_data`, google-research/bert or tensorflow/models, gzipped or
            not.
        batch_size: Instances per batch of this worker. The last ones of a finite dataset may be left out.
        worker_index, num_workers: Number of this worker, from 0, and of all, which split the instances.
        seed: Seed of the order, which is a function of (seed, epoch). None keeps the order of the files.
        shuffle_buffer: Number of instances that are shuffled together.
        first_epoch: Number of the first epoch.
        epochs: Number of epochs; None means no limit.

    Returns a dataset as `text_batches` does. A record with a wrong checksum raises `tf.errors.DataLossError`. Raises
    ValueError if a number is out of range, and the errors of `describe_shards`.
    """
    check_positive(batch_size=batch_size)
    description = describe_shards(paths)
    compression = _TFRECORD_COMPRESSIONS[description["compression"]]
    records = worker_records(
        paths,
        lambda path: tf.data.TFRecordDataset(path, compression),
        WorkerEpochs(worker_index, num_workers, first_epoch, epochs),
        seed=seed,
        shuffle_buffer=None if seed is None else shuffle_buffer,
    )
    return parse_batches(records.batch(batch_size, drop_remainder=True), description).prefetch(2)


def read_first_instances(paths: Sequence[str], description: Mapping[str, Any], num_per_file: int) -> tf.data.Dataset:
    """Reads batches of the first instances of each file; `description` is the result of `describe_shards`."""
    compression = _TFRECORD_COMPRESSIONS[description["compression"]]
    files = tf.data.Dataset.from_tensor_slices(list(paths))
    records = files.flat_map(lambda path: tf.data.TFRecordDataset(path, compression).take(num_per_file))
    return parse_batches(records.batch(1024), description)


def parse_batches(batches: tf.data.Dataset, description: Mapping[str, Any]) -> tf.data.Dataset:
    """Parses batches of serialized records."""
    names = [name for name in _COMMON_NAMES if name != "compression"]
    return batches.map(lambda batch: parse_records(batch, *(description[name] for name in names)))


def _check_is_complete(paths: Sequence[str]) -> None:
    """Raises an error if only a part of a numbered set of files is given."""
    sets: dict[tuple[str, ...], set[int]] = {}
    for path in paths:
        match = _SHARD_NAME.fullmatch(path)
        if match:
            sets.setdefault((match[1], match[3], match[4]), set()).add(int(match[2]))
    for (prefix, num_files, suffix), numbers in sets.items():
        missing = sorted(set(range(int(num_files))) - numbers)
        if missing:
            raise FileNotFoundError(
                f"{len(missing)} of the {int(num_files)} files {prefix}*-of-{num_files}{suffix or ''} are missing, "
                f"such as number {missing[0]}. Run the program that made them again"
            )


def _read_compression_and_size(path: str) -> tuple[str, int]:
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return "gzip" if file.read(len(_GZIP_MARK)) == _GZIP_MARK else "none", file.size()
    except (tf.errors.NotFoundError, tf.errors.FailedPreconditionError) as error:
        raise FileNotFoundError(f"{path} does not exist or is a folder; give files of instances") from error


def _check_common_format(
    paths: Sequence[str], compressions: Sequence[str], sidecars: Sequence[dict[str, Any] | None]
) -> dict[str, Any]:
    """Returns the format of the first record, after a comparison with all files."""
    common: dict[str, Any] = {}
    first = ""
    for path, compression, sidecar in zip(paths, compressions, sidecars, strict=True):
        # With sidecars, a record of the first file is enough.
        if not common or sidecar is None:
            found = _describe_first_record(path, compression)
            if found is None:
                continue
            common, first = common or found, first or path
            _check_same_format(path, found, first, common)
        if sidecar is not None:
            _check_same_format(path, {**sidecar, "compression": compression}, first, common)
    if not common:
        raise ValueError(f"none of the {len(paths)} files contains an instance, such as {paths[0]}")
    return common


def _describe_first_record(path: str, compression: str) -> dict[str, Any] | None:
    try:
        for record in tf.data.TFRecordDataset(path, _TFRECORD_COMPRESSIONS[compression]).take(1):
            return {**describe_record(record.numpy()), "compression": compression}
    except tf.errors.DataLossError as error:
        reason = _TENSORFLOW_LOCATION.sub("", error.message)
        raise ValueError(f"{path} is not a TFRecord file, or is damaged: {reason}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return None


def _check_same_format(path: str, found: Mapping[str, Any], first: str, common: Mapping[str, Any]) -> None:
    for name in _COMMON_NAMES:
        if found.get(name) != common[name]:
            raise ValueError(
                f"{path} has {name} {found.get(name)!r}, but {first} has {common[name]!r}; give files of one format"
            )
