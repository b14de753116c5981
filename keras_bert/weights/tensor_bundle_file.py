"""Opens TensorFlow's checkpoints: a table of contents, `NAME.index`, and the tensors, `NAME.data-00000-of-00001`.

Differs from `tf.train.load_checkpoint`: it needs no TensorFlow, and a damaged or hostile file raises ValueError. There,
a shape with a negative extent, or with more elements than int64 counts, ends the process.

Source of the format: TensorFlow's `tensor_bundle.cc`, `table/format.cc` (sorted string table), `tensor_bundle.proto`.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import ml_dtypes  # noqa: F401  registers "bfloat16" with NumPy
import numpy as np

from keras_bert.weights.crc32c import masked_crc32c
from keras_bert.weights.folder_paths import member_path
from keras_bert.weights.tensor_file import TensorEntry, TensorFile
from keras_bert.weights.wire_format import as_int64, as_message, read_fields, read_varint

STATE_NAME = "checkpoint"
INDEX_SUFFIX = ".index"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # in every object-based checkpoint of TensorFlow 2
_MAX_STATE_BYTES = 2**20
_MAX_NAME_BYTES = 200  # of a checkpoint
# BERT-large with both slots of its optimizer has 1,200 tensors in 70 kB.
_MAX_INDEX_BYTES = 2**22
_MAX_TENSORS = 50_000
_MAX_KEY_BYTES = 1000
_MAX_RANK = 32
_MAX_STRING_BYTES = 2**24
_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER_BYTES, _BLOCK_TRAILER_BYTES = 48, 5
_STRING = "string"
_TYPES = {  # of `types.proto`
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: _STRING,
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    19: "float16",
    22: "uint32",
    23: "uint64",
}
_HOW_TO_REPAIR = "Fetch the .index and every .data file again."


@dataclass(frozen=True)
class _BundleEntry(TensorEntry):
    """One tensor in the table of contents, and where its bytes are."""

    offset: int
    size: int
    checksum: int


# === Finding ===


def find_prefix(path: Path) -> Path | None:
    """Returns the prefix of the checkpoint at a folder, prefix, `.index` or `checkpoint` file; None if there is none.

    In a folder the file `checkpoint` decides, as in TensorFlow; without one there must be a single `*ckpt*.index`.
    """
    if path.is_dir():
        return _prefix_in_folder(path)
    if path.is_file() and path.name == STATE_NAME:
        return _read_state(path)
    prefix = path.with_name(path.name.removesuffix(INDEX_SUFFIX))
    return prefix if _index_file(prefix).is_file() else None


def is_object_based(prefix: Path) -> bool:
    """Returns whether a checkpoint is one of TensorFlow 2, with a graph of objects, and not one of TF1."""
    return OBJECT_GRAPH in open_tensor_bundle(prefix).entries


def _index_file(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + INDEX_SUFFIX)


def _prefix_in_folder(folder: Path) -> Path | None:
    state = folder / STATE_NAME
    if state.is_file():
        return _read_state(state)
    found = sorted(file.name.removesuffix(INDEX_SUFFIX) for file in folder.glob(f"*ckpt*{INDEX_SUFFIX}"))
    if len(found) > 1:
        raise ValueError(
            f"{folder}: contains several checkpoints, {found!s:.1000}, and no file {STATE_NAME!r}. Pass the path of "
            "one."
        )
    return folder / found[0] if found else None


def _read_state(state: Path) -> Path:
    with open(state, "rb") as file:
        text = file.read(_MAX_STATE_BYTES).decode("utf-8", errors="replace")
    match = re.search(r'^model_checkpoint_path:\s*"(.+)"', text, re.MULTILINE)
    if not match:
        raise ValueError(
            f'{state}: expected a line model_checkpoint_path: "...", found none. Pass the path of a checkpoint.'
        )
    # Only the name: the file often contains an absolute path on the machine that trained the model.
    name = Path(match[1]).name
    if not name or len(name.encode()) > _MAX_NAME_BYTES or not _index_file(state.with_name(name)).is_file():
        raise FileNotFoundError(
            f"{state}: names {match[1]!r:.300}, but {state.parent / name!s:.300}{INDEX_SUFFIX} does not exist. Pass "
            "the path of one that does."
        )
    return state.with_name(name)


# === Opening ===


def open_tensor_bundle(prefix: Path) -> TensorFile:
    """Opens a checkpoint by its prefix, its path without `.index`; reads only the table of contents.

    Every tensor's size is checked against its shape and the data files. `read` returns a string as an array of `bytes`.
    Raises FileNotFoundError if a file is missing, and ValueError if one is damaged.
    """
    index = _check_is_member(prefix, _index_file(prefix))
    try:
        entries = _read_index(prefix, index)
        _check_sizes(entries)
    except ValueError as error:
        raise _damaged(prefix, error) from error
    return TensorFile(prefix, entries, lambda name: _read_tensor(prefix, name, entries[name]))


def read_string(tensors: TensorFile, name: str) -> bytes:
    """Returns a tensor that is a single string."""
    entry = tensors.entries.get(name)
    if entry is None or entry.dtype != _STRING or entry.shape:
        found = "missing" if entry is None else f"{entry.dtype} of shape {list(entry.shape)}"
        raise _damaged(tensors.path, f"the text {name!r} is {found}")
    return bytes(tensors.read(name).item())


def _read_index(prefix: Path, index: Path) -> dict[str, _BundleEntry]:
    size = index.stat().st_size
    if size > _MAX_INDEX_BYTES:
        raise ValueError(f"{index.name} has {size} bytes, more than {_MAX_INDEX_BYTES}")
    with open(index, "rb") as file:
        data = memoryview(file.read(_MAX_INDEX_BYTES))
    items = _read_table(data)
    key, header = next(items, (None, memoryview(b"")))
    if key != b"":
        raise ValueError(f"the table of {index.name} does not begin with its header")
    num_shards = 0
    for number, value in read_fields(header):
        if number == 1:
            num_shards = as_int64(value)
        elif number == 2 and as_int64(value) != 0:
            raise ValueError("its numbers are big-endian; only little-endian ones are read")
    entries: dict[str, _BundleEntry] = {}
    files: dict[int, Path] = {}
    for key, value in items:
        if len(entries) == _MAX_TENSORS:
            raise ValueError(f"{index.name} lists more than {_MAX_TENSORS} tensors")
        name = key.decode("utf-8", errors="backslashreplace")
        entries[name] = _parse_entry(prefix, name, value, num_shards, files)
    return entries


def _read_table(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yields keys and values of a sorted string table."""
    if len(data) < _FOOTER_BYTES or data[-len(_MAGIC) :] != _MAGIC:
        raise ValueError(
            f"the table of {len(data)} bytes does not end as one of TensorFlow; it is cut off or another file"
        )
    footer = data[-_FOOTER_BYTES : -len(_MAGIC)]
    _, position = _read_handle(footer, 0)
    handle, _ = _read_handle(footer, position)
    previous: bytes | None = None
    for _, value in _read_block(data, handle):
        for key, item in _read_block(data, _read_handle(value, 0)[0]):
            # As the keys increase, no block can occur twice.
            if previous is not None and key <= previous:
                raise ValueError(f"the key {key[:100]!r} does not come after {previous[:100]!r}")
            previous = key
            yield key, item


