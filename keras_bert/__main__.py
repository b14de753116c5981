"""Describes the installation: `python -m keras_bert` prints versions, devices and presets, and what is wrong with them.

The exit status is 1 if something must be corrected before text can be tokenized, else 0.
"""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Collection, Mapping

import keras

from keras_bert.io.processor import BFLOAT16_FEATURES, processor_features
from keras_bert.weights.preset_names import find_local_presets

_PACKAGES = ("keras-bert-zoo", "keras", "tensorflow", "tensorflow-text", "numpy")
_EXTRAS = ("apache-beam", "onnxruntime", "openvino", "ai-edge-litert", "pyarrow", "sentencex")
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"


def main() -> int:
    """Prints the report, and returns the exit status."""
    versions = {name: _version(name) for name in (*_PACKAGES, *_EXTRAS)}
    backend, features = keras.backend.backend(), processor_features()
    devices = keras.distribution.list_devices() if backend in ("tensorflow", "jax") else []
    for name in _PACKAGES:
        _print(name, versions[name] or "not installed")
    _print("Python", f"{platform.python_version()} on {platform.platform()}")
    _print("Keras backend", backend)
    _print("devices", ", ".join(devices) or "unknown")
    _print("bfloat16", _describe_bfloat16(features, devices))
    _print("optional", ", ".join(name for name in _EXTRAS if versions[name]) or "none is installed")
    _print("presets here", ", ".join(find_local_presets()))
    _print("", "keras_bert.list_presets() lists those that can be downloaded")
    error = find_error(backend)
    for message in filter(None, (error, advise_onednn(features, devices, os.environ))):
        print(f"\n{message}")
    return 0 if error is None else 1


def _print(name: str, value: str) -> None:
    print(f"{name:16} {value}")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _describe_bfloat16(features: Collection[str], devices: Collection[str]) -> str:
    if not all(device.startswith("cpu") for device in devices):
        return "as the device computes it"
    found = sorted(BFLOAT16_FEATURES & set(features))
    if found or not features:
        return f"computed by the processor ({', '.join(found)})" if found else "unknown; the processor does not tell"
    return "slow, because the processor has no instructions for it; use float32"


def find_error(backend: str) -> str | None:
    """Returns why text cannot be tokenized, and what to do; None if it can."""
    if backend != "tensorflow":
        return None  # models take ids there
    from keras_bert.text.versions import load_tensorflow_text

    try:
        load_tensorflow_text()
    except Exception as error:  # whatever the import of a broken installation raises
        return str(error)
    return None


def advise_onednn(features: Collection[str], devices: Collection[str], environment: Mapping[str, str]) -> str | None:
    """Returns what to do if TensorFlow leaves oneDNN off where it is faster; see `tools/onednn.py`.

    >>> advise_onednn(["avx2"], ["cpu:0"], {})
    'TensorFlow is faster on this processor with oneDNN: set TF_ENABLE_ONEDNN_OPTS=1 before it is imported.'
    """
    has_newer = any(name.startswith(("avx512", "avx_vnni", "amx_")) for name in features)
    is_cpu = all(device.startswith("cpu") for device in devices)
    if "avx2" not in features or has_newer or not is_cpu or _ONEDNN in environment:
        return None
    return f"TensorFlow is faster on this processor with oneDNN: set {_ONEDNN}=1 before it is imported."


if __name__ == "__main__":
    sys.exit(main())
