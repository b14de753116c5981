"""Opens `pytorch_model.bin` files, single or in shards with an index, without PyTorch and without running a pickle."""

import contextlib
import io
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes  # noqa: F401  registers "bfloat16" with NumPy
import numpy as np

from keras_bert.weights.tensor_file import TensorEntry, TensorFile
from keras_bert.weights.tensor_pickle import RefusedError, Storage, Tensor, TensorPickle
from keras_bert.weights.weight_shards import open_shards

# First pickle of the format before PyTorch 1.6, and the one version of that format (`torch/serialization.py`).
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_VERSION = 1001
# Keys of the dictionary of tensors in a file with more than that, such as `{"state_dict": ..., "epoch": 3}`.
_STATE_DICT_KEYS = ("state_dict", "model_state_dict", "model", "module")
_MAX_NESTING = 4
_MAX_NAMES_LISTED = 5
_MAX_FIELD = 255  # bytes of a name, extra field or comment in a zip file
_CHUNK = 1 << 20  # bytes read at once to compute a checksum

# The layouts of a zip file (APPNOTE.TXT of PKWARE).
_ZIP_END = struct.Struct("<4s4H2IH")
_ZIP64_LOCATOR = struct.Struct("<4sIQI")
_ZIP64_END = struct.Struct("<4sQ2H2I4Q")
_ZIP_ENTRY = struct.Struct("<4s6H3I5H2I")
_ZIP_LOCAL = struct.Struct("<4s5H3I2H")
_ZIP64_EXTRA = 1
_STORED, _ENCRYPTED = 0, 1  # method, and bit of the flags
_MAX_UINT16, _MAX_UINT32 = 0xFFFF, 0xFFFFFFFF


class _ByteRange(NamedTuple):
    """Position of data in a file, in bytes."""

    start: int
    size: int
    checksum: int | None = None  # CRC-32


def open_pytorch(weights: Path) -> AbstractContextManager[TensorFile]:
    """Opens a file of `torch.save` with a dictionary of tensors, or all shards of an index; reads no tensor yet."""
    return open_shards(weights, _open_file)


@contextlib.contextmanager
def _open_file(file: Path) -> Iterator[TensorFile]:
    with file.open("rb") as stream:
        with _file_named_in_errors(file):
            contents = _Contents(stream)
        entries = {
            name: TensorEntry(tensor.shape, tensor.storage.dtype, file) for name, tensor in contents.tensors.items()
        }

        def read(name: str) -> np.ndarray:
            with _file_named_in_errors(file):
                return contents.read(name)

        yield TensorFile(file, entries, read)


@contextlib.contextmanager
def _file_named_in_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except RefusedError as error:
        raise ValueError(
            f"{file}: refused, since {error}. Only dictionaries of tensors are read, and nothing in the file is run. "
            "Get the weights as safetensors; if you trust this file, convert it where PyTorch is installed, with "
            "torch.load(weights_only=True)."
        ) from error
    except ValueError as error:
        raise ValueError(
            f"{file}: not a complete file of PyTorch ({error}); it has {file.stat().st_size} bytes. The download is "
            "incomplete or the file is a Git LFS pointer: fetch it again and compare its size with the source's."
        ) from error


