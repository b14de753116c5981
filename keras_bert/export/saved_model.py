"""Writes a SavedModel from named functions."""

import tempfile
from pathlib import Path

import tensorflow as tf
from absl import logging

from keras_bert.export.ops import unserved_operations
from keras_bert.export.serving_batching import MAX_BATCH_SIZE, write_batching_parameters
from keras_bert.export.warmup import write_warmup_requests
from keras_bert.io.atomic_write import atomic_folder


def write_saved_model(path, signatures, variables, assets=None, warmup_requests=(), max_batch_size=MAX_BATCH_SIZE):
    """Writes functions and the variables that they use as one SavedModel, complete or not at all.

    Every variable is stored once. The model is written under a temporary name beside `path` and renamed, so a server
    that watches the folder never sees half of it. Loading it needs TensorFlow and tensorflow-text, nothing of this
    package.

    Args:
        path: str or Path. The folder to write; TensorFlow Serving wants its name to be a number, the version.
        signatures: dict of name to `(function, {input name: tf.TensorSpec})`. The function takes a dict of tensors and
            returns one.
        variables: the tf.Variables that the functions use.
        assets: dict of file name to text, to be stored inside the model.
        warmup_requests: list of `(signature name, {input name: array})`, which the server replays before taking
            traffic.
        max_batch_size: int, most rows that a server with batching joins.

    Returns:
        Path of the folder.

    Raises:
        FileExistsError: if there is something at `path`.
        ValueError: if the functions use an operation that TensorFlow Serving does not have.

    Example:

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
        module.assets = [_asset(asset_folder, name, text) for name, text in (assets or {}).items()]
        functions = {name: _concrete_function(function, specs) for name, (function, specs) in signatures.items()}
        tf.saved_model.save(module, str(unfinished), signatures=functions)
        unserved = unserved_operations(unfinished)
        if unserved:
            raise ValueError(f"TensorFlow Serving does not have these operations, which the model uses: {unserved}")
        write_warmup_requests(unfinished, warmup_requests)
        write_batching_parameters(unfinished, max_batch_size)
    logging.info("wrote a SavedModel with the signatures %s to %s", sorted(signatures), path)
    return path


def check_export_path(path):
    """Raises if a SavedModel cannot be written to `path` because something is there.

    Args:
        path: str or Path.

    Raises:
        FileExistsError: if something is there.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists and is not overwritten; export to another version, or remove it first")
    if not path.name.isdigit():
        logging.warning("TensorFlow Serving looks for folders named by a version number, such as %s/1", path)


def _asset(folder, name, text):
    file = Path(folder) / name
    # As bytes: a vocabulary holds characters that text mode would take for line ends.
    file.write_bytes(text.encode("utf-8"))
    return tf.saved_model.Asset(str(file))


def _concrete_function(function, specs):
    named = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in specs.items()}
    return tf.function(lambda **inputs: function(inputs), autograph=False).get_concrete_function(**named)
