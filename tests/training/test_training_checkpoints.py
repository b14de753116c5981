import hashlib
import json
import logging
import os
import random
import re
import resource
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf

from keras_bert.training.training_checkpoints import TrainingCheckpoints
from tests.forked import run as run_forked

ROOT = Path(__file__).resolve().parents[2]


class ToyRun:
    """Training in which the value of every variable, and of the data, is the number of the step."""

    def __init__(self, path, shape=(3, 4), has_position=True, worker_index=0, **arguments):
        self.variables = [keras.Variable(tf.zeros(shape)) for _ in range(4)]
        model = SimpleNamespace(variables=self.variables[:2])
        optimizer = SimpleNamespace(variables=self.variables[2:])
        self.scale = tf.Variable(0.0)
        self.first_row = 1000 * worker_index
        self.iterator = iter(tf.data.Dataset.counter(start=self.first_row)) if has_position else None
        self.checkpoints = TrainingCheckpoints(
            path, model, optimizer, extra=[self.scale], worker_index=worker_index, **arguments
        )
        self.state = {"step": 0, "best_step": None, "note": "naïve"}

    def train(self, steps=1, best=False):
        for row in range(self.state["step"], self.state["step"] + steps):
            assert self.iterator is None or int(next(self.iterator)) == self.first_row + row
        self.state["step"] += steps
        for variable in [*self.variables, self.scale]:
            variable.assign(tf.fill(variable.shape, float(self.state["step"])))
        if best:
            self.state["best_step"] = self.state["step"]
            self.checkpoints.save_best(self.state)

    def save(self):
        self.checkpoints.save(self.iterator, self.state)

    def restore(self):
        """Restores, and compares the variables with the state; `train` then compares the position in the data."""
        state = self.checkpoints.restore(self.iterator)
        self.state = state or self.state
        assert set(self.values()) == {self.state["step"]}
        return state

    def values(self):
        return [float(number) for variable in [*self.variables, self.scale] for number in variable.numpy().flat]


def trained(path, steps=(10, 20), best=(), **arguments):
    run = ToyRun(path, **arguments)
    for step in steps:
        run.train(step - run.state["step"], best=step in best)
        run.save()
    return run


def flip(file, index=0, bit=0):
    contents = bytearray(file.read_bytes())
    contents[index] ^= 1 << bit
    file.write_bytes(contents)


def truncate(file):
    file.write_bytes(file.read_bytes()[:-1])


def names(path):
    return sorted(file.name for file in path.iterdir())


NEWEST = "step_00000020"
DATA = "variables.data-00000-of-00001"


def test_everything_is_restored(tmp_path):
    trained(tmp_path, best=[10])
    run = ToyRun(tmp_path)
    assert run.restore() == {"step": 20, "best_step": 10, "note": "naïve"}
    run.checkpoints.restore_best(10)
    assert set(run.values()[:24]) == {10} and set(run.values()[24:]) == {20}  # of the model's alone
    run.train()


def test_no_checkpoint(tmp_path):
    run = ToyRun(tmp_path / "none")
    assert run.checkpoints.newest() is None
    assert run.restore() is None
    assert not (tmp_path / "none").exists()


def test_the_manifest_names_every_other_file(tmp_path):
    trained(tmp_path)
    files = json.loads((tmp_path / NEWEST / "manifest.json").read_text())["files"]
    assert sorted([*files, "manifest.json"]) == names(tmp_path / NEWEST)
    for name, description in files.items():
        contents = (tmp_path / NEWEST / name).read_bytes()
        assert description == {"bytes": len(contents), "sha256": hashlib.sha256(contents).hexdigest()}


