"""Reads SavedModels of BERT from TensorFlow Hub (encoders of version 3 and 4): a folder, or the archive of one.

Nothing of the model is run: only its variables are read, as a checkpoint, and `assets/vocab.txt`.
"""

import dataclasses
import gzip
import re
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from keras_bert.weights.bert_config import find_vocabulary
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.folder_paths import member_path
from keras_bert.weights.model_garden import EncoderObjects, find_encoder, read_objects
from keras_bert.weights.tensor_bundle_file import open_tensor_bundle
from keras_bert.weights.tensor_file import TensorFile

MODEL_NAME = "saved_model.pb"
ARCHIVE_SUFFIXES = (".tar.gz", ".tgz")
_SETTINGS_NAME = "keras_metadata.pb"
_VARIABLES = ("variables", "variables")  # variables/variables.index, ...
_ASSETS = "assets"
_LOWER_CASE = "do_lower_case"
_MAX_SETTINGS_BYTES = 2**26
_MAX_MEMBERS = 10_000
_MAX_READ_BYTES = 2**20  # at a time, from an archive
# Bytes that an archive may unpack to: graphs of operations are packed to a tenth, weights hardly at all.
_MAX_UNPACKED, _MAX_UNPACKED_RATIO = 2**27, 5
# Defaults of `bert_config.json` and of `export_tfhub_lib.py`; the files do not state them.
_DEFAULTS = {
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
# The Model Garden's own "gelu" is the tanh form, and that of Keras the erf form.
_ACTIVATIONS = {"Text>gelu": "gelu_new", "gelu": "gelu", "relu": "relu", "tanh": "tanh", "linear": "linear"}
_ACTIVATION = re.compile(rb'"inner_activation": "([^"]{0,100})"')
_NORM_FIRST = re.compile(rb'"norm_first": true')


def find(path: Path) -> Path | None:
    """Returns the folder or archive of the SavedModel at a path, also of `saved_model.pb`; None if there is none."""
    if path.is_file():
        if path.name == MODEL_NAME:
            return path.parent
        return path if path.name.endswith(ARCHIVE_SUFFIXES) else None
    return path if (path / MODEL_NAME).is_file() else None


def read(path: Path) -> Checkpoint:
    """Reads a BERT encoder from a SavedModel, with its head for masked words where it has one.

    The sizes are read from the shapes of the variables. Whether the tokenizer lower-cases is read from the variable
    `do_lower_case`. An archive is unpacked to a temporary folder; its vocabulary is returned as wordpieces.
    """
    if path.is_dir():
        return _read_folder(path)
    with tempfile.TemporaryDirectory(prefix="keras_bert_") as unpacked:
        try:
            checkpoint = _read_folder(_unpack(path, Path(unpacked)))
            vocabulary = checkpoint.vocabulary
            wordpieces = _read_lines(vocabulary) if isinstance(vocabulary, Path) else None
        except (ValueError, FileNotFoundError) as error:
            # The folder is gone when the message is read.
            message = str(error).replace(unpacked, str(path))
            kind = ValueError if isinstance(error, ValueError) else FileNotFoundError
            raise kind(message if str(path) in message else f"{path}: {message}") from error
    return dataclasses.replace(checkpoint, path=path, vocabulary=wordpieces)


def _read_lines(file: Path) -> tuple[str, ...]:
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 ({error}). Fetch the model again.") from error
    return tuple(line.strip() for line in text.removesuffix("\n").split("\n"))


def _read_folder(folder: Path) -> Checkpoint:
    variables = folder / _VARIABLES[0]
    if not variables.is_dir():
        raise FileNotFoundError(
            f"{folder}: {MODEL_NAME} is there, but the folder {_VARIABLES[0]!r} is not. Fetch the whole model again."
        )
    prefix = member_path(folder, _VARIABLES[0], named_in=folder / MODEL_NAME) / _VARIABLES[1]
    tensors = open_tensor_bundle(prefix)
    objects = find_encoder(tensors)
    arguments = _read_arguments(tensors, objects) | _read_settings(folder)
    assets = member_path(folder, _ASSETS, named_in=folder / MODEL_NAME)
    vocabulary = find_vocabulary(assets, arguments["vocab_size"], prefix)
    checkpoint = read_objects(tensors, objects, arguments, source="tf_hub", vocabulary=vocabulary)
    name = objects.graph.key(0, _LOWER_CASE)
    lower_case = None
    if name is not None and name in tensors.entries:
        entry = tensors.entries[name]
        if entry.dtype != "bool" or entry.shape:
            raise ValueError(
                f"{prefix}: {_LOWER_CASE} must be one bool; found {entry.dtype} of shape {list(entry.shape)}. Fetch "
                "the model again."
            )
        lower_case = bool(tensors.read(name))
    unused = tuple(unread for unread in checkpoint.unused if unread != name)
    return dataclasses.replace(checkpoint, path=folder, lower_case=lower_case, unused=unused)


def _read_arguments(tensors: TensorFile, objects: EncoderObjects) -> dict[str, Any]:
    """Returns the constructor arguments of an encoder, from the shapes of its variables."""
    query = objects.query_shape(tensors)
    variables = objects.variables(num_heads=query[1] if len(query) == 3 else 1)
    rows = {}
    for argument, path, axis in (
        ("vocab_size", "embeddings/token_embeddings", 0),
        ("max_position_embeddings", "embeddings/position_embeddings", 0),
        ("type_vocab_size", "embeddings/segment_embeddings", 0),
        ("intermediate_size", "transformer_block_0/intermediate/kernel", 1),
    ):
        entry = tensors.entries.get(variables[f"encoder/{path}"].names[0])
        rows[argument] = entry.shape[axis] if entry is not None and len(entry.shape) == 2 else 0
    if len(query) != 3 or query[0] != query[1] * query[2] or not all((*query, *rows.values())):
        raise ValueError(
            f"{tensors.path}: this is not a BERT: the first query's kernel must be of shape [hidden size, heads, "
            f"hidden size / heads], found {list(query)}; and sizes of at least 1, found {rows}. Only BERT itself can "
            "be read."
        )
    return {
        **rows,
        "hidden_size": query[0],
        "num_attention_heads": query[1],
        "num_hidden_layers": len(objects.blocks),
        **_DEFAULTS,
    }


def _read_settings(folder: Path) -> dict[str, str]:
    """Returns the activation that a SavedModel of Keras states, if any; ValueError if it is of another architecture."""
    path = folder / _SETTINGS_NAME
    if not path.is_file():
        return {}
    with open(member_path(folder, path.name, named_in=folder / MODEL_NAME), "rb") as file:
        text = file.read(_MAX_SETTINGS_BYTES)
    if _NORM_FIRST.search(text):
        raise ValueError(
            f"{path}: norm_first must be false; found true. Only BERT itself, which normalizes last, can be read."
        )
    match = _ACTIVATION.search(text)
    if not match:
        return {}
    activation = match[1].decode("utf-8", errors="backslashreplace")
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"{path}: inner_activation must be one of {sorted(_ACTIVATIONS)}; found {activation!r}. A model with "
            "another activation cannot be read."
        )
    return {"hidden_act": _ACTIVATIONS[activation]}


