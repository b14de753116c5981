"""The folder of a run: what was asked for, a log, checkpoints; and the refusal to mix two runs in one."""

import contextlib
import json
import math
import os
import tempfile
from pathlib import Path

_CONFIGURATION_NAME = "run.json"
_LOG_NAME = "log.jsonl"


class RunDirectory:
    """A run's folder, made if it is not there; a folder that belongs to another run is refused.

    Args:
        path: str or Path.
        configuration: dict fit for JSON, everything that determines the run's result. A folder whose `run.json` holds
            the same is resumed.

    Raises:
        FileExistsError: if the folder belongs to a run with another configuration (the message names what differs), or
            holds files and no run.

    Example:

    >>> folder = Path(tempfile.mkdtemp()) / "run"
    >>> RunDirectory(folder, {"learning_rate": 5e-5}).existed
    False
    >>> RunDirectory(folder, {"learning_rate": 5e-5}).existed
    True
    """

    def __init__(self, path, configuration):
        self.path = Path(path)
        self.configuration = json.loads(json.dumps(configuration))
        self.existed = (self.path / _CONFIGURATION_NAME).is_file()
        if self.existed:
            self._refuse_differences(read_configuration(self.path))
        elif self.path.is_dir() and any(self.path.iterdir()):
            raise FileExistsError(
                f"{self.path} is not empty and is not the folder of a run (it has no {_CONFIGURATION_NAME}); "
                "give a new --run_dir, or empty this one"
            )
        else:
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.path / _CONFIGURATION_NAME, self.configuration)

    def _refuse_differences(self, earlier):
        names = sorted(name for name in {*earlier, *self.configuration} if self._differs(earlier, name))
        if names:
            differences = "; ".join(
                f"{name} is {self.configuration.get(name)!r}, there it was {earlier.get(name)!r}" for name in names
            )
            raise FileExistsError(
                f"{self.path} belongs to a run with another configuration: {differences}. To resume that run, give it "
                "the same values; for a new run, another --run_dir."
            )

    def _differs(self, earlier, name):
        return earlier.get(name) != self.configuration.get(name)

    def log(self, record):
        """Appends a record to `log.jsonl`.

        Args:
            record: dict fit for JSON. A number that is not finite is written as null.
        """
        line = json.dumps(_finite(record), allow_nan=False) + "\n"
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


def read_configuration(path):
    """The configuration of the run in a folder.

    Args:
        path: str or Path.

    Returns:
        dict.

    Raises:
        FileNotFoundError: if there is no run.
    """
    file = Path(path) / _CONFIGURATION_NAME
    if not file.is_file():
        raise FileNotFoundError(f"{path} is not the folder of a run: there is no {_CONFIGURATION_NAME} in it")
    return json.loads(file.read_text(encoding="utf-8"))


def write_json(path, value):
    """Writes a JSON file whole or not at all.

    Args:
        path: str or Path. A file that is there is replaced.
        value: fit for JSON. Numbers that are not finite, which JSON has not, are written as null.

    Example:

    >>> file = Path(tempfile.mkdtemp()) / "results.json"
    >>> write_json(file, {"accuracy": 0.5})
    >>> file.read_text()
    '{\\n  "accuracy": 0.5\\n}\\n'
    """
    path = Path(path)
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def _finite(value):
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
