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
from unittest.mock import Mock

import pytest

import keras_bert.training.run_dir
from keras_bert.io.atomic_write import write_json
from keras_bert.training.run_dir import RunDirectory, read_configuration
from tests.forked import ForkedProgram

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = {"learning_rate": 5e-5, "labels": ["a", "b"], "seed": None}
TRAINING = """
import sys, keras_bert
from keras_bert.training import RunDirectory, Trainer, TrainerSettings
from tests.training.models import tiny_batches, tiny_model
run = RunDirectory(sys.argv[1], {})
trainer = Trainer(tiny_model(), keras_bert.BertAdamW(), run, TrainerSettings(2), evaluate=lambda: {"loss": 1.0})
trainer.train(tiny_batches())
"""


def test_resumes_with_an_equal_configuration_and_rejects_another(tmp_path):
    folder = tmp_path / "runs" / "first"
    assert not RunDirectory(folder, CONFIGURATION).existed
    assert RunDirectory(folder, {**CONFIGURATION, "labels": ("a", "b")}).existed
    with pytest.raises(FileExistsError) as error:
        RunDirectory(folder, {"learning_rate": 3e-5, "labels": ["a", "b"], "epochs": 2})
    assert "learning_rate is 3e-05, but 5e-05 in that run" in str(error.value)
    assert "epochs is 2, but None in that run" in str(error.value)
    assert "labels" not in str(error.value)
    assert read_configuration(folder) == CONFIGURATION


def test_rejects_a_folder_with_other_files(tmp_path):
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(FileExistsError, match=r"is not the directory of a run \(it has no configuration.json\)"):
        RunDirectory(tmp_path, CONFIGURATION)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(FileNotFoundError, match="is not the directory of a run"):
        read_configuration(tmp_path)


def test_rejects_a_file_as_the_folder(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(
            NotADirectoryError, match=f"{folder} cannot be .*: {tmp_path / 'file'} is a file; use another"
        ):
            RunDirectory(folder, CONFIGURATION)


@pytest.mark.parametrize(
    ("content", "problem"), [(b"[]", r"it holds \[\]"), (b"", "Expecting value"), (b'{"a', ""), (b"\xff", "decode")]
)
def test_names_a_damaged_configuration(tmp_path, content, problem):
    (tmp_path / "configuration.json").write_bytes(content)
    message = rf"{tmp_path / 'configuration.json'} is damaged: it must hold a JSON object.*{problem}.*Restore"
    with pytest.raises(ValueError, match=message):
        RunDirectory(tmp_path, CONFIGURATION)


@pytest.mark.parametrize(
    "content", [b"[" * 10_000, b'{"seed": ' + b"9" * 400 + b"}", b'{"a":' * 200 + b"1" + b"}" * 200]
)
def test_names_a_configuration_that_no_run_wrote(tmp_path, content):
    (tmp_path / "configuration.json").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"configuration.json is damaged.*(nested more than 100 deep|more than 64 bits)"
    ):
        read_configuration(tmp_path)


def test_writes_to_no_file_that_a_link_points_to(tmp_path):
    """Somebody else's folder must not make a run truncate, or append to, a file of the user."""
    diary = tmp_path / "diary"
    diary.write_text("dear diary")
    for name in (".lock", "log.jsonl"):
        folder = tmp_path / f"run of {name}"
        RunDirectory(folder, CONFIGURATION).close()
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(diary)
        with pytest.raises(ValueError, match=rf"{name} is a link to {diary}, and links are not followed.* remove it"):
            RunDirectory(folder, CONFIGURATION)
        assert diary.read_text() == "dear diary"
        run = RunDirectory(folder, CONFIGURATION, writer=False)
        if name == "log.jsonl":
            with pytest.raises(ValueError, match=r"log.jsonl is a link"):
                run.read_log()
    os.mkfifo(tmp_path / "pipe")
    (folder / "log.jsonl").unlink()
    os.rename(tmp_path / "pipe", folder / "log.jsonl")
    with pytest.raises(ValueError, match=r"log.jsonl is not a regular file"):
        RunDirectory(folder, CONFIGURATION)


def test_replaces_a_link_instead_of_writing_through_it(tmp_path):
    (tmp_path / "diary").write_text("dear diary")
    (tmp_path / "file.json").symlink_to(tmp_path / "diary")
    write_json(tmp_path / "file.json", {}, overwrite=True)
    assert (tmp_path / "diary").read_text() == "dear diary"


