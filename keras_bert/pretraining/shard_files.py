"""Files of instances, and their sidecars: JSON files with the metadata. A file without a sidecar is unfinished."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from keras_bert.io.atomic_write import UNFINISHED_MARK, atomic_remote_path
from keras_bert.io.remote_paths import look_up_each
from keras_bert.text.tokenizer import BertTokenizer

SIDECAR_SUFFIX = ".json"
COMPRESSIONS = ("none", "gzip")
_PREFIX, _SUFFIX = "pretraining-", ".tfrecord"


def instances_path(folder: str, number: int, num_files: int) -> str:
    """Returns the path of file `number` of `num_files`."""
    return os.path.join(folder, f"{_PREFIX}{number:05d}-of-{num_files:05d}{_SUFFIX}")


def describe_vocabulary(tokenizer: BertTokenizer) -> dict[str, Any]:
    """Returns all properties of a tokenizer that change the ids of a text, as JSON values."""
    return {
        "vocabulary_sha256": hashlib.sha256("\n".join(tokenizer.vocabulary).encode()).hexdigest(),
        "vocab_size": tokenizer.vocab_size,
        "lower_case": tokenizer.lower_case,
        "strip_accents": tokenizer.strip_accents,
        "special_tokens_in_text": tokenizer.special_tokens_in_text,
        "max_characters_per_word": tokenizer.max_characters_per_word,
    }


@contextlib.contextmanager
def open_record_file(path: str, compression: str = "none") -> Iterator[Callable[[bytes], None]]:
    """Yields a function that writes a record. The file appears under its name if the block ends without an error."""
    options = "GZIP" if compression == "gzip" else None
    with atomic_remote_path(path) as unfinished, tf.io.TFRecordWriter(unfinished, options) as writer:
        yield writer.write


def write_sidecar(path: str, metadata: Mapping[str, Any]) -> None:
    """Writes the sidecar of a file of instances, with the file's size in `bytes`."""
    metadata = {**metadata, "bytes": tf.io.gfile.stat(path).length}
    with atomic_remote_path(path + SIDECAR_SUFFIX) as unfinished, tf.io.gfile.GFile(unfinished, "w") as file:
        file.write(json.dumps(metadata, indent=1, sort_keys=True) + "\n")


def read_sidecar(path: str) -> dict[str, Any] | None:
    """Reads the sidecar of a file of instances; None if there is none."""
    try:
        with tf.io.gfile.GFile(path + SIDECAR_SUFFIX, "r") as file:
            metadata = json.loads(file.read())
    except tf.errors.NotFoundError:
        return None
    except ValueError as error:
        raise ValueError(
            f"{path + SIDECAR_SUFFIX} is not JSON ({error}); delete it and make its shard again"
        ) from error
    if not isinstance(metadata, dict):
        raise ValueError(f"{path + SIDECAR_SUFFIX} is not a JSON object; delete it and make its shard again")
    return metadata


def read_sidecars(paths: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Reads the sidecars of files of instances in parallel, by path; files without a sidecar are left out."""
    paths = list(paths)
    found = dict(zip(paths, look_up_each(read_sidecar, paths), strict=True))
    return {path: metadata for path, metadata in found.items() if metadata is not None}


def remove_unfinished(folder: str) -> None:
    """Removes the leftovers of interrupted processes from a folder."""
    for name in _list_names(folder):
        if name.startswith(f".{_PREFIX}") and UNFINISHED_MARK in name:
            tf.io.gfile.remove(os.path.join(folder, name))


def instance_files(folder: str) -> list[str]:
    """Lists the files of instances in a folder in alphabetical order; empty if there is no folder."""
    names = (name for name in _list_names(folder) if name.startswith(_PREFIX) and name.endswith(_SUFFIX))
    return [os.path.join(folder, name) for name in sorted(names)]


def _list_names(folder: str) -> list[str]:
    # Not a pattern: the name of the folder may contain special characters.
    try:
        return tf.io.gfile.listdir(folder)
    except tf.errors.NotFoundError:
        return []
