import errno
import fcntl
import gc
import json
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import keras_bert.training.run_dir
from keras_bert.io.atomic_write import write_json
from keras_bert.training.run_dir import RunDirectory, read_configuration
from tests.forked import ForkedProgram

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = {"learning_rate": 5e-5, "labels": ["a", "b"], "seed": None}


def test_a_new_folder_is_made_and_the_same_configuration_resumes(tmp_path):
    folder = tmp_path / "runs" / "first"
    assert not RunDirectory(folder, CONFIGURATION).existed
    assert read_configuration(folder) == CONFIGURATION
    assert RunDirectory(folder, {**CONFIGURATION, "labels": ("a", "b")}).existed


def test_another_configuration_is_refused_and_what_differs_is_named(tmp_path):
    RunDirectory(tmp_path / "run", CONFIGURATION)
    with pytest.raises(FileExistsError) as error:
        RunDirectory(tmp_path / "run", {"learning_rate": 3e-5, "labels": ["a", "b"], "epochs": 2})
    assert "learning_rate is 3e-05, there it was 5e-05" in str(error.value)
    assert "epochs is 2, there it was None" in str(error.value)
    assert "labels" not in str(error.value)
    assert read_configuration(tmp_path / "run") == CONFIGURATION


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(FileExistsError, match=r"not the folder of a run \(it has no configuration.json\)"):
        RunDirectory(tmp_path, CONFIGURATION)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_log(tmp_path):
    run = RunDirectory(tmp_path / "run", CONFIGURATION)
    run.log({"event": "train", "step": 1, "loss": 0.5})
    run.log({"event": "train", "step": 2, "loss": float("nan")})
    with open(run.path / "log.jsonl", "a") as log:
        log.write('{"event": "tr')  # the process was killed here
    assert run.read_log() == [
        {"event": "train", "step": 1, "loss": 0.5},
        {"event": "train", "step": 2, "loss": None},
    ]
    run.log({"event": "resumed", "step": 2})
    assert run.read_log()[-1] == {"event": "resumed", "step": 2}


def test_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not the folder of a run"):
        read_configuration(tmp_path)


def test_what_a_process_left_that_was_killed_at_once_is_no_obstacle(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".configuration.json.x1y2z3").write_text('{"learn')
    assert not RunDirectory(tmp_path, CONFIGURATION).existed
    assert read_configuration(tmp_path) == CONFIGURATION


def open_elsewhere(path):
    """Opens the folder in a process that then waits; gives the process once it has the folder."""
    code = (
        "import sys; from keras_bert.training.run_dir import RunDirectory; "
        f"run = RunDirectory({str(path)!r}, {CONFIGURATION!r}); print('open', flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    process = ForkedProgram(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "open\n"
    return process


@pytest.mark.slow
def test_a_folder_in_which_another_process_works_is_refused_until_it_ends(tmp_path):
    process = open_elsewhere(tmp_path / "run")
    try:
        with pytest.raises(BlockingIOError) as error:
            RunDirectory(tmp_path / "run", CONFIGURATION)
        message = str(error.value)
        assert f"{tmp_path / 'run'} is in use by process {process.pid} on {socket.gethostname()} since 20" in message
        assert "wait until that one has ended, or end it" in message
        RunDirectory(tmp_path / "other", CONFIGURATION)
        assert RunDirectory(tmp_path / "run", CONFIGURATION, writer=False).existed
        assert read_configuration(tmp_path / "run") == CONFIGURATION
        process.kill()
        process.wait()
        assert RunDirectory(tmp_path / "run", CONFIGURATION).existed
    finally:
        process.kill()
        process.communicate()


def is_locked(path):
    """Whether somebody else could not lock the folder: a lock belongs to who opened the file, not to the process."""
    with open(path / ".lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_process_may_open_its_folder_more_than_once(tmp_path):
    first = RunDirectory(tmp_path, CONFIGURATION)
    second = RunDirectory(tmp_path, CONFIGURATION)
    assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()
    first.close()
    first.close()
    assert is_locked(tmp_path)
    del second
    gc.collect()
    assert not is_locked(tmp_path)
    third = RunDirectory(tmp_path, CONFIGURATION)
    assert is_locked(tmp_path)
    third.close()
    assert not is_locked(tmp_path)


def test_the_owner_of_a_lock_may_be_unknown(tmp_path):
    with open(tmp_path / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match="is in use by another process since a moment ago"):
            RunDirectory(tmp_path, CONFIGURATION)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_refused_folder_is_not_locked(tmp_path, monkeypatch):
    def claim(folder):
        """Another process makes the folder its own just before this one locks it."""
        write_json(folder / "configuration.json", {"seed": 7}, overwrite=True)
        return lock(folder)

    lock = keras_bert.training.run_dir._lock
    monkeypatch.setattr(keras_bert.training.run_dir, "_lock", claim)
    with pytest.raises(FileExistsError, match="seed is None, there it was 7"):
        RunDirectory(tmp_path, CONFIGURATION)
    assert not is_locked(tmp_path)
    assert read_configuration(tmp_path) == {"seed": 7}


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_gives_a_warning(tmp_path, monkeypatch, caplog, code):
    def flock(handle, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with caplog.at_level(logging.WARNING, logger="absl"):
        run = RunDirectory(tmp_path, CONFIGURATION)
    assert f"{tmp_path} cannot be locked on this file system" in caplog.text
    run.log({"step": 1})
    assert run.read_log() == [{"step": 1}]


def test_other_errors_of_the_lock_are_raised(tmp_path, monkeypatch):
    def flock(handle, operation):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="Input/output error"):
        RunDirectory(tmp_path, CONFIGURATION)


def test_who_is_not_the_writer_writes_nothing(tmp_path):
    folder = tmp_path / "run"
    run = RunDirectory(folder, CONFIGURATION, writer=False)
    assert not run.existed and not folder.exists()
    run.log({"step": 1})
    assert run.read_log() == []
    (tmp_path / "lost").mkdir()
    (tmp_path / "lost" / "file").touch()
    RunDirectory(tmp_path / "lost", CONFIGURATION, writer=False)  # the writer will refuse it
    writer = RunDirectory(folder, CONFIGURATION)
    run.log({"step": 2})
    writer.log({"step": 3})
    assert run.read_log() == [{"step": 3}]
    with pytest.raises(FileExistsError, match="seed is 2, there it was None"):
        RunDirectory(folder, {**CONFIGURATION, "seed": 2}, writer=False)
    run.close()
    assert is_locked(folder)
