"""Writes files of PyTorch by hand, opcode by opcode, in its zip format and in the format before it."""

import struct
import zipfile

import numpy as np

ORDERED_DICT = b"ccollections\nOrderedDict\n"
EMPTY_ORDERED_DICT = ORDERED_DICT + b")R"
REBUILD_TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
REBUILD_PARAMETER = b"ctorch._utils\n_rebuild_parameter\n"
KINDS = {
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "float64": "DoubleStorage",
    "int64": "LongStorage",
}


def text(value):
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value):
    return b"\x8a\x10" + value.to_bytes(16, "little", signed=True)


def group(*items):
    return b"(" + b"".join(items) + b"t"


def dictionary(items, start=b"}"):
    return start + b"(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def storage(key="0", count=6, kind="FloatStorage", legacy=False):
    view = [b"N"] if legacy else []
    return group(text("storage"), f"ctorch\n{kind}\n".encode(), text(key), text("cpu"), number(count), *view) + b"Q"


def tensor(stored, offset=0, shape=(2, 3), strides=(3, 1)):
    sizes = [group(*map(number, values)) for values in (shape, strides)]
    return REBUILD_TENSOR + group(stored, number(offset), *sizes, b"\x89", EMPTY_ORDERED_DICT) + b"R"


def parameter(value):
    return REBUILD_PARAMETER + group(value, b"\x88", EMPTY_ORDERED_DICT) + b"R"


def write_zip(path, pickle, storages, entries=None, compression=zipfile.ZIP_STORED):
    """Writes a pickle without its first and last opcode, and the storages' bytes by key."""
    contents = {"data.pkl": b"\x80\x02" + pickle + b".", "byteorder": b"little", "version": b"3\n"}
    contents |= {f"data/{key}": data for key, data in storages.items()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in ({f"model/{name}": data for name, data in contents.items()} | (entries or {})).items():
            archive.writestr(name, data)


def write_legacy(path, pickle, storages, counts=None, little_endian=b"\x88"):
    """Writes the format before PyTorch 1.6; `counts` of elements are by default those of float32."""
    parts = [number(0x1950A86A20F9469CFC6C), number(1001), dictionary({"little_endian": little_endian}), pickle]
    parts.append(b"](" + b"".join(map(text, storages)) + b"e")
    data = b"".join(b"\x80\x02" + part + b"." for part in parts)
    for key, content in storages.items():
        data += struct.pack("<q", (counts or {}).get(key, len(content) // 4)) + content
    path.write_bytes(data)


def write_arrays(path, arrays, legacy=False, wrap=dictionary):
    """Writes contiguous arrays, each with a storage of its own; `wrap` turns their pickles into that of the file."""
    items, storages = {}, {}
    for key, (name, array) in enumerate(arrays.items()):
        stored = storage(str(key), array.size, KINDS[array.dtype.name], legacy)
        strides = np.array(array.strides) // array.itemsize
        items[name] = tensor(stored, 0, array.shape, map(int, strides))
        storages[str(key)] = array.tobytes()
    if legacy:
        write_legacy(path, wrap(items), storages, {str(key): array.size for key, array in enumerate(arrays.values())})
    else:
        write_zip(path, wrap(items), storages)