class _Contents:
    """The tensors of one file. Opening and reading take at most three times its size, or 3 MB if that is more."""

    def __init__(self, stream: io.BufferedReader):
        self._stream = stream
        self._size = os.fstat(stream.fileno()).st_size
        # Legitimate files stay far below: about 30 opcodes and 130 bytes per tensor. The upper bounds limit the time.
        self._max_operations = min(1_000_000, max(20_000, self._size // 200))
        self._max_entries = min(100_000, max(2_000, self._size // 300))
        self._max_pickle = max(1 << 18, self._size // 64)
        self._names_read: set[str] = set()
        self._bytes_read = 0
        self._verified: set[str] = set()
        is_zip = self._read(0, min(4, self._size)) == b"PK\3\4"
        value, self._ranges = self._read_zip() if is_zip else self._read_legacy()
        self.tensors = _find_state_dict(value)

    def read(self, name: str) -> np.ndarray:
        """Reads one tensor into an array of the file's type."""
        tensor = self.tensors[name]
        storage, dtype = tensor.storage, np.dtype(tensor.storage.dtype)
        if name not in self._names_read:
            self._names_read.add(name)
            self._bytes_read += tensor.size * np.dtype(np.float32).itemsize
            if self._bytes_read > 2 * self._size:  # more than half precision needs
                raise RefusedError("its tensors share storages: as float32 they take more than twice the file's size")
        byte_range = self._ranges[storage.key]
        self._verify(storage.key, byte_range)
        data = self._read(byte_range.start + tensor.offset * dtype.itemsize, tensor.span * dtype.itemsize)
        # The stride of a dimension of size 1 is not used, and may be any number.
        strides = [
            stride * dtype.itemsize if size > 1 else 0
            for size, stride in zip(tensor.shape, tensor.strides, strict=True)
        ]
        if not tensor.size:
            return np.zeros(tensor.shape, dtype)
        return np.require(np.ndarray(tensor.shape, dtype, data, strides=strides), requirements="C")

    def _read(self, start: int, size: int) -> bytearray:
        if start + size > self._size:
            raise ValueError(f"bytes {start} to {start + size} are beyond its end")
        data = bytearray(size)
        self._stream.seek(start)
        if self._stream.readinto(data) != size:
            raise ValueError(f"bytes {start} to {start + size} cannot be read")
        return data

    def _unpack(self, layout: struct.Struct, start: int, signature: bytes) -> tuple[Any, ...]:
        if start < 0:
            raise ValueError(f"no {signature!r} of a zip file")
        values = layout.unpack(self._read(start, layout.size))
        if values[0] != signature:
            raise ValueError(f"no {signature!r} of a zip file at byte {start}")
        return values[1:]

    def _verify(self, key: str, byte_range: _ByteRange) -> None:
        """Compares an entry of a zip file with its checksum, once."""
        if byte_range.checksum is None or key in self._verified:
            return
        found, end = 0, byte_range.start + byte_range.size
        for start in range(byte_range.start, end, _CHUNK):
            found = zlib.crc32(self._read(start, min(_CHUNK, end - start)), found)
        if found != byte_range.checksum:
            raise ValueError(f"entry {key!r} has checksum {found:08x}; its zip entry states {byte_range.checksum:08x}")
        self._verified.add(key)

    # === The format before PyTorch 1.6 ===

    def _read_legacy(self) -> tuple[Any, dict[str, _ByteRange]]:
        """Reads five pickles: magic number, version, byte order, tensors, keys of the storages, which follow."""
        stream = io.BytesIO(self._read(0, min(self._size, self._max_pickle)))
        reader = TensorPickle(stream, self._max_operations)
        magic = reader.read_value()
        if not isinstance(magic, int) or magic != _LEGACY_MAGIC:
            raise ValueError("neither a zip file nor one with PyTorch's magic number")
        version, system = reader.read_value(), reader.read_value()
        if not isinstance(version, int) or version != _LEGACY_VERSION:
            raise ValueError(f"its version is not {_LEGACY_VERSION}")
        if not isinstance(system, dict) or system.get("little_endian") is not True:
            raise RefusedError("it was written on a big-endian machine; only little-endian files are read")
        value, keys = reader.read_value(), reader.read_value()
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise ValueError("it has no list of storages")
        ranges, start = {}, stream.tell()
        for key in keys:
            storage = reader.storages.get(key)
            if storage is None or key in ranges:
                raise ValueError(f"its list of storages has {key!r:.100}, which is unknown or there twice")
            (count,) = struct.unpack("<q", self._read(start, 8))
            if count != storage.count:
                raise RefusedError(
                    f"its pickle's opcode BINPERSID says that storage {key!r} has {storage.count} elements; it has "
                    f"{count}"
                )
            ranges[key] = _ByteRange(start + 8, self._count_bytes(storage, self._size - start - 8))
            start += 8 + ranges[key].size
        if missing := sorted(reader.storages.keys() - ranges.keys()):
            raise ValueError(f"storage {missing[0]!r:.100} is missing")
        return value, ranges

    def _count_bytes(self, storage: Storage, available: int) -> int:
        size = storage.count * np.dtype(storage.dtype).itemsize
        if size > available:
            raise RefusedError(
                f"its pickle's opcode BINPERSID says that storage {storage.key!r} has {storage.count} elements of type "
                f"{storage.dtype}, {size} bytes; the file has {available}"
            )
        return size

    # === The format since PyTorch 1.6: a zip file without compression ===

    def _read_zip(self) -> tuple[Any, dict[str, _ByteRange]]:
        entries = self._read_zip_entries()
        root = next(iter(entries), "").partition("/")[0]
        pickle_entry = entries.get(f"{root}/data.pkl")
        if pickle_entry is None:
            raise ValueError(f"no data.pkl among the entries {sorted(entries)[:_MAX_NAMES_LISTED]} of the zip file")
        if pickle_entry.size > self._max_pickle:
            raise RefusedError(f"its pickle has {pickle_entry.size} bytes, of at most {self._max_pickle}")
        byte_order = entries.get(f"{root}/byteorder")  # absent in files of older versions
        if byte_order and self._read(byte_order.start, min(byte_order.size, 16)) != b"little":
            raise RefusedError("its byteorder is not 'little'; only little-endian files are read")
        self._verify("data.pkl", pickle_entry)
        reader = TensorPickle(io.BytesIO(self._read(pickle_entry.start, pickle_entry.size)), self._max_operations)
        value = reader.read_value()
        ranges = {}
        for key, storage in reader.storages.items():
            entry = entries.get(f"{root}/data/{key}")
            if entry is None:
                raise ValueError(f"storage {key!r:.100} is missing")
            self._count_bytes(storage, entry.size)
            ranges[key] = entry
        return value, ranges

    def _read_zip_entries(self) -> dict[str, _ByteRange]:
        """Reads the table of contents; the entries follow each other in the file, without overlap or compression."""
        end = self._size - _ZIP_END.size
        *_, count, size, position, comment = self._unpack(_ZIP_END, end, b"PK\5\6")
        if comment:
            raise ValueError("its zip file has a comment")
        if count == _MAX_UINT16 or _MAX_UINT32 in (size, position) or self._has_zip64(end):
            end -= _ZIP64_LOCATOR.size
            _, end, _ = self._unpack(_ZIP64_LOCATOR, end, b"PK\6\7")
            *_, count, size, position = self._unpack(_ZIP64_END, end, b"PK\6\6")
        if count > self._max_entries or position + size > end:
            raise RefusedError(f"its zip file states {count} entries in bytes {position} to {position + size}")
        entries: dict[str, _ByteRange] = {}
        limit, last = position, 0  # data is between these two
        for _ in range(count):
            fields = self._unpack(_ZIP_ENTRY, position, b"PK\1\2")
            (flags, method), checksum, lengths = fields[2:4], fields[6], fields[9:12]
            if max(lengths) > _MAX_FIELD:
                raise RefusedError(f"its zip file has an entry with a field of over {_MAX_FIELD} bytes")
            position += _ZIP_ENTRY.size
            raw_name, extra = self._read(position, lengths[0]), self._read(position + lengths[0], lengths[1])
            position += sum(lengths)
            name = raw_name.decode("latin-1")
            unpacked, packed, header = _apply_zip64(extra, (fields[8], fields[7], fields[15]))
            if method != _STORED or packed != unpacked or flags & _ENCRYPTED:
                raise RefusedError(f"the entry {name!r} of its zip file is compressed or encrypted")
            if name in entries or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
                raise RefusedError(f"the entry {name!r} of its zip file has a name that is unsafe or there twice")
            *_, local_length, local_extra = self._unpack(_ZIP_LOCAL, header, b"PK\3\4")
            start = header + _ZIP_LOCAL.size + local_length + local_extra
            if header < last or start + unpacked > limit:
                raise RefusedError(f"the entry {name!r} of its zip file overlaps with another or with the contents")
            if self._read(header + _ZIP_LOCAL.size, local_length) != raw_name:
                raise RefusedError(f"the entry {name!r} of its zip file has another name in the contents")
            last = start + unpacked
            entries[name] = _ByteRange(start, unpacked, checksum)
        return entries

    def _has_zip64(self, end: int) -> bool:
        start = end - _ZIP64_LOCATOR.size
        return start >= 0 and self._read(start, 4) == b"PK\6\7"


def _apply_zip64(extra: bytes | bytearray, values: tuple[int, ...]) -> list[int]:
    """Replaces sizes and positions that need more than 32 bits by those in the extra field."""
    fields: Iterator[tuple[int, ...]] = iter(())
    rest = memoryview(extra)
    while len(rest) >= 4:
        kind, length = struct.unpack_from("<2H", rest)
        if kind == _ZIP64_EXTRA:
            numbers = rest[4 : 4 + length]
            fields = struct.iter_unpack("<Q", numbers[: len(numbers) // 8 * 8])
        rest = rest[4 + length :]
    return [next(fields, (value,))[0] if value == _MAX_UINT32 else value for value in values]


def _find_state_dict(value: Any) -> Mapping[str, Tensor]:
    for _ in range(_MAX_NESTING):
        if not isinstance(value, dict):
            break
        inner = next((value[key] for key in _STATE_DICT_KEYS if isinstance(value.get(key), dict)), None)
        if inner is None:
            tensors = {name: item for name, item in value.items() if isinstance(name, str) and isinstance(item, Tensor)}
            if tensors:
                return tensors
            names = [str(name)[:100] for name in list(value)[:_MAX_NAMES_LISTED]]
            raise RefusedError(f"it has no tensors, alone or below one of {_STATE_DICT_KEYS}, but the keys {names}")
        value = inner
    raise RefusedError(f"it contains a {type(value).__name__}, not a dictionary of tensors")
