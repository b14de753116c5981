"""The directory of a run: configuration, log and checkpoints; never shared between two different runs."""

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert.io.atomic_write import nonfinite_to_none, write_json
from keras_bert.io.untrusted_files import open_own_file, parse_json, read_json_file
from keras_bert.typing import PathLike

CONFIGURATION_NAME = "configuration.json"
_LOG_NAME = "log.jsonl"
_LOCK_NAME = ".lock"
_MAX_VALUE_LENGTH = 200  # characters of a value in an error message
_MAX_LINE_BYTES = 1 << 24  # of a record of the log
_LINK_ADVICE = "A run writes only to files of its own: remove it, or use another --run_dir"


class RunDirectory:
    """The directory of a run, created if it does not exist.

    A directory that belongs to a different run is refused, and so is one in which another process works: a process
    holds the lock of a directory until its last `RunDirectory` for it is closed or deleted, or until the process ends.
    The file `.lock` names its current or last owner.

    Args:
        path: The directory.
        configuration: Everything that determines the result of the run, as values for JSON. A directory whose
            `configuration.json` holds an equal configuration is resumed.
        writer: False for all but one of several processes that work on one run. Such a process takes no lock and
            writes nothing, and the directory need not exist yet.

    Raises:
        FileExistsError: If the directory belongs to a run with another configuration, or contains files but no run.
        NotADirectoryError: If the path, or a part of it, is a file.
        ValueError: If `configuration.json` is damaged, or the file `.lock` or `log.jsonl` is a link: a run must not
            write to the file that it points to.
        BlockingIOError: If another process works in the directory.

    Example:

    >>> folder = Path(tempfile.mkdtemp()) / "run"
    >>> RunDirectory(folder, {"learning_rate": 5e-5}).existed
    False
    >>> RunDirectory(folder, {"learning_rate": 5e-5}).existed
    True
    """

    def __init__(self, path: PathLike, configuration: Mapping[str, Any], writer: bool = True) -> None:
        self.path = Path(path)
        self.configuration = json.loads(json.dumps(configuration))
        self.writer = writer
        self._lock: _Lock | None = None
        self.existed = self._check_for_run()
        if writer:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock_folder(self.path)
            try:
                self.existed = self._check_for_run()  # another process may have started a run here in the meantime
                log = self.path / _LOG_NAME
                if os.path.lexists(log):  # found now, and not after the first hundred steps
                    os.close(open_own_file(log, os.O_RDWR, _LINK_ADVICE))
                if not self.existed:
                    write_json(self.path / CONFIGURATION_NAME, self.configuration, overwrite=True)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Releases the lock, so that other processes may work in the directory. Call it after the last write."""
        self._lock = None

    def log(self, record: Mapping[str, Any]) -> None:
        """Appends a record to `log.jsonl`; does nothing if `writer` is False.

        Args:
            record: Values for JSON. Numbers that are not finite are written as null.
        """
        if not self.writer:
            return
        line = json.dumps(nonfinite_to_none(record), allow_nan=False) + "\n"
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with os.fdopen(open_own_file(self.path / _LOG_NAME, flags, _LINK_ADVICE), "a+b") as log:
            if log.seek(0, os.SEEK_END):
                log.seek(-1, os.SEEK_END)
                if log.read(1) != b"\n":  # the process that wrote the last line was killed
                    line = "\n" + line
            log.write(line.encode())

    def read_log(self) -> list[dict[str, Any]]:
        """Returns the records of `log.jsonl`, oldest first.

        Lines that are not JSON objects are left out: they were cut off when a process was killed, or damaged. Raises
        ValueError if the file is a link.
        """
        records = []
        with contextlib.suppress(FileNotFoundError):
            handle = open_own_file(self.path / _LOG_NAME, os.O_RDONLY, _LINK_ADVICE)
            with os.fdopen(handle, "rb") as log:
                while line := log.readline(_MAX_LINE_BYTES):
                    with contextlib.suppress(ValueError):
                        record = parse_json(line)
                        if isinstance(record, dict):
                            records.append(record)
        return records

    def _check_for_run(self) -> bool:
        """Returns whether the directory contains this run; raises if it contains anything else."""
        file = next((part for part in (self.path, *self.path.parents) if part.exists() and not part.is_dir()), None)
        if file is not None:
            raise NotADirectoryError(
                f"{self.path} cannot be the directory of a run: {file} is a file; use another --run_dir"
            )
        if (self.path / CONFIGURATION_NAME).is_file():
            differences = "; ".join(_list_differences(self.configuration, read_configuration(self.path)))
            if differences:
                raise FileExistsError(
                    f"{self.path} belongs to a run with another configuration: {differences}. Use the same values to "
                    "resume that run, or another --run_dir for a new run"
                )
            return True
        if self.writer and self.path.is_dir() and not all(_is_leftover(file) for file in self.path.iterdir()):
            raise FileExistsError(
                f"{self.path} is not empty and is not the directory of a run (it has no {CONFIGURATION_NAME}); use "
                "another --run_dir, or empty this one"
            )
        return False


def read_configuration(path: PathLike) -> dict[str, Any]:
    """Returns the configuration of the run in a directory; raises FileNotFoundError if there is no run, and ValueError
    if the file is damaged."""
    file = Path(path) / CONFIGURATION_NAME
    if not file.is_file():
        raise FileNotFoundError(f"{path} is not the directory of a run: it has no {CONFIGURATION_NAME}")
    return read_json_object(file)


def read_json_object(
    file: Path, find_problem: Callable[[dict[str, Any]], str | None] = lambda value: None
) -> dict[str, Any]:
    """Returns the JSON object in a file of a run; raises ValueError, which names the file, if there is none in it, or
    if `find_problem` says what is wrong with it."""
    try:
        value = read_json_file(file)
        problem = find_problem(value) if isinstance(value, dict) else f"it holds {_shorten(value)}"
    except ValueError as error:
        problem = str(error)
    if problem is not None:
        raise ValueError(
            f"{file} is damaged: it must hold a JSON object, as the run wrote it ({problem}). Restore the file, or "
            "start a new run in another folder"
        )
    return value


def _list_differences(ours: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields what differs, by name; for nested dicts, only the values inside that differ."""
    for name in sorted({*ours, *theirs}):
        here, there = ours.get(name), theirs.get(name)
        if isinstance(here, dict) and isinstance(there, dict):
            yield from _list_differences(here, there, f"{prefix}{name}.")
        elif here != there:
            yield f"{prefix}{name} is {_shorten(here)}, but {_shorten(there)} in that run"


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."