def _read_handle(data: memoryview, position: int) -> tuple[tuple[int, int], int]:
    """Returns offset and size of a block."""
    offset, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return (offset, size), position


def _read_block(data: memoryview, handle: tuple[int, int]) -> Iterator[tuple[bytes, memoryview]]:
    """Yields keys and values of a block, whose keys are stored without the prefix that they share with the last one."""
    offset, size = handle
    if size < 4 or offset + size + _BLOCK_TRAILER_BYTES > len(data) - _FOOTER_BYTES:
        raise ValueError(f"a block of {size} bytes at {offset} in a table of {len(data)} bytes")
    (checksum,) = struct.unpack("<I", data[offset + size + 1 : offset + size + _BLOCK_TRAILER_BYTES])
    if masked_crc32c(data[offset : offset + size + 1]) != checksum:
        raise ValueError(f"Checksum does not match: the block at {offset} of the table")
    if data[offset + size] != 0:
        raise ValueError("the table is compressed, which TensorFlow does not write: save the checkpoint again with it")
    block = data[offset : offset + size]
    (num_restarts,) = struct.unpack("<I", block[-4:])
    end = size - 4 - 4 * num_restarts
    key, position = b"", 0
    while position < end:
        shared, position = read_varint(block, position)
        unshared, position = read_varint(block, position)
        length, position = read_varint(block, position)
        if shared > len(key) or shared + unshared > _MAX_KEY_BYTES or unshared + length > end - position:
            raise ValueError(f"a damaged entry after the key {key[:100]!r}")
        key = key[:shared] + bytes(block[position : position + unshared])
        position += unshared
        yield key, block[position : position + length]
        position += length


