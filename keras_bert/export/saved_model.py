"""Writes a SavedModel from named functions."""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from keras_bert.export.ops import find_unserved_operations
from keras_bert.export.serving_files import MAX_BATCH_SIZE, write_batching_parameters, write_warmup_requests
from keras_bert.io.atomic_write import atomic_folder
from keras_bert.typing import PathLike

# By name, a function from one dict of tensors to another, and the specs of its inputs.
Signatures = Mapping[str, tuple[Callable[[Any], Any], Mapping[str, tf.TensorSpec]]]


def write_saved_model(
    path: PathLike,
    signatures: Signatures,
    variables: Iterable[tf.Variable],
    assets: Mapping[str, str] | None = None,
    warmup_requests: Sequence[tuple[str, Mapping[str, Any]]] = (),
    max_batch_size: int | None = MAX_BATCH_SIZE,
) -> Path:
    """Writes functions and the variables that they use as a SavedModel, completely or not at all.

    Every variable is stored once. Loading the model needs TensorFlow and tensorflow-text, but not this package. The
    name of the folder should be a number, the version for TensorFlow Serving. `assets` are files by name;
    `warmup_requests` are pairs of signature name and inputs; `max_batch_size` is None if a server cannot join requests.
    Raises FileExistsError if `path` exists, and ValueError if the functions use an operation that TensorFlow Serving
    does not have.

    >>> weight = tf.Variable(2.0)
    >>> double = (lambda inputs: {"y": weight * inputs["x"]}, {"x": tf.TensorSpec([None], tf.float32)})
    >>> folder = write_saved_model(Path(tempfile.mkdtemp()) / "1", {"serving_default": double}, [weight])
    >>> tf.saved_model.load(folder).signatures["serving_default"](x=tf.constant([3.0]))["y"].numpy().tolist()
    [6.0]
    """
    path = Path(path)
    check_export_path(path)
    with tempfile.TemporaryDirectory() as asset_folder, atomic_folder(path) as unfinished:
        module = tf.Module()
        module.exported_variables = list(variables)
        module.assets = [_create_asset(asset_folder, name, text) for name, text in (assets or {}).items()]
        functions = {name: _concrete_function(function, specs) for name, (function, specs) in signatures.items()}
        tf.saved_model.save(module, str(unfinished), signatures=functions)
        unserved = find_unserved_operations(unfinished)
        if unserved:
            raise ValueError(f"the model uses operations that TensorFlow Serving does not have: {unserved}")
        write_warmup_requests(unfinished, warmup_requests)
        if max_batch_size is not None:
            write_batching_parameters(unfinished, max_batch_size)
    logging.info("wrote a SavedModel with the signatures %s to %s", sorted(signatures), path)
    return path


def check_export_path(path: PathLike) -> None:
    """Raises FileExistsError if `path` exists; warns if its name is not a version number."""
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists and is not overwritten; export to another version, or remove it first")
    if not path.name.isdigit():
        logging.warning("TensorFlow Serving looks for folders named by a version number, such as %s/1", path)


def _create_asset(folder: str, name: str, text: str) -> tf.saved_model.Asset:
    file = Path(folder) / name
    file.write_bytes(text.encode("utf-8"))  # text mode would change line ends within a vocabulary
    return tf.saved_model.Asset(str(file))


def _concrete_function(function: Callable[[Any], Any], specs: Mapping[str, tf.TensorSpec]) -> Any:
    named = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in specs.items()}
    return tf.function(lambda **inputs: function(inputs), autograph=False).get_concrete_function(**named)
