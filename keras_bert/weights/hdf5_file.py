"""Opens HDF5 files of plain tensors, as h5py and Keras write them by default, without the HDF5 library.

HDF5 is a file system of its own: links to other files, tensors stored elsewhere, filters, references. The files of
weights need none of it, and the library can run for minutes on a damaged one. So only this subset is read ("HDF5 File
Format Specification", version 3.0): a superblock of version 0, groups as symbol tables, object headers of version 1,
and contiguous tensors. Every byte of the file may belong to one structure or tensor only, so that time and memory are
bounded by the size of the file.
"""

import contextlib
import math
import os
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import ml_dtypes
import numpy as np

from keras_bert.weights.tensor_file import TensorEntry, TensorFile

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_OFFSET_SIZE = 8
# Types of the messages in an object header.
_DATASPACE, _DATATYPE, _LAYOUT, _CONTINUATION, _SYMBOL_TABLE = 0x1, 0x3, 0x8, 0x10, 0x11
_REFUSED_MESSAGES = {
    0x2: "a group in a newer layout",
    0x6: "a link in a newer layout",
    0x7: "a tensor in other files",
    0xB: "a compressed tensor",
}
_SHARED = 2  # flag of a message that is stored elsewhere
_HARD_LINKS = (0, 1)  # "cache types" of the entries of a group; 2 is a symbolic link
_LAYOUTS = {0: "inside its header", 1: "contiguously", 2: "in chunks", 3: "virtually, in other tensors"}
_CONTIGUOUS = 1
_MAX_DEPTH, _MAX_PATH, _MAX_RANK, _MAX_OBJECTS = 16, 250, 8, 50_000


@dataclass(frozen=True)
class _Tensor:
    shape: tuple[int, ...]
    dtype: np.dtype | None  # None: not numbers
    type_name: str
    address: int
    size: int  # in bytes


@contextlib.contextmanager
def open_hdf5(path: Path) -> Iterator[TensorFile]:
    """Opens an HDF5 file; the name of a tensor is its path in the file, such as "layers/dense/vars/0".

    Raises ValueError if the file is damaged or has anything but groups and contiguous tensors.
    """
    with open(path, "rb") as file:
        reader = _Reader(path, file)
        tensors = reader.find_tensors()
        entries = {name: TensorEntry(tensor.shape, tensor.type_name, path) for name, tensor in tensors.items()}
        yield TensorFile(path, entries, lambda name: reader.read_tensor(tensors[name]))


