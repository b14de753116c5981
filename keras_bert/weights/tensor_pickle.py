"""Reads the pickle of a PyTorch file without running it: tensors in dictionaries and lists, and nothing else."""

import io
import math
import pickletools
import struct
from dataclasses import dataclass
from typing import Any, NoReturn

# The names in a file, and NumPy's (with ml_dtypes).
STORAGE_TYPES = {
    "torch.FloatStorage": "float32",
    "torch.HalfStorage": "float16",
    "torch.BFloat16Storage": "bfloat16",
    "torch.DoubleStorage": "float64",
    "torch.LongStorage": "int64",
    "torch.IntStorage": "int32",
    "torch.ShortStorage": "int16",
    "torch.CharStorage": "int8",
    "torch.ByteStorage": "uint8",
    "torch.BoolStorage": "bool",
}
_ORDERED_DICT = "collections.OrderedDict"
_BUILD_TENSOR = "torch._utils._rebuild_tensor_v2"
_BUILD_PARAMETER = "torch._utils._rebuild_parameter"
_OPCODES = {opcode.code.encode("latin-1"): opcode.name for opcode in pickletools.opcodes}
# The opcodes with a number, or with the length of what follows.
_NUMBERS = {
    "PROTO": "<B",
    "FRAME": "<Q",
    "BININT": "<i",
    "BININT1": "<B",
    "BININT2": "<H",
    "BINFLOAT": ">d",
    "LONG1": "<B",
    "BINUNICODE": "<I",
    "SHORT_BINUNICODE": "<B",
    "BINPUT": "<B",
    "LONG_BINPUT": "<I",
    "BINGET": "<B",
    "LONG_BINGET": "<I",
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLE_LENGTHS = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MAX_DIMENSIONS = 64
_MAX_SIZE = 2**63 - 1
_MAX_NAME_LENGTH = 200  # of an import, in bytes


class RefusedError(ValueError):
    """A file asks for more than the tensors that it contains."""


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """The data that one or more tensors are views of."""

    key: str
    dtype: str
    count: int  # in elements


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor, a view of its storage. Offset and strides are in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """Number of elements of the storage from the tensor's first to its last."""
        steps = zip(self.shape, self.strides, strict=True)
        return 1 + sum((size - 1) * stride for size, stride in steps) if self.size else 0


@dataclass(frozen=True, slots=True, eq=False)
class _Import:
    name: str


_IMPORTS = {name: _Import(name) for name in (*STORAGE_TYPES, _ORDERED_DICT, _BUILD_TENSOR, _BUILD_PARAMETER)}


class _OrderedDict(dict[Any, Any]):
    """An OrderedDict in the pickle; attributes that are set on it are dropped."""


class TensorPickle:
    """Interprets the opcodes that a pickled dictionary of tensors needs. Nothing is imported and nothing is called.

    `stream` may contain several pickles; `read_value` reads the next one. Raises RefusedError if it has more than
    `max_operations` opcodes, or any opcode, import or call that is not needed, and ValueError if it is incomplete.
    """

    def __init__(self, stream: io.BytesIO, max_operations: int):
        self.storages: dict[str, Storage] = {}  # that the pickles mentioned, by key
        self._stream = stream
        self._max_operations = max_operations
        self._opcode = ""
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []  # the stacks below each mark
        self._memo: dict[int, Any] = {}

    def read_value(self) -> Any:
        """Returns the value of the next pickle: dicts, lists, tuples, strings, numbers and `Tensor`."""
        self._stack, self._marks, self._memo = [], [], {}
        for _ in range(self._max_operations):
            byte = self._read(1)
            if byte not in _OPCODES:
                raise ValueError(f"byte {self._stream.tell() - 1} is not an opcode of a pickle")
            self._opcode = _OPCODES[byte]
            if self._opcode == "STOP":
                return self._pop(1)[0]
            self._apply(self._opcode)
        raise RefusedError(f"its pickle has more than the {self._max_operations} opcodes that are read")

    def _apply(self, opcode: str) -> None:
        push = self._stack.append
        match opcode:
            case "PROTO" | "FRAME":
                self._read_number()
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                push(_CONSTANTS[opcode])
            case "BININT" | "BININT1" | "BININT2" | "BINFLOAT":
                push(self._read_number())
            case "LONG1":
                push(int.from_bytes(self._read(self._read_number()), "little", signed=True))
            case "BINUNICODE" | "SHORT_BINUNICODE":
                push(self._read(self._read_number()).decode())
            case "EMPTY_DICT":
                push({})
            case "EMPTY_LIST":
                push([])
            case "EMPTY_TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                push(tuple(self._pop(_TUPLE_LENGTHS[opcode])))
            case "MARK":
                self._marks.append(self._stack)
                self._stack = []
            case "TUPLE":
                items = self._pop_mark()
                self._stack.append(tuple(items))
            case "SETITEM":
                self._set_items(self._pop(2))
            case "SETITEMS":
                self._set_items(self._pop_mark())
            case "APPEND":
                self._append(self._pop(1))
            case "APPENDS":
                self._append(self._pop_mark())
            case "BINPUT" | "LONG_BINPUT":
                self._memo[self._read_number()] = self._top()
            case "MEMOIZE":
                self._memo[len(self._memo)] = self._top()
            case "BINGET" | "LONG_BINGET":
                key = self._read_number()
                if key not in self._memo:
                    raise ValueError(f"its pickle recalls value {key} before it is stored")
                push(self._memo[key])
            case "GLOBAL":
                push(self._import(self._read_line(), self._read_line()))
            case "STACK_GLOBAL":
                push(self._import(*self._pop(2)))
            case "BINPERSID":
                push(self._find_storage(*self._pop(1)))
            case "REDUCE":
                push(self._call(*self._pop(2)))
            case "BUILD":
                self._pop(1)
                if not isinstance(self._top(), _OrderedDict):
                    self._refuse("sets the state of something other than an OrderedDict")
            case _:
                self._refuse("is not needed for tensors")

    def _refuse(self, reason: str) -> NoReturn:
        raise RefusedError(f"its pickle's opcode {self._opcode} {reason}")

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ValueError(f"its pickle ends at byte {self._stream.tell()} without a STOP")
        return data

    def _read_number(self) -> Any:
        layout = _NUMBERS[self._opcode]
        return struct.unpack(layout, self._read(struct.calcsize(layout)))[0]

    def _read_line(self) -> str:
        return self._stream.readline(_MAX_NAME_LENGTH).decode("latin-1").removesuffix("\n")

    def _top(self) -> Any:
        if not self._stack:
            raise ValueError(f"its pickle's opcode {self._opcode} finds no value to work on")
        return self._stack[-1]

    def _pop(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise ValueError(f"its pickle's opcode {self._opcode} finds no value to work on")
        keep = len(self._stack) - count
        values = self._stack[keep:]
        del self._stack[keep:]
        return values

    def _pop_mark(self) -> list[Any]:
        if not self._marks:
            raise ValueError(f"its pickle's opcode {self._opcode} finds no mark")
        values, self._stack = self._stack, self._marks.pop()
        return values

    def _set_items(self, items: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, dict) or len(items) % 2:
            self._refuse("sets items of something other than a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Nothing else is hashed: the hash of nested tuples recurses.
            if not isinstance(key, str | int):
                self._refuse(f"sets a key of type {type(key).__name__}; only str and int are allowed")
            if key in target:
                self._refuse(f"sets the key {str(key)[:_MAX_NAME_LENGTH]!r} twice")
            target[key] = value

    def _append(self, items: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, list):
            self._refuse("appends to something other than a list")
        target.extend(items)

    def _import(self, module: Any, name: Any) -> _Import:
        if not isinstance(module, str) or not isinstance(name, str):
            self._refuse("imports a name that is not a string")
        found = _IMPORTS.get(f"{module}.{name}")
        if found is None:
            full = f"{module[:_MAX_NAME_LENGTH]}.{name[:_MAX_NAME_LENGTH]}"
            self._refuse(
                f"imports {full!r}; allowed are {_ORDERED_DICT}, {_BUILD_TENSOR}, {_BUILD_PARAMETER} and the storages "
                f"{', '.join(STORAGE_TYPES)}"
            )
        return found

    def _call(self, function: Any, arguments: Any) -> Any:
        if not isinstance(function, _Import) or not isinstance(arguments, tuple):
            self._refuse("calls something that is not an import")
        if function.name == _ORDERED_DICT and not arguments:
            return _OrderedDict()
        if function.name == _BUILD_TENSOR and len(arguments) in (6, 7):
            return self._build_tensor(*arguments[:4])
        if function.name == _BUILD_PARAMETER and len(arguments) == 3 and isinstance(arguments[0], Tensor):
            return arguments[0]
        self._refuse(f"calls {function.name} with other arguments than a tensor's")

    def _build_tensor(self, storage: Any, offset: Any, shape: Any, strides: Any) -> Tensor:
        if not (isinstance(storage, Storage) and isinstance(shape, tuple) and isinstance(strides, tuple)):
            self._refuse(f"calls {_BUILD_TENSOR} with other arguments than a tensor's")
        sizes = (offset, *shape, *strides)
        if len(shape) != len(strides) or len(shape) > _MAX_DIMENSIONS or not all(map(_is_size, sizes)):
            self._refuse(f"calls {_BUILD_TENSOR} with a shape or strides that no tensor has")
        tensor = Tensor(storage, offset, shape, strides)
        if offset + tensor.span > storage.count or tensor.size > storage.count:
            self._refuse(
                f"calls {_BUILD_TENSOR} for a tensor beyond its storage: offset {offset}, shape {list(shape)}, strides "
                f"{list(strides)}; storage {storage.key!r} has {storage.count} elements"
            )
        return tensor

    def _find_storage(self, reference: Any) -> Storage:
        if not isinstance(reference, tuple) or len(reference) not in (5, 6) or reference[5:] not in ((), (None,)):
            self._refuse("refers to something other than a storage of tensors")
        tag, kind, key, _, count = reference[:5]
        if tag != "storage" or not isinstance(kind, _Import) or kind.name not in STORAGE_TYPES or not _is_size(count):
            self._refuse("refers to something other than a storage of tensors")
        if not isinstance(key, str):  # not shown: the text of nested tuples may be endless
            self._refuse("refers to something other than a storage of tensors")
        if not (key.isascii() and key.isdigit()):
            self._refuse(f"refers to the storage {key[:_MAX_NAME_LENGTH]!r}; only numbers are allowed")
        storage = self.storages.setdefault(key, Storage(key, STORAGE_TYPES[kind.name], count))
        if (storage.dtype, storage.count) != (STORAGE_TYPES[kind.name], count):
            self._refuse(f"refers to the storage {key!r} with two types or sizes")
        return storage


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= _MAX_SIZE
