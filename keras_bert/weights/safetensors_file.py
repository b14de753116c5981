"""Opens safetensors files, single or in shards with an index."""

import contextlib
import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import ml_dtypes  # noqa: F401  registers "bfloat16" with NumPy, which safetensors needs
import numpy as np
from safetensors import SafetensorError, safe_open

from keras_bert.weights.int8_tensors import find_scales
from keras_bert.weights.tensor_file import TensorEntry, TensorFile
from keras_bert.weights.weight_shards import open_shards


def open_safetensors(weights: Path) -> AbstractContextManager[TensorFile]:
    """Opens a safetensors file, or all shards of an index; reads only the tables of contents.

    Matrices of 8-bit integers with a scale per row (`int8_tensors`) are read as float32.
    """
    return open_shards(weights, _open_file)


@contextlib.contextmanager
def _open_file(file: Path) -> Iterator[TensorFile]:
    try:
        opened = safe_open(file, framework="numpy")
    except SafetensorError as error:
        raise ValueError(
            f"{file}: not a complete safetensors file ({error}); it has {file.stat().st_size} bytes. The download is "
            "incomplete or the file is a Git LFS pointer: fetch it again and compare its size with the source's."
        ) from error
    with opened as handle:
        entries = {}
        for name in handle.keys():  # noqa: SIM118  the handle is not a mapping
            entry = handle.get_slice(name)
            entries[name] = TensorEntry(tuple(entry.get_shape()), str(entry.get_dtype()), file)
        scales = find_scales(entries)
        entries = {name: entry for name, entry in entries.items() if name not in scales.values()}
        for name in scales:
            entries[name] = dataclasses.replace(entries[name], dtype="F32")

        def read(name: str) -> np.ndarray:
            tensor = handle.get_tensor(name)
            return tensor * handle.get_tensor(scales[name]).astype(np.float32) if name in scales else tensor

        yield TensorFile(file, entries, read)
