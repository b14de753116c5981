"""Atomic writes: a file or folder appears under its name when it is complete, or not at all.

Everything is written to a hidden temporary name, `.NAME.unfinished-...`, in the same folder, and renamed at the end.
After an error the temporary file is deleted; only a killed process leaves one behind. Nothing is overwritten unless the
caller asks for it.
"""

import contextlib
import errno
import json
import math
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from keras_bert.typing import PathLike

UNFINISHED_MARK = ".unfinished-"


@contextlib.contextmanager
def atomic_path(path: PathLike, overwrite: bool = False) -> Iterator[Path]:
    """Yields a temporary path to write a file to; flushes the file to disk and renames it to `path` at the end.

    Missing parent folders are created. Raises FileExistsError, before or after the block, if the file exists and
    `overwrite` is False.
    """
    path = Path(path)
    _check_is_free(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(_temporary_name(path.name))
    try:
        yield unfinished
        sync_to_disk(unfinished)
        _check_is_free(path, overwrite)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def atomic_text_file(path: PathLike, overwrite: bool = False) -> Iterator[TextIO]:
    """Opens a UTF-8 text file as `atomic_path` does; line ends are written as they are."""
    with atomic_path(path, overwrite) as unfinished, open(unfinished, "x", encoding="utf-8", newline="") as file:
        yield file


def write_json(path: PathLike, value: Any, overwrite: bool = False) -> None:
    """Writes an indented JSON file atomically; NaN and infinities, which JSON does not have, become null."""
    with atomic_text_file(path, overwrite) as file:
        json.dump(nonfinite_to_none(value), file, indent=2, ensure_ascii=False, allow_nan=False)
        file.write("\n")


def nonfinite_to_none(value: Any) -> Any:
    """Replaces NaN and infinities by None in a value to be written as JSON."""
    if isinstance(value, dict):
        return {name: nonfinite_to_none(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [nonfinite_to_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def atomic_folder(path: PathLike) -> Iterator[Path]:
    """Yields a new temporary folder, which is renamed to `path` at the end. An empty folder at `path` is replaced.

    Raises FileExistsError, before or after the block, if `path` is a file or a folder with contents.
    """
    path = Path(os.path.abspath(path))
    taken = FileExistsError(f"{path} exists and is not overwritten; give another path, or remove it first")
    if os.path.lexists(path) and not (path.is_dir() and not os.listdir(path)):
        raise taken
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not a folder of `tempfile`: only its owner could read that, and a server often runs as another user.
    unfinished = path.with_name(_temporary_name(path.name))
    unfinished.mkdir()
    try:
        yield unfinished
        try:
            os.rename(unfinished, path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise taken from error
            raise
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def replace_folder(unfinished: Path, path: Path, replaced: Path) -> None:
    """Flushes a finished folder to disk and renames it to `path`; a folder already there is moved to `replaced`.

    For folders that several processes write under a name they all know. At every moment, `path` or `replaced` is a
    complete folder. The caller deletes `replaced` afterwards.
    """
    for file in [*unfinished.iterdir(), unfinished]:
        sync_to_disk(file)
    if path.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        os.rename(path, replaced)
    os.rename(unfinished, path)
    sync_to_disk(path.parent)


def sync_to_disk(path: Path) -> None:
    """Returns once the disk holds the contents of a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if not (path.is_dir() and error.errno in (errno.EINVAL, errno.ENOTSUP)):  # some network file systems
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def atomic_remote_path(path: str) -> Iterator[str]:
    """Yields a temporary name on any file system of `tf.io.gfile`, to be renamed to `path`, replacing a file there."""
    import tensorflow as tf  # not needed for local files

    folder, separator, name = path.rpartition("/")
    unfinished = f"{folder}{separator}{_temporary_name(name)}"
    try:
        yield unfinished
        tf.io.gfile.rename(unfinished, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(unfinished)
        raise


def _temporary_name(name: str) -> str:
    return f".{name}{UNFINISHED_MARK}{uuid.uuid4().hex}"


def _check_is_free(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the path of a file")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists and is not overwritten; give another path, or overwrite=True")