DAMAGES = {
    "truncated": (DATA, truncate, f"{DATA} has .* bytes, but was written with"),
    "flipped": (DATA, flip, rf"{DATA} changed after it was written \(SHA-256\)"),
    "missing": ("variables.index", Path.unlink, "variables.index is missing"),
    "a folder": (DATA, lambda file: (file.unlink(), file.mkdir()), f"{DATA} "),
    "no manifest": ("manifest.json", Path.unlink, "manifest.json is missing"),
    "empty manifest": ("manifest.json", lambda file: file.write_text(""), "manifest.json cannot be used"),
    "other JSON": (
        "manifest.json",
        lambda file: file.write_text("1"),
        "manifest.json cannot be used: its contents changed",
    ),
}


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGES.values(), ids=DAMAGES.keys())
def test_skips_a_damaged_checkpoint(tmp_path, caplog, name, damage, message):
    trained(tmp_path)
    damage(tmp_path / NEWEST / name)
    run = ToyRun(tmp_path)
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert run.restore()["step"] == 10
    (record,) = caplog.records
    assert re.match(f"skipping the damaged checkpoint {tmp_path / NEWEST}: {message}", record.getMessage())
    assert run.checkpoints.newest() == 10
    run.train()


def test_restores_nothing_if_all_are_damaged(tmp_path):
    trained(tmp_path)
    flip(tmp_path / "step_00000010" / DATA)
    (tmp_path / NEWEST / "variables.index").unlink()
    run = ToyRun(tmp_path)
    with pytest.raises(ValueError) as error:
        run.restore()
    assert "step_00000020: variables.index is missing; step_00000010: variables.data" in str(error.value)
    assert "Restore the files from a copy, or start a new run in another directory" in str(error.value)
    assert set(run.values()) == {0}
    assert int(next(run.iterator)) == 0
    assert names(tmp_path) == ["step_00000010", "step_00000020"]


def test_notices_a_flipped_bit_anywhere(tmp_path):
    trained(tmp_path, steps=[20])
    run, generator = ToyRun(tmp_path), random.Random(1)
    for file in sorted((tmp_path / NEWEST).iterdir()):
        contents = file.read_bytes()
        for index in range(0, len(contents), 3 if file.name == "manifest.json" else 31):
            flip(file, index, generator.randrange(8))
            with pytest.raises(ValueError, match=f"is damaged .*{file.name}"):
                run.checkpoints.restore(run.iterator)
            file.write_bytes(contents)
    assert run.restore()["step"] == 20


def test_another_model_or_input_is_an_error(tmp_path):
    trained(tmp_path / "run")
    with pytest.raises(ValueError, match="step_00000020 does not fit this model and optimizer"):
        ToyRun(tmp_path / "run", shape=(4, 4)).restore()
    without = TrainingCheckpoints(tmp_path / "run", SimpleNamespace(variables=[]), SimpleNamespace(variables=[]))
    with pytest.raises(ValueError, match="does not fit this model and optimizer"):
        without.restore(iter(tf.data.Dataset.counter()))
    other_input = ToyRun(tmp_path / "run")
    other_input.iterator = iter(tf.data.Dataset.from_tensors(1).repeat().shuffle(9))
    with pytest.raises(ValueError, match="does not fit this input"):
        other_input.checkpoints.restore(other_input.iterator)


def test_saves_a_damaged_step_again(tmp_path, caplog):
    trained(tmp_path, best=[10, 20])
    flip(tmp_path / NEWEST / DATA)
    run = ToyRun(tmp_path)
    run.restore()
    run.checkpoints.restore_best(10)  # named by the older one
    run.train(10, best=True)
    run.save()
    assert run.checkpoints.newest() == 20
    caplog.clear()
    assert ToyRun(tmp_path).restore() == {"step": 20, "best_step": 20, "note": "naïve"}
    assert not caplog.records
    assert names(tmp_path) == ["best_00000010", "best_00000020", "step_00000010", "step_00000020"]