def _is_leftover(file: Path) -> bool:
    """Returns whether a process that was killed before it had written `configuration.json` may have left this file."""
    return file.name == _LOCK_NAME or file.name.startswith(f".{CONFIGURATION_NAME}.")


class _Lock:
    """Keeps a locked file open until it is deleted or the process ends."""

    def __init__(self, handle: int) -> None:
        # Not `__del__`: when the interpreter exits, it could run after `os` is gone. The system closes the file then.
        weakref.finalize(self, os.close, handle).atexit = False


# A process may open a directory several times. Locks by device and inode number.
_locks: weakref.WeakValueDictionary[tuple[int, int], _Lock] = weakref.WeakValueDictionary()
_locks_guard = threading.Lock()


def _lock_folder(folder: Path) -> _Lock:
    with _locks_guard:
        handle = open_own_file(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT, _LINK_ADVICE)
        status = os.fstat(handle)
        key = status.st_dev, status.st_ino
        lock = _locks.get(key)
        if lock is not None:
            os.close(handle)
            return lock
        try:
            _take_lock(folder, handle)
        except BaseException:
            os.close(handle)
            raise
        _locks[key] = lock = _Lock(handle)
        return lock


def _take_lock(folder: Path, handle: int) -> None:
    """Locks an open file, and writes its owner into it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(
            f"{folder} is in use by {_read_owner(handle)}. Two processes cannot write one run: wait until that process "
            "has ended, or end it, and run the same command again; for another run, use another --run_dir"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        logging.warning(
            "%s cannot be locked on this file system (%s); make sure that no other process works in it", folder, error
        )
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    owner = json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since})
    os.ftruncate(handle, 0)
    os.pwrite(handle, owner.encode(), 0)


def _read_owner(handle: int) -> str:
    try:
        owner = json.loads(os.pread(handle, 4096, 0))
        return f"process {owner['process']} on {owner['host']} since {owner['since']}"
    except (ValueError, KeyError, TypeError, RecursionError):  # the owner has not been written yet
        return "another process since a moment ago"
