"""Files that are written whole or not at all."""

import contextlib
import os
import uuid
from pathlib import Path


@contextlib.contextmanager
def atomic_text_file(path, overwrite=False):
    """Opens a UTF-8 file for writing, which appears under its name when the block ends without an error.

    Args:
        path: str or Path. Its folder is made if it is not there.
        overwrite: bool. Whether a file of that name may be replaced.

    Returns:
        Context manager that gives the open file. Line ends are written as they are.

    Raises:
        FileExistsError: if there is a file and it may not be replaced; before anything is written.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with atomic_text_file(path) as file:
    ...     _ = file.write("a note\\n")
    >>> path.read_text()
    'a note\\n'
    """
    with atomic_path(path, overwrite) as unfinished, open(unfinished, "x", encoding="utf-8", newline="") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def atomic_path(path, overwrite=False):
    """Gives a path to write a file to, which gets its name when the block ends without an error.

    Args:
        path: str or Path. Its folder is made if it is not there.
        overwrite: bool. Whether a file of that name may be replaced.

    Returns:
        Context manager that gives the Path of a hidden file beside it, which is not there yet.

    Raises:
        FileExistsError: if there is a file and it may not be replaced; before anything is written.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "numbers.bin"
    >>> with atomic_path(path) as unfinished:
    ...     _ = unfinished.write_bytes(b"123")
    >>> path.read_bytes()
    b'123'
    """
    path = Path(path)
    _check_is_free(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.parent / f".{path.name}.unfinished-{uuid.uuid4().hex}"
    try:
        yield unfinished
        _check_is_free(path, overwrite)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _check_is_free(path, overwrite):
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the path of a file")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists and is not overwritten; give another name, or overwrite=True")
