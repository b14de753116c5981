"""Opens safetensors files, single or in shards with an index."""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import ml_dtypes  # noqa: F401  registers "bfloat16" with NumPy, which safetensors needs
from safetensors import SafetensorError, safe_open

from keras_bert.weights.tensor_file import TensorEntry, TensorFile
from keras_bert.weights.weight_shards import open_shards


def open_safetensors(weights: Path) -> AbstractContextManager[TensorFile]:
    """Opens a safetensors file, or all shards of an index; reads only the tables of contents."""
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
        yield TensorFile(file, entries, handle.get_tensor)
