"""Opens safetensors files, single or in shards with an index."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  registers "bfloat16" with NumPy, which safetensors needs
from safetensors import SafetensorError, safe_open

from keras_bert.weights.bert_config import read_json
from keras_bert.weights.tensor_file import TensorEntry, TensorFile

INDEX_SUFFIX = ".index.json"


@contextlib.contextmanager
def open_safetensors(weights: Path) -> Iterator[TensorFile]:
    """Opens a safetensors file, or all shards of an index; reads only the tables of contents."""
    with contextlib.ExitStack() as stack:
        handles: dict[str, Any] = {}
        entries: dict[str, TensorEntry] = {}
        for file in _shards(weights):
            handle = stack.enter_context(_open_file(file))
            for name in handle.keys():  # noqa: SIM118  the handle is not a mapping
                entry = handle.get_slice(name)
                handles[name] = handle
                entries[name] = TensorEntry(tuple(entry.get_shape()), str(entry.get_dtype()), file)

        yield TensorFile(weights, entries, lambda name: handles[name].get_tensor(name))


def _shards(weights: Path) -> list[Path]:
    if not weights.name.endswith(INDEX_SUFFIX):
        return [weights]
    weight_map = read_json(weights).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(
            f"{weights}: expected an object weight_map {{tensor: shard}}; found {weight_map!r}. Fetch it again."
        )
    shards = [weights.parent / str(name) for name in sorted(set(map(str, weight_map.values())))]
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{weights}: lists the shards {missing}, which are not in {weights.parent}. Fetch them too."
        )
    return shards


def _open_file(file: Path) -> Any:
    try:
        return safe_open(file, framework="numpy")
    except SafetensorError as error:
        raise ValueError(
            f"{file}: not a complete safetensors file ({error}); it has {file.stat().st_size} bytes. The download is "
            "incomplete or the file is a Git LFS pointer: fetch it again and compare its size with the source's."
        ) from error
