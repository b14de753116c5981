"""Finds and reads files of pre-training instances for `tools.inspect_pretraining_data`, a batch at a time."""

import gzip
import os
import struct
from dataclasses import fields
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.io.remote_paths import look_up_each
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.records import parse, record_form
from keras_bert.pretraining.shard_files import SIDECAR_SUFFIX, instance_files, read_sidecar
from tools.instances.facts import COUNTED_FACTS

_MARKS_OF_NAMES = ("tfrecord", "tf_record")
_GZIP_MARK = b"\x1f\x8b"
_IDS = "token_ids", "masked_labels"
_FRAME = 16  # bytes that a TFRecord file has around each record
_INSTANCES_AT_ONCE = 512


class InstanceShard(NamedTuple):
    """A file of instances.

    Attributes:
        path: str.
        size: int. Its bytes.
        facts: dict of what made it, from the file beside it; None if there is none.
        settings: `InstanceSettings`, those of the facts, or None.
    """

    path: str
    size: int
    facts: dict | None
    settings: InstanceSettings | None


class InstanceBatch(NamedTuple):
    """Instances of one file, one after the other.

    Attributes:
        shard: `InstanceShard`.
        start: int. The place of the first one in the file, from 0.
        instances: dict of arrays, as of `InstanceMaker.make`.
    """

    shard: InstanceShard
    start: int
    instances: dict


def find_shards(names):
    """The files of instances of names.

    Of a folder these are the files of `tools.create_pretraining_data`, those with `tfrecord` or `tf_record` in their
    name, and those beside which `NAME.json` says what made them. Hidden files are never read, and what stands beside a
    file of instances is no file of instances.

    Args:
        names: list of str, paths of files or folders, or patterns.

    Returns:
        list of str, those of each name in alphabetical order.

    Raises:
        FileNotFoundError: if there are no names, or a name has no files.
        ValueError: if a file is given twice.
    """
    if not names:
        raise FileNotFoundError("no files are given; name files of instances, patterns of them, or their folder")
    found = [path for name in names for path in _files_of(name)]
    seen = set()
    for path in found:
        real = path if "://" in path else os.path.realpath(path)
        if real in seen:
            raise ValueError(f"{path} is given twice; its instances would count twice")
        seen.add(real)
    return found


def _files_of(name):
    if tf.io.gfile.isdir(name):
        found = _files_of_folder(name)
        if not found:
            raise FileNotFoundError(
                f"the folder {name} has no files of instances: none is named *tfrecord* or has {SIDECAR_SUFFIX} beside "
                "it that says what made it. If they are named otherwise, give a pattern"
            )
        return found
    if tf.io.gfile.exists(name):
        # A shell that expands FOLDER/* names these, too.
        return [] if _is_sidecar(name) else [name]
    # A pattern takes * for hidden files, too.
    found = [path for path in sorted(tf.io.gfile.glob(name)) if not _is_hidden(path)]
    found = [path for path in found if not (tf.io.gfile.isdir(path) or _is_sidecar(path))]
    if not found:
        raise FileNotFoundError(f"no file of instances is named {name}")
    return found


def _files_of_folder(folder):
    names = set(tf.io.gfile.listdir(folder))
    marked = {
        name
        for name in names
        if not name.endswith(SIDECAR_SUFFIX)
        and (any(mark in name.lower() for mark in _MARKS_OF_NAMES) or name + SIDECAR_SUFFIX in names)
    }
    paths = {os.path.join(folder, name) for name in marked if not name.startswith(".")} | set(instance_files(folder))
    return sorted(path for path in paths if not tf.io.gfile.isdir(path))


def _is_hidden(path):
    return path.rpartition("/")[2].startswith(".")


def _is_sidecar(path):
    return path.endswith(SIDECAR_SUFFIX) and tf.io.gfile.exists(path.removesuffix(SIDECAR_SUFFIX))