def _parse_entry(prefix: Path, name: str, message: memoryview, num_shards: int, files: dict[int, Path]) -> _BundleEntry:
    code = shard = offset = size = checksum = 0
    shape: tuple[int, ...] = ()
    partitioned = ""
    for number, value in read_fields(message):
        if number == 1:
            code = as_int64(value)
        elif number == 2:
            shape = _parse_shape(name, as_message(value))
        elif number == 3:
            shard = as_int64(value)
        elif number == 4:
            offset = as_int64(value)
        elif number == 5:
            size = as_int64(value)
        elif number == 6:
            checksum = as_int64(value)
        elif number == 7:
            partitioned = " in partitions"
    if not 0 <= shard < num_shards:
        raise ValueError(f"tensor {name!r} is in data file {shard} of {num_shards}")
    if shard not in files:
        file = prefix.with_name(f"{prefix.name}.data-{shard:05}-of-{num_shards:05}")
        files[shard] = _check_is_member(prefix, file)
    dtype = _TYPES.get(code, f"type {code}") + partitioned
    if dtype in _TYPES.values() and dtype != _STRING and size != prod(shape) * np.dtype(dtype).itemsize:
        raise ValueError(f"tensor {name!r} of type {dtype} and shape {list(shape)} has {size} bytes")
    return _BundleEntry(shape, dtype, files[shard], offset, size, checksum)


def _parse_shape(name: str, message: memoryview) -> tuple[int, ...]:
    shape: list[int] = []
    for number, value in read_fields(message):
        if number == 2:
            sizes = [as_int64(size) for field, size in read_fields(as_message(value)) if field == 1]
            shape.append(sizes[-1] if sizes else 0)  # a size of 0 is not stored
        elif number == 3 and value:
            raise ValueError(f"tensor {name!r} has no shape")
    if len(shape) > _MAX_RANK or any(size < 0 for size in shape):
        raise ValueError(f"tensor {name!r} has the shape {shape!s:.200}")
    return tuple(shape)


def _check_sizes(entries: dict[str, _BundleEntry]) -> None:
    """Checks that the tensors are in their files, and that no two can share bytes: memory is bounded by the files."""
    held = {file: file.stat().st_size for file in {entry.file for entry in entries.values()}}
    needed = dict.fromkeys(held, 0)
    for name, entry in entries.items():
        needed[entry.file] += entry.size
        if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size > held[entry.file]:
            raise ValueError(
                f"tensor {name!r} has {entry.size} bytes at {entry.offset}; {entry.file.name} has {held[entry.file]}"
            )
    for file, size in needed.items():
        if size > held[file]:
            raise ValueError(f"the tensors in {file.name} have {size} bytes, but the file has {held[file]}")


def _check_is_member(prefix: Path, file: Path) -> Path:
    """Returns a file of a checkpoint after the check that it exists and is in the folder."""
    if not file.is_file():
        raise FileNotFoundError(
            f"{prefix}: cannot be read: No such file: {file}; its files and their sizes in bytes are "
            f"{_sizes(prefix)}. {_HOW_TO_REPAIR}"
        )
    return member_path(file.parent, file.name, named_in=prefix)


# === Reading ===


def _read_tensor(prefix: Path, name: str, entry: _BundleEntry) -> np.ndarray:
    buffer = np.empty(entry.size, np.uint8)
    with open(entry.file, "rb") as file:
        file.seek(entry.offset)
        if file.readinto(buffer.data) != entry.size:
            raise _damaged(prefix, f"{entry.file.name} ends within tensor {name!r}")
    if entry.dtype == _STRING:
        return _parse_string(prefix, name, entry, buffer)
    if masked_crc32c(buffer) != entry.checksum:
        raise _damaged(prefix, f"Checksum does not match: tensor {name!r} in {entry.file.name}")
    return buffer.view(np.dtype(entry.dtype)).reshape(entry.shape)


def _parse_string(prefix: Path, name: str, entry: _BundleEntry, buffer: np.ndarray) -> np.ndarray:
    """Parses a single string: its length, a checksum of the length, and its bytes."""
    try:
        if entry.shape or entry.size > _MAX_STRING_BYTES:
            raise ValueError(f"it has the shape {list(entry.shape)} and {entry.size} bytes")
        length, position = read_varint(buffer.data, 0)
        stored, text = buffer[position : position + 4], buffer[position + 4 :]
        if len(text) != length:
            raise ValueError(f"it has {len(text)} bytes, not {length}")
        checked = np.concatenate([np.frombuffer(struct.pack("<I", length), np.uint8), stored, text])
        if masked_crc32c(checked) != entry.checksum:
            raise ValueError("Checksum does not match")
    except ValueError as error:
        raise _damaged(prefix, f"text {name!r} in {entry.file.name}: {error}") from error
    value = np.empty((), object)
    value[()] = text.tobytes()
    return value


def _damaged(prefix: Path, reason: object) -> ValueError:
    return ValueError(
        f"{prefix}: cannot be read ({reason}); its files and their sizes in bytes are {_sizes(prefix)}. "
        f"{_HOW_TO_REPAIR}"
    )


def _sizes(prefix: Path) -> dict[str, int]:
    files = sorted(file for file in prefix.parent.iterdir() if file.name.startswith(f"{prefix.name}."))
    return {file.name: file.stat().st_size for file in files[:20] if file.is_file()}
