"""Writes a function of ids for another runtime, with its tokenizer, and checks the file by running it."""

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from keras_bert.export import litert_model, onnx_model, openvino_model
from keras_bert.export.export_options import ExportOptions
from keras_bert.io.atomic_write import atomic_folder
from keras_bert.typing import PathLike

# Each module has the name of its runtime (NAME), the packages that it imports (PACKAGES) and those that quantize
# (QUANTIZE_PACKAGES), the code of the README that computes `outputs` from `ids` (RUN), `write_model` and `load_model`.
_RUNTIMES = {"onnx": onnx_model, "openvino": openvino_model, "litert": litert_model}
# Allowed difference of an output, relative to its largest value if that is above 1.
TOLERANCE = 1e-5
# Allowed difference of an output of a quantized model for a text, relative to it, as Euclidean norms. The largest
# difference of MiniLM's sentence embeddings is 0.19, and that of a file that the tools had ruined was 0.87.
QUANTIZED_TOLERANCE = 0.5
_NUM_CHECKED = 16  # calibration texts for which a quantized model is checked
_MASKED_SIZE = 1e6  # the numbers that replace logits of padding are greater, and no others


class Readme(NamedTuple):
    """Parts of a README.md: its title, the code that computes `ids`, and notes."""

    title: str
    code: str
    notes: str


class Samples(NamedTuple):
    """Inputs by name, with which a written file is run: ids of texts, random ids, and ids of calibration texts."""

    texts: list[Mapping[str, np.ndarray]]
    random: Sequence[Mapping[str, np.ndarray]] = ()
    calibration: Sequence[Mapping[str, np.ndarray]] = ()


def check_runtime(format: str, quantize: str | None = None) -> None:
    """Raises ImportError unless the packages are installed that write, quantize and run a model for a runtime."""
    runtime = _RUNTIMES[format]
    packages = runtime.PACKAGES if quantize is None else (*runtime.PACKAGES, *runtime.QUANTIZE_PACKAGES)
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(
            f"format={format!r} needs {', '.join(missing)}. Install what it needs with: "
            f'pip install "keras-bert-zoo[{format}]", or from a checkout: pip install ".[{format}]"'
        )


def load_model(folder: PathLike, format: str) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Returns a function that runs the model in a folder, from a dict of ids to the dict of outputs."""
    check_runtime(format)
    return _RUNTIMES[format].load_model(Path(folder))


def write_runtime_folder(
    path: PathLike,
    options: ExportOptions,
    function: Any,
    samples: Samples,
    files: Mapping[str, str],
    readme: Readme,
) -> Path:
    """Writes a function of ids for a runtime, completely or not at all.

    Args:
        path: folder to write.
        options: format and method of quantization.
        function: `tf.function` with an input signature of named int32 tensors, which returns a dict of numeric tensors.
        samples: inputs. The written file has to return for them what the function returns; a quantized one, for texts,
            approximately that, and numbers of the same shape for random ids, which no model was trained on.
        files: texts to write into the folder, by name.
        readme: parts of README.md.

    Returns:
        The folder.

    Raises:
        FileExistsError: if `path` exists.
        ImportError: if the runtime is not installed.
        ValueError: if the runtime lacks an operation of the function, or computes other outputs.
    """
    quantize = options.quantize
    check_runtime(options.format, quantize)
    runtime = _RUNTIMES[options.format]
    with atomic_folder(path) as folder:
        try:
            runtime.write_model(function, folder, quantize, samples.calibration)
            compute = runtime.load_model(folder)
        except Exception as error:
            raise ValueError(f"{runtime.NAME} cannot represent this model: {error}") from error
        text_limit, random_limit = (None, None) if quantize is None else (QUANTIZED_TOLERANCE, sys.float_info.max)
        largest = max(
            (
                _check_outputs(runtime.NAME, compute, function, sample, text_limit)
                for sample in (*samples.texts, *samples.calibration[:_NUM_CHECKED])
            ),
            default=0.0,
        )
        for sample in samples.random:
            _check_outputs(runtime.NAME, compute, function, sample, random_limit)
        for name, text in {**files, "README.md": _readme(runtime, readme, files, quantize)}.items():
            (folder / name).write_bytes(text.encode("utf-8"))  # text mode would change line ends within a vocabulary
    logging.info("wrote a model for %s to %s; its outputs differ by %.1g of their size", runtime.NAME, path, largest)
    return Path(path)


def _check_outputs(
    name: str, compute: Any, function: Any, sample: Mapping[str, np.ndarray], limit: float | None
) -> float:
    """Returns the largest difference between a runtime's and a function's outputs; ValueError if it is too large.

    `limit` is the largest relative difference of norms, for a quantized model; None compares float32 outputs singly.
    """
    shape = next(iter(sample.values())).shape
    expected = {key: value.numpy() for key, value in function(**{k: tf.constant(v) for k, v in sample.items()}).items()}
    try:
        found = compute(sample)
    except Exception as error:
        raise ValueError(f"{name} cannot run the model on ids of shape {shape}: {error}") from error
    if found.keys() != expected.keys():
        raise ValueError(f"{name} returns {sorted(found)} instead of {sorted(expected)}")
    largest = 0.0
    for key, values in expected.items():
        if found[key].shape != values.shape:
            raise ValueError(
                f"{name} returns {key} of shape {found[key].shape} for ids of shape {shape}; it is {values.shape}"
            )
        if limit is None:
            difference, allowed = _largest_difference(found[key], values), TOLERANCE if values.dtype.kind == "f" else 0
        else:
            difference, allowed = _difference_of_norms(found[key], values), limit
        if not difference <= allowed:  # NaN is not
            raise ValueError(
                f"{name} computes another {key} for ids of shape {shape}: the relative difference is "
                f"{difference:.2g}, and at most {allowed:.2g} is allowed"
            )
        largest = max(largest, difference)
    return largest


def _largest_difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference of a number, relative to it or, if larger, to 1 and the largest of all."""
    sizes = np.abs(expected.astype("float64"))
    scale = sizes[sizes < _MASKED_SIZE].max(initial=1.0)
    return float((np.abs(found - expected.astype("float64")) / np.maximum(sizes, scale)).max(initial=0.0))


def _difference_of_norms(found: np.ndarray, expected: np.ndarray) -> float:
    """Returns the relative norm of the difference, or if larger the largest relative difference of a masked number."""
    if expected.dtype.kind != "f":  # ids of the most probable words, for example: close ones may change places
        return 0.0
    sizes, differences = np.abs(expected.astype("float64")), np.abs(found - expected.astype("float64"))
    is_masked = sizes >= _MASKED_SIZE
    masked = (differences[is_masked] / sizes[is_masked]).max(initial=0.0)
    norm = np.linalg.norm(sizes[~is_masked])
    unmasked = np.linalg.norm(differences[~is_masked]) / norm if norm else 0.0
    return float(np.maximum(masked, unmasked))  # unlike max, NaN if either is


def _readme(runtime: ModuleType, parts: Readme, files: Mapping[str, str], quantize: str | None) -> str:
    """Returns a README.md with the code that runs the model of a folder."""
    names = ", ".join(f"`{name}`" for name in sorted(files))
    labels = "`labels.txt` has the name of each position of the last axis of the outputs.\n" * ("labels.txt" in files)
    kind = "" if quantize is None else f", {quantize}"
    return f"""# {parts.title} for {runtime.NAME}{kind}

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