def describe_files(paths):
    """What stands beside files of instances.

    Args:
        paths: list of str.

    Returns:
        list of `InstanceShard`.

    Raises:
        ValueError: if what stands beside a file does not say what made instances, or if by it the files are of
            different lengths or forms.
    """
    shards = look_up_each(_describe_file, paths)
    described = [shard for shard in shards if shard.facts is not None]
    for shard in described[1:]:
        _check_same_kind(shard.path, shard.facts, described[0].path, described[0].facts)
    return shards


def _describe_file(path):
    facts = read_sidecar(path)
    return InstanceShard(path, tf.io.gfile.stat(path).length, facts, None if facts is None else _settings(path, facts))


def _settings(path, facts):
    names = [field.name for field in fields(InstanceSettings)]
    needed = {"sequence_length", "max_predictions", "form", "instances"}
    is_counted = all(isinstance(facts.get(name, 0), int) for name in COUNTED_FACTS)
    if not (needed <= set(facts) and is_counted):
        raise ValueError(
            f"{path}{SIDECAR_SUFFIX} does not say what made instances: it has {sorted(facts)[:20]}, and "
            f"{sorted(needed)} are needed, and whole numbers of what is counted. Move it, if it belongs to another file"
        )
    try:
        return InstanceSettings(**{name: facts[name] for name in names if name in facts})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}{SIDECAR_SUFFIX} has settings that cannot be: {error}") from error


def _check_same_kind(path, form, other_path, other_form):
    for name in ("form", "sequence_length", "max_predictions"):
        if form[name] != other_form[name]:
            raise ValueError(
                f"{path} has {name} {form[name]!r}, and {other_path} has {other_form[name]!r}; read one kind at a time"
            )


class InstanceReader:
    """Reads instances, spread over all files, in their order.

    Of each file the first ones are read, as many as its share of all instances allows (of all bytes, where a file does
    not say how many instances it has). google-research/bert's files are shuffled as a whole, and the first ones stand
    for all; in those of `tools.create_pretraining_data` they are a random part of it.

    Args:
        shards: list of `InstanceShard`.
        most: int. Most instances; 0 is all.
        vocab_size: int. How many ids there can be; None is any number.

    Attributes, of what was read so far:
        form: dict, `form`, `sequence_length` and `max_predictions`; None before the first instance.
        compressions: set of "none" and "gzip".
        empty: list of str, the paths of files without instances.
        is_complete: bool. False if an instance was left out.
    """

    def __init__(self, shards, most, vocab_size=None):
        self._shards = shards
        self._most = most
        self._vocab_size = vocab_size
        self.form = None
        self.compressions = set()
        self.empty = []
        self.is_complete = True
        self._first_path = None
        self._taken = 0

    def __iter__(self):
        """Yields `InstanceBatch`.

        Raises:
            ValueError: if a file is no TFRecord file, is damaged or truncated, or holds something else than instances
                of one length and form.
        """
        for shard, end in zip(self._shards, self._last_numbers(), strict=True):
            limit = None if end is None else end - self._taken
            yield from self._read(shard, limit)

    def _last_numbers(self):
        """For each file, how many instances are to be read up to it and in it, or None."""
        if self._most == 0:
            return [None] * len(self._shards)
        known = all(shard.facts is not None for shard in self._shards)
        weights = np.cumsum([shard.facts["instances"] if known else shard.size for shard in self._shards])
        return np.rint(self._most * weights / max(weights[-1], 1)).astype(int).tolist()

    def _read(self, shard, limit):
        with tf.io.gfile.GFile(shard.path, "rb") as file:
            is_gzip = file.read(2) == _GZIP_MARK
        self.compressions.add("gzip" if is_gzip else "none")
        dataset = tf.data.TFRecordDataset(shard.path, "GZIP" if is_gzip else "")
        number = size = 0
        has_more = False
        # One record more tells whether there are others.
        for records in _named_errors(
            shard.path, dataset.take(-1 if limit is None else limit + 1).batch(_INSTANCES_AT_ONCE)
        ):
            size += sum(len(record) + _FRAME for record in records)
            if number == 0:
                self._check_form(shard, records[0])
            if limit is not None and number + len(records) > limit:
                records, has_more = records[: limit - number], True
            if len(records):
                yield InstanceBatch(shard, number, self._parse(shard, number, records))
            number += len(records)
        self._taken += number
        if has_more:
            self.is_complete = False
        else:
            _check_end(shard, number, size, is_gzip)
            if number == 0:
                self.empty.append(shard.path)

    def _check_form(self, shard, record):
        try:
            form = record_form(record)
        except ValueError as error:
            raise ValueError(f"{shard.path}: {error}") from error
        if self.form is None:
            self.form, self._first_path = form, shard.path
        _check_same_kind(shard.path, form, self._first_path, self.form)
        if shard.facts is not None:
            _check_same_kind(shard.path, form, shard.path + SIDECAR_SUFFIX, shard.facts)

    def _parse(self, shard, start, records):
        try:
            parsed = parse(tf.constant(records), **self.form)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                f"{shard.path}: one of the records {start + 1:,} to {start + len(records):,} is of another kind than "
                f"the first: {_reason(error)}"
            ) from error
        instances = {name: values.numpy() for name, values in parsed.items()}
        _check_values(shard, start, instances, self._vocab_size)
        return instances