class _Reader:
    """Parses the structures of one file."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self.size = self.unclaimed = os.fstat(file.fileno()).st_size

    def find_tensors(self) -> dict[str, _Tensor]:
        """Walks through all groups and returns the tensors by path."""
        tensors: dict[str, _Tensor] = {}
        groups = [("", self._read_superblock())]
        while groups:
            prefix, address = groups.pop()
            messages = self._read_header(address)
            if _SYMBOL_TABLE not in messages:
                tensors[prefix] = self._parse_tensor(prefix, messages)
                continue
            if prefix.count("/") >= _MAX_DEPTH:
                self._refuse(f"groups nested more than {_MAX_DEPTH} deep")
            for name, child in self._read_group(messages[_SYMBOL_TABLE]).items():
                path = f"{prefix}/{name}" if prefix else name
                if len(path) > _MAX_PATH:
                    self._refuse(f"a path of more than {_MAX_PATH} characters")
                groups.append((path, child))
            self._check_number(len(groups) + len(tensors))
        return tensors

    def read_tensor(self, tensor: _Tensor) -> np.ndarray:
        """Reads a tensor of numbers; ValueError for another one."""
        if tensor.dtype is None:
            self._refuse(f"a tensor of {tensor.type_name}, which is not one of numbers")
        self.file.seek(tensor.address if tensor.size else 0)
        data = self.file.read(tensor.size)
        if len(data) != tensor.size:
            self._refuse("it became shorter while it was read")
        return np.frombuffer(data, tensor.dtype).reshape(tensor.shape)

    def _read_superblock(self) -> int:
        """Returns the address of the root group."""
        block = self._take(0, min(96, self.size), _SIGNATURE)
        version, offset_size, length_size = block[8:9], block[13:14], block[14:15]
        if len(block) < 96:
            self._refuse("it ends in its first block")
        if version != b"\0" or {*offset_size, *length_size} != {_OFFSET_SIZE}:
            self._refuse(f"the layout of its version {version[0]}; only that of version 0 is read")
        base, end, root = (struct.unpack_from("<Q", block, position)[0] for position in (24, 40, 64))
        if base:
            self._refuse("its contents do not begin at byte 0")
        if end > self.size:
            self._refuse(f"it should have {end} bytes")
        return root

    def _read_header(self, address: int) -> dict[int, bytes]:
        """Returns the messages of an object header that describe a group or tensor, by type."""
        version, count, size = struct.unpack("<BxH4xI4x", self._take(address, 16))
        if version != 1:
            self._refuse(f"an object header of another version at byte {address}")
        messages: dict[int, bytes] = {}
        blocks = deque([(address + 16, size)])
        while count and blocks:
            block = self._take(*blocks.popleft())
            position = 0
            while count and position + 8 <= len(block):
                kind, length, flags = struct.unpack_from("<HHB", block, position)
                body = block[position + 8 : position + 8 + length]
                position, count = position + 8 + length, count - 1
                if kind in _REFUSED_MESSAGES:
                    self._refuse(f"{_REFUSED_MESSAGES[kind]} at byte {address}")
                if kind == _CONTINUATION:
                    blocks.append(self._unpack("<QQ", body))
                elif kind in (_DATASPACE, _DATATYPE, _LAYOUT, _SYMBOL_TABLE):
                    if kind in messages or flags & _SHARED:
                        self._refuse(f"a repeated or shared description at byte {address}")
                    messages[kind] = body
        if count:
            self._refuse(f"an incomplete object header at byte {address}")
        return messages

    def _read_group(self, symbol_table: bytes) -> dict[str, int]:
        """Returns the addresses of a group's objects by name."""
        tree, heap = self._unpack("<QQ", symbol_table)
        size, address = struct.unpack_from("<Q8xQ", self._take(heap, 32, b"HEAP"), 8)
        names = self._take(address, size)
        objects: dict[str, int] = {}
        nodes = [tree]
        while nodes:
            node = nodes.pop()
            kind, level, used = struct.unpack_from("<BBH", self._take(node, 24, b"TREE"), 4)
            if kind:
                self._refuse(f"a tree of another kind at byte {node}")
            # Keys and children alternate.
            children = struct.unpack(f"<{2 * used}Q", self._take(node + 24, 16 * used + 8)[8:])[::2]
            if level:
                nodes.extend(children)
                self._check_number(len(nodes))
                continue
            for child in children:
                (num_entries,) = struct.unpack_from("<H", self._take(child, 8, b"SNOD"), 6)
                entries = self._take(child + 8, 40 * num_entries)
                for offset, header, cache_type in struct.iter_unpack("<QQI20x", entries):
                    name = self._parse_name(names, offset)
                    if cache_type not in _HARD_LINKS or name in objects:
                        self._refuse(f"a symbolic or repeated link {name!r}")
                    objects[name] = header
                self._check_number(len(objects))
        return objects

    def _check_number(self, number: int) -> None:
        if number > _MAX_OBJECTS:
            self._refuse(f"more than {_MAX_OBJECTS} groups and tensors")

    def _parse_name(self, names: bytes, offset: int) -> str:
        end = names.find(b"\0", offset, offset + _MAX_PATH + 1) if offset < len(names) else -1
        try:
            name = names[offset:end].decode("utf-8") if end > offset else ""
        except UnicodeDecodeError:
            name = ""
        if name in ("", ".", "..") or "/" in name:
            self._refuse("a name without an end, or one that is not text")
        return name

    def _parse_tensor(self, name: str, messages: dict[int, bytes]) -> _Tensor:
        if messages.keys() != {_DATASPACE, _DATATYPE, _LAYOUT}:
            self._refuse(f"{name!r} is neither a group nor a tensor")
        space, description, layout = (messages[kind] for kind in (_DATASPACE, _DATATYPE, _LAYOUT))
        version, rank = self._unpack("<BB", space)
        if version != 1 or rank > _MAX_RANK:
            self._refuse(f"the shape of {name!r} is stored in another way")
        shape = self._unpack(f"<8x{rank}Q", space)
        (item_size,) = self._unpack("<4xI", description)
        dtype = _NUMBER_TYPES.get(description[:20]) or _NUMBER_TYPES.get(description[:12])
        if dtype is None and description[:1] == b"\x15" and item_size == 2:
            # Keras stores bfloat16 as bytes without a meaning, next to an attribute that states the type.
            dtype = np.dtype(ml_dtypes.bfloat16)
        type_name = f"HDF5's class {description[0] & 15}" if dtype is None else dtype.name
        version, layout_class = self._unpack("<BB", layout)
        if version != 3 or layout_class != _CONTIGUOUS:
            self._refuse(f"{name!r} is stored {_LAYOUTS.get(layout_class, 'in another way')}")
        address, size = self._unpack("<2xQQ", layout)
        if size != math.prod(shape) * item_size:
            self._refuse(f"{name!r} has the shape {list(shape)}, but {size} bytes")
        if size:
            self._claim(address, size)
        return _Tensor(shape, dtype, type_name, address, size)

    def _unpack(self, template: str, data: bytes) -> tuple[Any, ...]:
        if len(data) < struct.calcsize(template):
            self._refuse("a description is cut off")
        return struct.unpack_from(template, data)

    def _take(self, address: int, size: int, signature: bytes = b"") -> bytes:
        """Reads a structure, which must begin with a signature."""
        self._claim(address, size)
        self.file.seek(address)
        data = self.file.read(size)
        if len(data) != size or not data.startswith(signature):
            self._refuse(f"no structure {signature!r} at byte {address}")
        return data

    def _claim(self, address: int, size: int) -> None:
        """Raises ValueError if the bytes are not in the file, or if more are claimed than it has."""
        self.unclaimed -= size
        if address + size > self.size:
            self._refuse(f"a structure of {size} bytes at byte {address}, which ends after the file")
        if self.unclaimed < 0:
            self._refuse("structures that overlap")

    def _refuse(self, found: str) -> NoReturn:
        raise ValueError(
            f"{self.path}: expected an HDF5 file of plain tensors, as Keras writes it; found {found}; the file has "
            f"{self.size} bytes. If the download is incomplete or the file is a Git LFS pointer, fetch it again; if "
            "another program wrote it, save the weights again with Keras or h5py's default settings."
        )


def _describe_number_types() -> dict[bytes, np.dtype]:
    """Returns the types of integers and floats by their description in a file."""
    types = {}
    for order, bit in (("<", 0), (">", 1)):
        for size in (1, 2, 4, 8):
            for kind, sign in (("u", 0), ("i", 8)):
                description = struct.pack("<BBBBIHH", 0x10, bit | sign, 0, 0, size, 0, 8 * size)
                types[description] = np.dtype(f"{order}{kind}{size}")
        for size, exponent, bias in ((2, 5, 15), (4, 8, 127), (8, 11, 1023)):
            sign_position, mantissa = 8 * size - 1, 8 * size - 1 - exponent
            head = struct.pack("<BBBBI", 0x11, 0x20 | bit, sign_position, 0, size)
            fields = struct.pack("<HHBBBBI", 0, 8 * size, mantissa, exponent, 0, mantissa, bias)
            types[head + fields] = np.dtype(f"{order}f{size}")
    return types


_NUMBER_TYPES = _describe_number_types()