# === Archives ===


class _Unpacked:
    """The contents of a gzip file, which may not be longer than a limit, in reads that are not long either."""

    def __init__(self, file: gzip.GzipFile, limit: int) -> None:
        self._file, self._limit = file, limit

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_READ_BYTES:
            raise ValueError(f"a header of {size} bytes")
        self._check(self._file.tell() + size)
        return self._file.read(size)

    def seek(self, position: int) -> int:
        self._check(position)
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()

    def _check(self, position: int) -> None:
        if position > self._limit + _MAX_READ_BYTES:
            raise ValueError(f"it unpacks to more than {self._limit} bytes")


def _unpack(path: Path, folder: Path) -> Path:
    """Unpacks the files that are read from an archive, and returns the folder of the SavedModel."""
    limit = max(_MAX_UNPACKED, _MAX_UNPACKED_RATIO * path.stat().st_size)
    try:
        with gzip.open(path) as file, tarfile.open(fileobj=_Unpacked(file, limit), mode="r:") as archive:  # type: ignore[call-overload]
            return _unpack_members(archive, folder)
    except Exception as error:  # of a damaged archive, tarfile raises errors of many types
        raise ValueError(
            f"{path}: not an archive of a SavedModel ({error!s:.500}); it has {path.stat().st_size} bytes. Fetch it "
            "again, or pass the folder that it unpacks to."
        ) from error


def _unpack_members(archive: tarfile.TarFile, folder: Path) -> Path:
    roots: list[PurePosixPath] = []
    names: set[PurePosixPath] = set()
    for member in archive:
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts or "\\" in member.name:
            raise ValueError(f"the member {member.name!r:.200} is not in the folder that it unpacks to")
        if not (member.isfile() or member.isdir()) or member.issparse():
            raise ValueError(
                f"the member {member.name!r:.200} is a link or device; only files and folders are unpacked"
            )
        if name in names or len(names) == _MAX_MEMBERS:
            raise ValueError(f"the member {member.name!r:.200} occurs twice, or is one of more than {_MAX_MEMBERS}")
        names.add(name)
        if name.name == MODEL_NAME:
            roots.append(name.parent)
        if member.isfile() and _is_read(name):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            source = archive.extractfile(member)
            assert source is not None
            with open(target, "xb") as copy:
                shutil.copyfileobj(source, copy, _MAX_READ_BYTES // 2)
    if len(roots) != 1:
        raise ValueError(f"it contains {len(roots)} files {MODEL_NAME}, not one")
    return folder / roots[0]


def _is_read(name: PurePosixPath) -> bool:
    parent = name.parent.name
    is_variable = parent == _VARIABLES[0] and name.name.startswith(f"{_VARIABLES[1]}.")
    return is_variable or name.name == _SETTINGS_NAME or (parent == _ASSETS and name.name == "vocab.txt")
