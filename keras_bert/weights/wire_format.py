"""Parses the wire format of protocol buffers, in which TensorFlow stores its tables of contents and object graphs."""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BYTES = 10

Value = int | memoryview


def read_fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """Yields number and value of each field of a message; raises ValueError if it is damaged.

    >>> list(read_fields(memoryview(bytes([0x08, 0x96, 0x01]))))
    [(1, 150)]
    """
    position = 0
    while position < len(message):
        tag, position = read_varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = read_varint(message, position)
            yield tag >> 3, value
            continue
        size = _FIXED_SIZES.get(kind)
        if kind == _BYTES:
            size, position = read_varint(message, position)
        if size is None or size > len(message) - position:
            raise ValueError(
                f"a field of wire type {kind} and {size} bytes, {len(message) - position} bytes before its end"
            )
        part = message[position : position + size]
        yield tag >> 3, part if kind == _BYTES else int.from_bytes(part, "little")
        position += size


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """Returns the unsigned number at a position, and the position after it."""
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if position + index >= len(data):
            break
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & (2**64 - 1), position + index + 1
    raise ValueError(f"a number at byte {position} of {len(data)} does not end")


def as_int64(value: Value) -> int:
    """Returns the value of a field of type int32 or int64."""
    if not isinstance(value, int):
        raise ValueError(f"a field of {len(value)} bytes in place of a number")
    return value - 2**64 if value >= 2**63 else value


def as_message(value: Value) -> memoryview:
    """Returns the value of a field that holds a message."""
    if isinstance(value, int):
        raise ValueError(f"the number {value} in place of a message or text")
    return value


def as_text(value: Value) -> str:
    """Returns the value of a field that holds text; bytes that are not UTF-8 are escaped."""
    return bytes(as_message(value)).decode("utf-8", errors="backslashreplace")