def _named_errors(path, dataset):
    try:
        yield from dataset.as_numpy_iterator()
    except tf.errors.DataLossError as error:
        raise ValueError(f"{path} is no TFRecord file, or is truncated or damaged: {_reason(error)}") from error


def _reason(error):
    """The message of an error without the names of TensorFlow's operations."""
    return error.message.rpartition("}} ")[2].partition(" [Op:")[0].strip()


def _check_end(shard, number, size, is_gzip):
    """Refuses what a reader of TFRecord files takes for the end: a few bytes more, which began a record."""
    advice = "make it again, or copy it again"
    if is_gzip:
        _check_end_of_gzip(shard.path, size, advice)
    elif size != shard.size:
        raise ValueError(
            f"{shard.path} is truncated, or no TFRecord file: after {number:,} instances there are "
            f"{shard.size - size:,} bytes, which are no record; {advice}"
        )
    if shard.facts is not None and shard.facts["instances"] != number:
        raise ValueError(
            f"{shard.path} has {number:,} instances, and {shard.path}{SIDECAR_SUFFIX} says "
            f"{shard.facts['instances']:,}; {advice}"
        )


def _check_end_of_gzip(path, size, advice):
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(max(file.size() - 4, 0))
        if file.read(4) == struct.pack("<I", size % (1 << 32)):
            return
        file.seek(0)
        try:  # of several parts, as gzip allows, the size is that of the last one
            with gzip.GzipFile(fileobj=file) as content:
                while content.read(1 << 20):
                    pass
        except (EOFError, OSError) as error:
            raise ValueError(f"{path} is truncated or damaged: {error}; {advice}") from error


def _check_values(shard, start, instances, vocab_size):
    """Refuses numbers that cannot be, by which nothing could be counted."""
    length = instances["token_ids"].shape[1]
    highest = {
        **dict.fromkeys(_IDS, vocab_size),
        "masked_positions": length,
        "padding_mask": 2,
        "segment_ids": 2,
        "next_sentence_labels": 2,
    }
    for name, end in highest.items():
        values = instances[name].reshape([len(instances[name]), -1])
        is_wrong = (values < 0) | (False if end is None else values >= end)
        if is_wrong.any():
            row, column = np.argwhere(is_wrong)[0]
            allowed = "at least 0" if end is None else f"0 to {end - 1:,}"
            vocabulary = ". Give the vocabulary that made them" if name in _IDS else ""
            raise ValueError(
                f"{shard.path}: instance {start + row + 1:,} has {name} {values[row, column]}, and they can be "
                f"{allowed}{vocabulary}"
            )
