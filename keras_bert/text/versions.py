"""Version check of tensorflow-text before its import."""

import importlib
import importlib.metadata
import re
from types import ModuleType

import tensorflow as tf

MINIMUM_TENSORFLOW_TEXT = "2.21.1"  # setup.cfg has the same number


def check_versions(tensorflow_version: str, tensorflow_text_version: str | None) -> None:
    """Raises an ImportError unless tensorflow-text (None: not installed) is new enough and fits TensorFlow."""
    wanted = ".".join(tensorflow_version.split(".")[:2])
    requirement = f"tensorflow-text=={wanted}.*,>={MINIMUM_TENSORFLOW_TEXT}"
    command = f'Install it with: pip install "{requirement}"'
    if tensorflow_text_version is None:
        raise ImportError(f"tensorflow-text is not installed, and the tokenizer needs it. {command}")
    has_same_minor = tensorflow_text_version.split(".")[:2] == wanted.split(".")
    if not has_same_minor or _parse(tensorflow_text_version) < _parse(MINIMUM_TENSORFLOW_TEXT):
        raise ImportError(
            f"tensorflow {tensorflow_version} needs a tensorflow-text of the same minor version, at least "
            f"{MINIMUM_TENSORFLOW_TEXT}. Received: tensorflow-text {tensorflow_text_version}. {command}"
        )


def _parse(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def load_tensorflow_text() -> ModuleType:
    """Imports tensorflow-text, which registers its operations with TensorFlow, after checking its version."""
    try:
        version = importlib.metadata.version("tensorflow-text")
    except importlib.metadata.PackageNotFoundError:
        version = None
    check_versions(tf.__version__, version)
    return importlib.import_module("tensorflow_text")