@pytest.mark.parametrize("known", [True, False])
def test_damaged_checkpoints_do_not_count_as_kept(tmp_path, known):
    trained(tmp_path, steps=(10, 20, 30), keep=3, best=[10, 20])
    for step in (20, 30):
        (flip if known else truncate)(tmp_path / f"step_000000{step}" / DATA)
    run = ToyRun(tmp_path, keep=2)
    if known:
        assert run.restore()["step"] == 10
    run.train(25 - run.state["step"])
    run.state["best_step"] = 10
    run.save()
    assert names(tmp_path) == ["best_00000010", "step_00000010", "step_00000025"]
    flip(tmp_path / "step_00000025" / DATA)
    assert ToyRun(tmp_path).restore()["step"] == 10


def test_keeps_what_was_just_saved(tmp_path):
    trained(tmp_path)
    trained(tmp_path, steps=[5])
    assert names(tmp_path) == ["step_00000005", "step_00000010", "step_00000020"]


def test_keeps_best_weights_that_a_checkpoint_refers_to(tmp_path):
    run = trained(tmp_path, steps=(10, 20, 30), best=[10, 20])
    assert names(tmp_path) == ["best_00000020", "step_00000020", "step_00000030"]
    run.train(10, best=True)
    assert names(tmp_path) == ["best_00000020", "best_00000040", "step_00000020", "step_00000030"]
    run.save()
    run.checkpoints.restore_best(20)
    assert set(run.values()[:24]) == {20}


def test_a_damaged_or_missing_best(tmp_path, caplog):
    run = trained(tmp_path, best=[10])
    truncate(tmp_path / "best_00000010" / DATA)
    with pytest.raises(
        ValueError, match=r"cannot restore the best weights from .*best_00000010: variables.data.*Restore the"
    ):
        run.checkpoints.restore_best(10)
    assert set(run.values()) == {20}
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert ToyRun(tmp_path).restore()["step"] == 20
    assert "best_00000010 are damaged, which is an error unless a better score follows" in caplog.text
    with pytest.raises(ValueError, match="best_00000020: there is no such folder"):
        run.checkpoints.restore_best(20)


def test_deletes_leftovers_of_killed_processes(tmp_path):
    run = trained(tmp_path)
    shutil.copytree(tmp_path / NEWEST, tmp_path / "unfinished_step_00000030")
    shutil.copytree(tmp_path / NEWEST, tmp_path / "replaced_step_00000020")
    assert run.checkpoints.newest() == 20
    run.train(best=True)
    assert names(tmp_path) == ["best_00000021", "step_00000010", "step_00000020"]


def test_flushes_files_to_disk_before_the_rename(tmp_path, monkeypatch):
    events, fsync, rename = [], os.fsync, os.rename

    def note_fsync(handle):
        events.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    def note_rename(source, target):
        events.append("renamed")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)
    trained(tmp_path / "checkpoints", steps=[20])
    renamed = events.index("renamed")
    assert events[0] == tmp_path.name  # in which the folder of the checkpoints is new
    assert {*names(tmp_path / "checkpoints" / NEWEST), f"unfinished_{NEWEST}"} <= set(events[:renamed])
    assert events[renamed:] == ["renamed", "checkpoints"]


class Killed(BaseException):
    pass


def stop_all_changes(patch, after):
    """After some calls that change the disk, the others raise, also those that would clean up."""
    left = iter(range(after))

    def patched(call):
        def unless_killed(*positional, **named):
            if next(left, None) is None:
                raise Killed
            return call(*positional, **named)

        return unless_killed

    for name in ("mkdir", "rename", "unlink", "rmdir"):
        patch.setattr(os, name, patched(getattr(os, name)))
    return left


