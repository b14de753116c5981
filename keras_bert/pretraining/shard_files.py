"""Files of instances, each with a file beside it that says what made it and that is written last."""

import contextlib
import hashlib
import json
import os

import tensorflow as tf

from keras_bert.io.atomic_write import UNFINISHED_MARK, atomic_remote_path
from keras_bert.io.remote_paths import look_up_each

SIDECAR_SUFFIX = ".json"
COMPRESSIONS = ("none", "gzip")
_NAME, _SUFFIX = "pretraining-", ".tfrecord"


def instances_path(folder, number, files):
    """Where instances are written.

    Args:
        folder: str.
        number: int, that of the file.
        files: int. How many there are.

    Returns:
        str.

    Example:

    >>> instances_path("data", 3, 10)
    'data/pretraining-00003-of-00010.tfrecord'
    """
    return os.path.join(folder, f"{_NAME}{number:05d}-of-{files:05d}{_SUFFIX}")


def describe_vocabulary(tokenizer):
    """What instances depend on in a tokenizer.

    Args:
        tokenizer: `BertTokenizer`.

    Returns:
        dict fit for JSON: `vocabulary_sha256` of the entries, one a line, `vocab_size`, and how text is treated.

    Example:

    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"], lower_case=True)
    >>> describe_vocabulary(tokenizer)["vocab_size"]
    5
    """
    return {
        "vocabulary_sha256": hashlib.sha256("\n".join(tokenizer.vocabulary).encode()).hexdigest(),
        "vocab_size": tokenizer.vocab_size,
        "lower_case": tokenizer.lower_case,
        "strip_accents": tokenizer.strip_accents,
        "special_tokens_in_text": tokenizer.special_tokens_in_text,
        "max_characters_per_word": tokenizer.max_characters_per_word,
    }


@contextlib.contextmanager
def record_file(path, compression="none"):
    """Opens a file for records, which appears under its name when the block ends without an error.

    Args:
        path: str. A file of this name is replaced.
        compression: str, "none" or "gzip".

    Returns:
        Context manager that gives a function to write one record, bytes.

    Example:

    >>> path = tempfile.mkdtemp() + "/records"
    >>> with record_file(path) as write:
    ...     write(b"one")
    >>> [record.numpy() for record in tf.data.TFRecordDataset(path)]
    [b'one']
    """
    with (
        atomic_remote_path(path) as unfinished,
        tf.io.TFRecordWriter(unfinished, "GZIP" if compression == "gzip" else None) as writer,
    ):
        yield writer.write


def write_sidecar(path, facts):
    """Says beside a file of instances what made it and its size in bytes; the file counts as finished from then on.

    Args:
        path: str, the file of instances.
        facts: dict fit for JSON.
    """
    facts = {**facts, "bytes": tf.io.gfile.stat(path).length}
    with atomic_remote_path(path + SIDECAR_SUFFIX) as unfinished, tf.io.gfile.GFile(unfinished, "w") as file:
        file.write(json.dumps(facts, indent=1, sort_keys=True) + "\n")


def read_sidecar(path):
    """What made a file of instances.

    Args:
        path: str, the file of instances.

    Returns:
        dict, or None if nothing stands beside the file.

    Raises:
        ValueError: if what stands there is not JSON of an object.

    Example:

    >>> path = tempfile.mkdtemp() + "/records"
    >>> _ = Path(path).write_bytes(b"")
    >>> write_sidecar(path, {"instances": 0})
    >>> read_sidecar(path)
    {'bytes': 0, 'instances': 0}
    """
    try:
        with tf.io.gfile.GFile(path + SIDECAR_SUFFIX, "r") as file:
            facts = json.loads(file.read())
    except tf.errors.NotFoundError:
        return None
    except ValueError as error:
        raise ValueError(
            f"{path + SIDECAR_SUFFIX} is not JSON ({error}); delete it, and make its shard again"
        ) from error
    if not isinstance(facts, dict):
        raise ValueError(f"{path + SIDECAR_SUFFIX} holds no JSON object; delete it, and make its shard again")
    return facts


def read_sidecars(paths):
    """What made files of instances, many at a time.

    Args:
        paths: list of str, files of instances.

    Returns:
        dict of path to dict, of those beside which something stands.

    Raises:
        ValueError: as `read_sidecar`.

    Example:

    >>> read_sidecars([tempfile.mkdtemp() + "/records"])
    {}
    """
    found = dict(zip(paths, look_up_each(read_sidecar, paths), strict=True))
    return {path: facts for path, facts in found.items() if facts is not None}


def remove_unfinished(folder):
    """Removes what interrupted processes left in a folder.

    Args:
        folder: str.
    """
    for name in _names_in(folder):
        if name.startswith(f".{_NAME}") and UNFINISHED_MARK in name:
            tf.io.gfile.remove(os.path.join(folder, name))


def instance_files(folder):
    """The files of instances in a folder, whatever made them.

    Args:
        folder: str.

    Returns:
        list of str, paths in alphabetical order; empty if there is no folder.

    Example:

    >>> folder = tempfile.mkdtemp()
    >>> _ = Path(instances_path(folder, 0, 1)).touch()
    >>> [Path(path).name for path in instance_files(folder)]
    ['pretraining-00000-of-00001.tfrecord']
    """
    names = (name for name in _names_in(folder) if name.startswith(_NAME) and name.endswith(_SUFFIX))
    return [os.path.join(folder, name) for name in sorted(names)]


def _names_in(folder):
    # Not a pattern, since the folder's own name may have characters that mean something in one.
    try:
        return tf.io.gfile.listdir(folder)
    except tf.errors.NotFoundError:
        return []
