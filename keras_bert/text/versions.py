"""tensorflow-text, loaded only where it fits the installed TensorFlow."""

import importlib
import importlib.metadata
from types import ModuleType

import tensorflow as tf


def check_versions(tensorflow_version: str, tensorflow_text_version: str | None) -> None:
    """Checks that TensorFlow and tensorflow-text are of the same minor version.

    tensorflow-text's operations are compiled against one minor version of TensorFlow; under another one their loading
    ends in a message about an undefined symbol.

    Args:
        tensorflow_version: version of tensorflow, such as "2.21.0".
        tensorflow_text_version: version of tensorflow-text, such as "2.21.1", or None where it is not installed.

    Raises:
        ImportError: tensorflow-text is missing, or the two differ in their major or minor number.

    Example:
        >>> check_versions("2.21.0", "2.21.1")
        >>> check_versions("2.21.0", "2.20.0")
        Traceback (most recent call last):
        ...
        ImportError: tensorflow 2.21.0 and tensorflow-text 2.20.0 are of different minor versions ...
    """
    wanted = ".".join(tensorflow_version.split(".")[:2])
    command = f'pip install "tensorflow-text=={wanted}.*"'
    if tensorflow_text_version is None:
        raise ImportError(f"tensorflow-text is not installed, and the tokenizer needs it. Install it with: {command}")
    if tensorflow_text_version.split(".")[:2] != wanted.split("."):
        raise ImportError(
            f"tensorflow {tensorflow_version} and tensorflow-text {tensorflow_text_version} are of different minor "
            f"versions and do not work together. Install the tensorflow-text of this tensorflow with: {command}"
        )


def load_tensorflow_text() -> ModuleType:
    """Imports tensorflow-text after a check of its version, which also registers its operations with TensorFlow.

    Source: none in BERT; stands in front of https://www.tensorflow.org/text.

    Returns:
        The module `tensorflow_text`.

    Raises:
        ImportError: tensorflow-text is missing or is of another minor version than TensorFlow.

    Example:
        >>> load_tensorflow_text().__name__
        'tensorflow_text'
    """
    try:
        version = importlib.metadata.version("tensorflow-text")
    except importlib.metadata.PackageNotFoundError:
        version = None
    check_versions(tf.__version__, version)
    return importlib.import_module("tensorflow_text")