@pytest.mark.slow
def test_a_crash_at_any_moment_leaves_a_sound_checkpoint(tmp_path, monkeypatch):
    arguments = {"keep": 1, "has_position": False}
    trained(tmp_path / "before", best=[10, 20], **arguments)
    for calls in range(1000):
        path, finished = shutil.copytree(tmp_path / "before", tmp_path / str(calls)), 0
        run = ToyRun(path, **arguments)
        run.restore()
        with monkeypatch.context() as patch:
            left = stop_all_changes(patch, calls)
            try:
                for step in (20, 30):  # the first is there already
                    run.train(step - run.state["step"], best=True)
                    run.save()
                    finished = step
            except Killed:
                pass
        again = ToyRun(path, **arguments)
        assert again.checkpoints.newest() >= finished
        assert again.restore()["step"] in (20, 30)
        again.checkpoints.restore_best(again.state["best_step"])
        again.train(10, best=True)
        again.save()
        assert [name[-2:] for name in names(path)] == 2 * [str(again.state["step"])]  # a best, a step, no leftovers
        if finished == 30 and next(left, None) is not None:
            break
    assert calls > 30


def test_a_state_that_is_not_json_leaves_nothing(tmp_path):
    run = ToyRun(tmp_path / "run")
    run.state["note"] = object()
    with pytest.raises(TypeError):
        run.save()
    assert not (tmp_path / "run").exists()


def test_an_input_whose_position_cannot_be_saved(tmp_path):
    run = trained(tmp_path)
    run.iterator = iter(tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int32)))
    run.state["step"] = 30
    with pytest.raises(ValueError, match=r"cannot be saved: PyFunc is stateful\. Use an input without Python"):
        run.save()
    assert names(tmp_path) == ["step_00000010", "step_00000020"]


def test_saving_without_a_position(tmp_path):
    trained(tmp_path / "without", has_position=False)
    assert ToyRun(tmp_path / "without", has_position=False).restore()["step"] == 20
    with pytest.raises(ValueError, match="step_00000020 has no position in the data, but the input has a position"):
        ToyRun(tmp_path / "without").restore()
    trained(tmp_path / "with")
    with pytest.raises(ValueError, match="step_00000020 has a position in the data, but the input has no position"):
        ToyRun(tmp_path / "with", has_position=False).restore()


def as_workers(number, work, path, **arguments):
    """Runs threads as workers; returns their results."""
    arguments |= {"num_workers": number, "barrier": threading.Barrier(number, timeout=20).wait}

    def run(index):
        return work(ToyRun(path, worker_index=index, **arguments), index)

    with ThreadPoolExecutor(number) as threads:
        return list(threads.map(run, range(number)))


def train_as_worker(run, index):
    run.restore()
    run.train(10, best=True)
    run.state["worker"] = index
    run.save()
    return run.state


def test_workers_share_a_folder_and_save_their_own_positions(tmp_path):
    for step in (10, 20, 30):
        states = as_workers(2, train_as_worker, tmp_path)
        assert [state["step"] for state in states] == [step, step], states
    assert names(tmp_path) == ["best_00000020", "best_00000030", "step_00000020", "step_00000030"]
    assert {f"position_0000{i}-of-00002.index" for i in (0, 1)} < set(names(tmp_path / NEWEST))
    assert as_workers(2, lambda run, index: run.restore()["worker"], tmp_path) == [0, 0]
    as_workers(2, lambda run, _: run.checkpoints.restore_best(30), tmp_path)
    flip(tmp_path / "step_00000030" / "position_00001-of-00002.index")  # of one worker, and both fall back
    assert as_workers(2, lambda run, index: run.restore()["step"], tmp_path) == [20, 20]


def test_refuses_another_number_of_workers(tmp_path):
    as_workers(2, train_as_worker, tmp_path)
    run = ToyRun(tmp_path)
    with pytest.raises(ValueError, match=r"saved by 2 workers.*there are 1 now\. Start 2 again"):
        run.restore()
    assert set(run.values()) == {0}


def test_without_positions_the_number_of_workers_may_change(tmp_path):
    as_workers(2, train_as_worker, tmp_path / "none", has_position=False)
    assert as_workers(3, lambda run, _: run.restore()["step"], tmp_path / "none", has_position=False) == [10] * 3


