"""Reading and opening of local files that somebody else may have made: no links, bounded sizes, one kind of error."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

from keras_bert.typing import PathLike

MAX_JSON_BYTES = 1 << 28  # of a JSON file; the largest that a run writes, its log excepted, has a few megabytes
MAX_JSON_DEPTH = 100  # of lists and objects within each other


def open_own_file(path: PathLike, flags: int, advice: str) -> int:
    """Opens a regular file for reading, writing or both, without following a link; returns the file descriptor.

    `flags` are those of `os.open`. A process that writes a file of its own in a folder of somebody else must not write
    to whatever a link there points to. Raises ValueError, whose message ends with `advice`, if `path` is a link or not
    a regular file.

    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "log").symlink_to(folder / "diary")
    >>> open_own_file(folder / "log", os.O_RDWR | os.O_CREAT, "Remove the link.")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: .../log is a link to .../diary, and links are not followed here. Remove the link.
    """
    path = Path(path)
    no_follow = getattr(os, "O_NOFOLLOW", 0)
    refusal = None
    if not no_follow and path.is_symlink():
        refusal = _describe_link(path)
    if refusal is None:
        try:
            # Not blocking: opening a pipe would wait for its other end.
            handle = os.open(path, flags | no_follow | getattr(os, "O_NONBLOCK", 0), 0o644)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK) and path.is_symlink():
                refusal = _describe_link(path)
            elif error.errno in (errno.EISDIR, errno.ENXIO):
                refusal = f"{path} is not a regular file"
            else:
                raise
        else:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return handle
            os.close(handle)
            refusal = f"{path} is not a regular file"
    raise ValueError(f"{refusal}. {advice}")


def parse_json(content: bytes, max_depth: int = MAX_JSON_DEPTH, **hooks: Any) -> Any:
    """Parses JSON in UTF-8; raises ValueError, without the name of the file, for anything that is not.

    Refused are also more than `MAX_JSON_BYTES`, lists and objects nested more than `max_depth` deep, and integers
    beyond 64 bits, which every later conversion would have to expect. `hooks` are those of `json.loads`; a `parse_int`
    among them replaces the last check.

    >>> parse_json(b"[" * 1000 + b"]" * 1000)
    Traceback (most recent call last):
    ValueError: lists and objects are nested more than 100 deep
    """
    if len(content) > MAX_JSON_BYTES:
        raise ValueError(f"there are {len(content)} bytes, and at most {MAX_JSON_BYTES} are read")
    hooks = {"parse_int": _parse_int, **hooks}
    try:
        value = json.loads(content.decode("utf-8"), **hooks)
    except RecursionError:
        raise ValueError(f"lists and objects are nested more than {max_depth} deep") from None
    level, depth = [[value]], 0
    while level := [item for group in level for item in _items(group)]:
        depth += 1
        if depth > max_depth:
            raise ValueError(f"lists and objects are nested more than {max_depth} deep")
    return value


def read_json_file(path: PathLike) -> Any:
    """Reads a JSON file, as `parse_json` does; raises FileNotFoundError, or ValueError without the name of the file."""
    return parse_json(read_regular_file(path, MAX_JSON_BYTES + 1))


def read_regular_file(path: PathLike, max_bytes: int) -> bytes:
    """Reads at most `max_bytes` of a file or of what a link points to; raises ValueError, without the name of the file,
    if that is a folder, a device or a pipe, which might never end."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("it is not a regular file")
    with os.fdopen(handle, "rb") as file:
        return file.read(max_bytes)


def _describe_link(path: Path) -> str:
    return f"{path} is a link to {os.readlink(path)}, and links are not followed here"


def _parse_int(digits: str) -> int:
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 64:
        raise ValueError(f"an integer of {len(digits)} characters has more than 64 bits: {digits[:20]}...")
    return int(digits)


def _items(value: Any) -> list[Any]:
    """Returns the lists and objects that a list or object holds."""
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in held if isinstance(item, (dict, list))]
