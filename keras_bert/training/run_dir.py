"""The folder of a run: what was asked for, a log, checkpoints; and the refusal to mix two runs in one."""

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
import weakref
from datetime import datetime
from pathlib import Path

from absl import logging

from keras_bert.io.atomic_write import nonfinite_to_none, write_json

CONFIGURATION_NAME = "configuration.json"
_LOG_NAME = "log.jsonl"
_LOCK_NAME = ".lock"
_LONGEST_VALUE = 200  # characters of a value in a message


class RunDirectory:
    """A run's folder, made if it is not there; one that belongs to another run, or is in use, is refused.

    Only one process at a time works in a folder: it holds a lock until its last `RunDirectory` of that folder is closed
    or deleted, or until it ends, in whatever way. The file `.lock` says who holds it or held it last.

    Args:
        path: str or Path.
        configuration: dict fit for JSON, everything that determines the run's result. A folder whose
            `configuration.json` holds the same is resumed.
        writer: bool. False is for all but one of several processes that work on one run: it takes no lock and writes
            nothing, and the folder need not be there yet.

    Raises:
        FileExistsError: if the folder belongs to a run with another configuration (the message names what differs), or
            holds files and no run.
        BlockingIOError: if another process works in the folder (the message names it).

    Example:

    >>> folder = Path(tempfile.mkdtemp()) / "run"
    >>> RunDirectory(folder, {"learning_rate": 5e-5}).existed
    False
    >>> RunDirectory(folder, {"learning_rate": 5e-5}).existed
    True
    """

    def __init__(self, path, configuration, writer=True):
        self.path = Path(path)
        self.configuration = json.loads(json.dumps(configuration))
        self.writer = writer
        self._lock = None
        self.existed = self._is_of_this_run()
        if writer:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.path)
            try:
                self.existed = self._is_of_this_run()  # once more: another process may have made the folder its own
                if not self.existed:
                    write_json(self.path / CONFIGURATION_NAME, self.configuration, overwrite=True)
            except BaseException:
                self.close()
                raise

    def close(self):
        """Lets other processes work in the folder; to be called once this one writes no more."""
        self._lock = None

    def _is_of_this_run(self):
        """Whether the folder holds this run already; raises if it holds anything else."""
        if (self.path / CONFIGURATION_NAME).is_file():
            self._refuse_differences(read_configuration(self.path))
            return True
        if self.writer and self.path.is_dir() and not all(_is_of_a_beginning(file) for file in self.path.iterdir()):
            raise FileExistsError(
                f"{self.path} is not empty and is not the folder of a run (it has no {CONFIGURATION_NAME}); "
                "give a new --run_dir, or empty this one"
            )
        return False

    def _refuse_differences(self, earlier):
        differences = "; ".join(_differences(self.configuration, earlier))
        if differences:
            raise FileExistsError(
                f"{self.path} belongs to a run with another configuration: {differences}. To resume that run, give it "
                "the same values; for a new run, another --run_dir."
            )

    def log(self, record):
        """Appends a record to `log.jsonl`; does nothing if this is not the run's writer.

        Args:
            record: dict fit for JSON. A number that is not finite is written as null.
        """
        if not self.writer:
            return
        line = json.dumps(nonfinite_to_none(record), allow_nan=False) + "\n"
        with open(self.path / _LOG_NAME, "a+b") as log:
            if log.tell():
                log.seek(-1, os.SEEK_END)
                if log.read(1) != b"\n":  # the process that wrote the last line was killed
                    line = "\n" + line
            log.write(line.encode())

    def read_log(self):
        """The records of `log.jsonl`, oldest first.

        Returns:
            list of dict; a line that was cut off by the end of a process is left out.
        """
        records = []
        with contextlib.suppress(FileNotFoundError), open(self.path / _LOG_NAME, encoding="utf-8") as log:
            for line in log:
                with contextlib.suppress(json.JSONDecodeError):
                    records.append(json.loads(line))
        return records


def _differences(configuration, earlier, prefix=""):
    """What differs, by name: of a dict in both only the values that differ, not all of it."""
    for name in sorted({*configuration, *earlier}):
        here, there = configuration.get(name), earlier.get(name)
        if isinstance(here, dict) and isinstance(there, dict):
            yield from _differences(here, there, f"{prefix}{name}.")
        elif here != there:
            yield f"{prefix}{name} is {_shortened(here)}, there it was {_shortened(there)}"


def _shortened(value):
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def read_configuration(path):
    """The configuration of the run in a folder.

    Args:
        path: str or Path.

    Returns:
        dict.

    Raises:
        FileNotFoundError: if there is no run.
    """
    file = Path(path) / CONFIGURATION_NAME
    if not file.is_file():
        raise FileNotFoundError(f"{path} is not the folder of a run: there is no {CONFIGURATION_NAME} in it")
    return json.loads(file.read_text(encoding="utf-8"))


def _is_of_a_beginning(file):
    """Whether a file is what a process leaves that is killed before it has written `configuration.json`."""
    return file.name == _LOCK_NAME or file.name.startswith(f".{CONFIGURATION_NAME}.")


class _Lock:
    """The open lock file of a folder; no other process can lock it before this object is deleted or released."""

    def __init__(self, folder):
        self._folder, self._handle = folder, None
        self._handle = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        status = os.fstat(self._handle)
        self.key = status.st_dev, status.st_ino

    def take(self):
        """Locks the file and writes into it who did."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(
                f"{self._folder} is in use by {self._owner()}. Two processes cannot write one run: wait until that one "
                "has ended, or end it, and give the same command again; for another run, give another --run_dir."
            ) from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
            logging.warning(
                "%s cannot be locked on this file system (%s): see that no other process works in it",
                self._folder,
                error,
            )
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        owner = json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since})
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, owner.encode(), 0)

    def _owner(self):
        try:
            owner = json.loads(os.pread(self._handle, 4096, 0))
            return f"process {owner['process']} on {owner['host']} since {owner['since']}"
        except (ValueError, KeyError, TypeError):  # it is about to write that
            return "another process since a moment ago"

    def release(self):
        """Closes the file, and with that unlocks it."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    __del__ = release


_locks = weakref.WeakValueDictionary()  # what this process has locked: its own folder is not closed to it
_locks_guard = threading.Lock()


def _lock(folder):
    with _locks_guard, contextlib.ExitStack() as unless_taken:
        lock = _Lock(folder)
        unless_taken.callback(lock.release)
        shared = _locks.get(lock.key)
        if shared is not None:
            return shared
        lock.take()
        _locks[lock.key] = lock
        unless_taken.pop_all()
        return lock