def test_reads_a_damaged_log_without_the_damaged_lines(tmp_path):
    run = RunDirectory(tmp_path / "run", CONFIGURATION)
    lines = [b"\xff\xfe", b"[" * 10_000, b"[1]", b'"train"', b'{"step": ' + b"9" * 5000 + b"}", b"\0", b'{"step": 3}']
    (run.path / "log.jsonl").write_bytes(b"\n".join(lines))
    assert run.read_log() == [{"step": 3}]


def test_appends_to_the_log_after_a_line_that_was_cut_off(tmp_path):
    run = RunDirectory(tmp_path / "run", CONFIGURATION)
    run.log({"event": "train", "step": 1, "loss": 0.5})
    run.log({"event": "train", "step": 2, "loss": float("nan")})
    with open(run.path / "log.jsonl", "a") as log:
        log.write('{"event": "tr')  # the process was killed here
    assert run.read_log() == [{"event": "train", "step": 1, "loss": 0.5}, {"event": "train", "step": 2, "loss": None}]
    run.log({"event": "resumed", "step": 2})
    assert run.read_log()[-1] == {"event": "resumed", "step": 2}


def test_ignores_leftovers_of_a_process_killed_at_the_start(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".configuration.json.x1y2z3").write_text('{"learn')
    assert not RunDirectory(tmp_path, CONFIGURATION).existed


@pytest.mark.slow
def test_rejects_a_folder_until_the_other_process_ends(tmp_path):
    code = f"import time, keras_bert.training as t; run = t.RunDirectory('.', {CONFIGURATION!r}); "
    code += "print('open', flush=True); time.sleep(600)"
    command = [sys.executable, "-c", code]
    with ForkedProgram(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "open\n"
            with pytest.raises(BlockingIOError) as error:
                RunDirectory(tmp_path, CONFIGURATION)
            message = str(error.value)
            assert f"{tmp_path} is in use by process {process.pid} on {socket.gethostname()} since 20" in message
            assert "wait until that process has ended, or end it" in message
            assert RunDirectory(tmp_path, CONFIGURATION, writer=False).existed
        finally:
            process.kill()
    assert RunDirectory(tmp_path, CONFIGURATION).existed


@pytest.mark.slow
def test_a_training_program_exits_without_ignored_exceptions(tmp_path):
    # Not a forked program: its interpreter would not delete the objects that exist before the fork.
    command = [sys.executable, "-c", TRAINING, str(tmp_path / "run")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "Exception ignored" not in ended.stderr


def is_locked(path):
    """Whether other processes cannot lock the folder. (A lock belongs to an open file, not to its process.)"""
    with open(path / ".lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_process_may_open_its_folder_several_times(tmp_path):
    first = RunDirectory(tmp_path, CONFIGURATION)
    second = RunDirectory(tmp_path, CONFIGURATION)
    assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()
    first.close()
    first.close()
    assert is_locked(tmp_path)
    del second
    gc.collect()
    assert not is_locked(tmp_path)


def test_the_owner_of_a_lock_may_be_unknown(tmp_path):
    with open(tmp_path / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match="is in use by another process since a moment ago"):
            RunDirectory(tmp_path, CONFIGURATION)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_does_not_lock_a_rejected_folder(tmp_path, monkeypatch):
    def claim(folder):
        """Starts another run in the folder just before it is locked."""
        write_json(folder / "configuration.json", {"seed": 7}, overwrite=True)
        return lock(folder)

    lock = keras_bert.training.run_dir._lock_folder
    monkeypatch.setattr(keras_bert.training.run_dir, "_lock_folder", claim)
    with pytest.raises(FileExistsError, match="seed is None, but 7 in that run"):
        RunDirectory(tmp_path, CONFIGURATION)
    assert not is_locked(tmp_path)
    assert read_configuration(tmp_path) == {"seed": 7}


def test_warns_on_file_systems_without_locks_and_raises_other_errors(tmp_path, monkeypatch, caplog):
    errors = [OSError(errno.EIO, "Input/output error"), OSError(errno.ENOLCK, "No locks available")]
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=errors))
    with pytest.raises(OSError, match="Input/output error"):
        RunDirectory(tmp_path, CONFIGURATION)
    with caplog.at_level(logging.WARNING, logger="absl"):
        RunDirectory(tmp_path, CONFIGURATION)
    assert f"{tmp_path} cannot be locked on this file system" in caplog.text


def test_only_the_writer_writes(tmp_path):
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
    with pytest.raises(FileExistsError, match="seed is 2, but None in that run"):
        RunDirectory(folder, {**CONFIGURATION, "seed": 2}, writer=False)
    run.close()
    assert is_locked(folder)
