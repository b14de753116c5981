"""Writes a function of ids for another runtime, with its tokenizer, and checks the file by running it."""

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from keras_bert.export import litert_model, onnx_model, openvino_model
from keras_bert.io.atomic_write import atomic_folder
from keras_bert.typing import PathLike

# Each module has the name of its runtime (NAME), the packages that it imports (PACKAGES), the code of the README that
# computes `outputs` from `ids` (RUN), `write_model` and `load_model`.
_RUNTIMES = {"onnx": onnx_model, "openvino": openvino_model, "litert": litert_model}
RUNTIME_FORMATS = tuple(_RUNTIMES)
# Allowed difference of an output, relative to its largest value if that is above 1.
TOLERANCE = 1e-5
_MASKED_SIZE = 1e6  # the numbers that replace logits of padding are greater, and no others


class Readme(NamedTuple):
    """Parts of a README.md: its title, the code that computes `ids`, and notes."""

    title: str
    code: str
    notes: str


def check_runtime(format: str) -> None:
    """Raises ImportError unless the packages are installed that write and run `format`, one of `RUNTIME_FORMATS`."""
    runtime = _RUNTIMES[format]
    missing = [package for package in runtime.PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(
            f"format={format!r} needs {', '.join(missing)}. Install what it needs with: "
            f'pip install "keras-bert-zoo[{format}]", or from a checkout: pip install ".[{format}]"'
        )


def write_runtime_folder(
    path: PathLike,
    format: str,
    function: Any,
    samples: Iterable[Mapping[str, np.ndarray]],
    files: Mapping[str, str],
    readme: Readme,
) -> Path:
    """Writes a function of ids for a runtime, completely or not at all.

    Args:
        path: folder to write.
        format: one of `RUNTIME_FORMATS`.
        function: `tf.function` with an input signature of named int32 tensors, which returns a dict of numeric tensors.
        samples: inputs by name. The written file has to return for them what the function returns.
        files: texts to write into the folder, by name.
        readme: parts of README.md.

    Returns:
        The folder.

    Raises:
        FileExistsError: if `path` exists.
        ImportError: if the runtime is not installed.
        ValueError: if the runtime lacks an operation of the function, or computes other outputs.
    """
    check_runtime(format)
    runtime = _RUNTIMES[format]
    with atomic_folder(path) as folder:
        try:
            runtime.write_model(function, folder)
            compute = runtime.load_model(folder)
        except Exception as error:
            raise ValueError(f"{runtime.NAME} cannot represent this model: {error}") from error
        for sample in samples:
            _check_outputs(runtime.NAME, compute, function, sample)
        for name, text in {**files, "README.md": _readme(runtime, readme, files)}.items():
            (folder / name).write_bytes(text.encode("utf-8"))  # text mode would change line ends within a vocabulary
    logging.info("wrote a model for %s to %s, which gives the outputs of the model", runtime.NAME, path)
    return Path(path)


def _check_outputs(name: str, compute: Any, function: Any, sample: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError unless a runtime computes a function's outputs for a sample."""
    shape = next(iter(sample.values())).shape
    expected = {key: value.numpy() for key, value in function(**{k: tf.constant(v) for k, v in sample.items()}).items()}
    try:
        found = compute(sample)
    except Exception as error:
        raise ValueError(f"{name} cannot run the model on ids of shape {shape}: {error}") from error
    if found.keys() != expected.keys():
        raise ValueError(f"{name} returns {sorted(found)} instead of {sorted(expected)}")
    for key, values in expected.items():
        if found[key].shape != values.shape:
            raise ValueError(
                f"{name} returns {key} of shape {found[key].shape} for ids of shape {shape}; it is {values.shape}"
            )
        sizes = np.abs(values.astype("float64"))
        scale = sizes[sizes < _MASKED_SIZE].max(initial=1.0)
        difference = (np.abs(found[key] - values.astype("float64")) / np.maximum(sizes, scale)).max(initial=0.0)
        allowed = TOLERANCE if values.dtype.kind == "f" else 0
        if not difference <= allowed:  # NaN is not
            raise ValueError(
                f"{name} computes another {key} for ids of shape {shape}: the difference is {difference:.2g}, relative "
                f"to {scale:.2g}, and at most {allowed} is allowed"
            )


def _readme(runtime: ModuleType, parts: Readme, files: Mapping[str, str]) -> str:
    """Returns a README.md with the code that runs the model of a folder."""
    names = ", ".join(f"`{name}`" for name in sorted(files))
    labels = "`labels.txt` has the name of each position of the last axis of the outputs.\n" * ("labels.txt" in files)
    return f"""# {parts.title} for {runtime.NAME}

This model takes token ids. To compute them and run it, in this folder, after `pip install {runtime.REQUIREMENTS}`:

```python
import numpy as np
from tokenizers import Tokenizer
{runtime.IMPORT}

{parts.code}
{runtime.RUN}
print(outputs)
```

{parts.notes}

{labels}Other files: {names}.
"""