def test_refuses_a_position_from_only_some_workers(tmp_path):
    barrier = threading.Barrier(2, timeout=20)
    chief = ToyRun(tmp_path, num_workers=2, barrier=barrier.wait, has_position=False)
    worker = ToyRun(tmp_path, worker_index=1, num_workers=2, barrier=barrier.wait)
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(worker.save)
        with pytest.raises(ValueError, match=r"of 2 workers, only \[1\] passed an iterator"):
            chief.save()
        barrier.abort()  # which a caller's collectives do when a worker dies
        assert isinstance(other.exception(), threading.BrokenBarrierError)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep": 0}, "keep must be at least 1, got 0"),
        ({"num_workers": 0}, "got 0 of 0"),
        ({"num_workers": 2, "worker_index": 2, "barrier": lambda: None}, "got 2 of 2"),
        ({"worker_index": -1}, "got -1 of 1"),
        ({"num_workers": 2}, "2 workers need a barrier"),
    ],
)
def test_refuses_arguments_out_of_range(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        ToyRun(tmp_path, **arguments)


def program(function, *arguments):
    code = f"from tests.training.test_training_checkpoints import {function}; {function}(*{arguments!r})"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    return run_forked([sys.executable, "-c", code], cwd=ROOT, env=environment)


def save_on_a_full_disk(path):
    """Writes files that may not grow beyond a limit, which the system answers as it does where a disk is full."""
    run = trained(Path(path), shape=(100, 100), best=[10])
    run.train(10)
    for limit in (0, 150, 1_000, 20_000):
        for save in (run.save, lambda: run.train(0, best=True)):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                save()
                message = "saved"
            except OSError as error:
                message = str(error)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            run.state["best_step"] = 10
            print(json.dumps([message, names(Path(path))]))
            ToyRun(Path(path), shape=(100, 100)).restore()
    run.save()


@pytest.mark.slow
def test_a_full_disk_is_an_error_and_older_checkpoints_remain(tmp_path):
    answer = program("save_on_a_full_disk", str(tmp_path))
    assert answer.returncode == 0, answer.stderr[-2000:]
    outcomes = [json.loads(line) for line in answer.stdout.splitlines()]
    assert len(outcomes) == 8
    for (message, files), name in zip(outcomes, 4 * ["step_00000030", "best_00000030"], strict=True):
        assert f"the checkpoint {tmp_path / name} could not be written: " in message
        assert "File too large. The newest is still of step 20. Free space or fix" in message
        assert files == ["best_00000010", "step_00000010", "step_00000020"]
    assert ToyRun(tmp_path, shape=(100, 100)).restore()["step"] == 30


def save_until_killed(path, begun):
    run = ToyRun(Path(path), shape=(50, 50))
    run.restore()
    if run.state["best_step"]:
        run.checkpoints.restore_best(run.state["best_step"])
        assert set(run.values()[:5000]) == {run.state["best_step"]}
    while True:
        run.train(best=run.state["step"] % 3 == 0)
        run.save()
        if begun is not None:
            os.write(begun, b".")
            begun = None


def kill_often(path, seed):
    """Kills processes that save; each begins with what the one before left. TensorFlow does not run in their parent."""
    generator, steps = random.Random(seed), []
    for _ in range(8):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            save_until_killed(path, write)
        os.close(write)
        assert os.read(read, 1), "a process could not go on from what the last one left"
        time.sleep(generator.uniform(0, 0.2))
        os.kill(child, signal.SIGKILL)
        os.close(read)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        steps.append(max([int(name[-8:]) for name in names(Path(path)) if name.startswith("step_")], default=0))
    print(json.dumps(steps))


@pytest.mark.slow
def test_after_sigkill_at_random_moments_the_newest_checkpoint_is_sound(tmp_path):
    answer = program("kill_often", str(tmp_path / "run"), 1)
    assert answer.returncode == 0, answer.stderr[-2000:]
    steps = json.loads(answer.stdout)
    assert steps == sorted(set(steps)), steps
    assert ToyRun(tmp_path / "run", shape=(50, 50)).restore()["step"] == steps[-1]
