import json
import logging
import os
import random
import re
import resource
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf

from keras_bert.training import training_checkpoints
from keras_bert.training.training_checkpoints import TrainingCheckpoints

NEWEST = "step_00000020"
DATA = "variables.data-00000-of-00001"


class ToyRun:
    """Training in which the value of every variable, and of the data, is the number of the step."""

    def __init__(self, path, shape=(3, 4), has_position=True, worker_index=0, **arguments):
        self.variables = [keras.Variable(tf.zeros(shape)) for _ in range(4)]
        model = SimpleNamespace(variables=self.variables[:2])
        optimizer = SimpleNamespace(variables=self.variables[2:])
        self.scale = tf.Variable(0.0)
        self.first_row = 1000 * worker_index
        self.iterator = iter(tf.data.Dataset.counter(start=self.first_row)) if has_position else None
        arguments |= {"extra": [self.scale], "worker_index": worker_index}
        self.checkpoints = TrainingCheckpoints(path, model, optimizer, **arguments)
        self.state = {"step": 0, "best_step": None, "note": "naïve"}

    def train_to(self, step, best=False):
        for row in range(self.state["step"], step):
            assert self.iterator is None or int(next(self.iterator)) == self.first_row + row
        self.state["step"] = step
        for variable in [*self.variables, self.scale]:
            variable.assign(tf.fill(variable.shape, float(step)))
        if best:
            self.state["best_step"] = step
            self.checkpoints.save_best(self.state)

    def save(self):
        self.checkpoints.save(self.iterator, self.state)

    def restore(self):
        """Restores, and compares the variables with the state; `train_to` then compares the position in the data."""
        state = self.checkpoints.restore(self.iterator)
        self.state = state or self.state
        assert set(self.values()) == {self.state["step"]}
        return state

    def values(self):
        return [float(number) for variable in [*self.variables, self.scale] for number in variable.numpy().flat]


def trained(path, steps=(10, 20), best=(), **arguments):
    run = ToyRun(path, **arguments)
    for step in steps:
        run.train_to(step, best=step in best)
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


def test_restores_everything_or_nothing(tmp_path):
    run = ToyRun(tmp_path / "run")
    assert run.checkpoints.newest() is None
    assert run.restore() is None
    assert not (tmp_path / "run").exists()
    trained(tmp_path / "run", best=[10])
    assert run.restore() == {"step": 20, "best_step": 10, "note": "naïve"}
    run.checkpoints.restore_best(10)
    assert set(run.values()[:24]) == {10} and set(run.values()[24:]) == {20}  # of the model's alone
    run.train_to(21)


UNUSABLE = "manifest.json cannot be used"
DAMAGES = {
    "truncated": (DATA, truncate, f"{DATA} has .* bytes, but was written with"),
    "flipped": (DATA, flip, rf"{DATA} changed after it was written \(SHA-256\)"),
    "missing": ("variables.index", Path.unlink, "variables.index is missing"),
    "a folder": (DATA, lambda file: (file.unlink(), file.mkdir()), f"{DATA} "),
    "no manifest": ("manifest.json", Path.unlink, "manifest.json is missing"),
    "empty manifest": ("manifest.json", lambda file: file.write_text(""), UNUSABLE),
    "other JSON": ("manifest.json", lambda file: file.write_text("1"), f"{UNUSABLE}: its contents changed"),
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
    run.train_to(11)


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
    run.train_to(20, best=True)
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
    run.train_to(25)
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
    run.train_to(40, best=True)
    assert names(tmp_path) == ["best_00000020", "best_00000040", "step_00000020", "step_00000030"]
    run.save()
    run.checkpoints.restore_best(20)
    assert set(run.values()[:24]) == {20}


def test_rejects_damaged_or_missing_best_weights(tmp_path, caplog):
    run = trained(tmp_path, best=[10])
    truncate(tmp_path / "best_00000010" / DATA)
    message = r"cannot restore the best weights from .*best_00000010: variables.data.*Restore the"
    with pytest.raises(ValueError, match=message):
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
    run.train_to(21, best=True)
    assert names(tmp_path) == ["best_00000021", "step_00000010", "step_00000020"]


def test_flushes_files_to_disk_before_the_rename(tmp_path, monkeypatch):
    events, rename = [], os.rename
    monkeypatch.setattr(os, "fsync", lambda handle: events.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name))
    monkeypatch.setattr(os, "rename", lambda *paths: (events.append("renamed"), rename(*paths)))
    trained(tmp_path / "checkpoints", steps=[20])
    renamed = events.index("renamed")
    assert events[0] == tmp_path.name  # in which the folder of the checkpoints is new
    assert {*names(tmp_path / "checkpoints" / NEWEST), f"unfinished_{NEWEST}"} <= set(events[:renamed])
    assert events[renamed:] == ["renamed", "checkpoints"]


class Killed(BaseException):
    pass


def stop_all_changes(patch, after):
    """After some calls that change the disk, all others raise, including those that would clean up."""
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
                for step in (20, 30):  # the first exists already
                    run.train_to(step, best=True)
                    run.save()
                    finished = step
            except Killed:
                pass
        again = ToyRun(path, **arguments)
        assert again.checkpoints.newest() >= finished
        step = again.restore()["step"]
        assert step in (20, 30)
        again.checkpoints.restore_best(again.state["best_step"])
        again.train_to(step + 10, best=True)
        again.save()
        assert [name[-2:] for name in names(path)] == 2 * [str(step + 10)]  # a best, a step, no leftovers
        if finished == 30 and next(left, None) is not None:
            break
    assert calls > 30


@pytest.mark.parametrize("limit", [0, 150, 1_000, 20_000])
def test_a_full_disk_is_an_error_and_older_checkpoints_remain(tmp_path, limit):
    """Files may not grow beyond a limit; writing fails as on a full disk."""
    run = trained(tmp_path, shape=(100, 100), best=[10])
    run.train_to(30)
    for name, save in {"step_00000030": run.save, "best_00000030": lambda: run.train_to(30, best=True)}.items():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            with pytest.raises(OSError) as error:
                save()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        run.state["best_step"] = 10
        assert f"the checkpoint {tmp_path / name} could not be written: " in str(error.value)
        assert "File too large. The newest is still of step 20. Free space or fix" in str(error.value)
        assert names(tmp_path) == ["best_00000010", "step_00000010", "step_00000020"]
        assert ToyRun(tmp_path, shape=(100, 100)).restore()["step"] == 20
    run.save()
    assert ToyRun(tmp_path, shape=(100, 100)).restore()["step"] == 30


def test_a_state_that_is_not_json_leaves_nothing(tmp_path):
    run = ToyRun(tmp_path / "run")
    run.state["note"] = object()
    with pytest.raises(TypeError):
        run.save()
    assert not (tmp_path / "run").exists()


def test_rejects_an_input_whose_position_cannot_be_saved(tmp_path):
    run = trained(tmp_path)
    run.iterator = iter(tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int32)))
    run.state["step"] = 30
    with pytest.raises(ValueError, match=r"cannot be saved: PyFunc is stateful\. Use an input without Python"):
        run.save()
    assert names(tmp_path) == ["step_00000010", "step_00000020"]


def test_a_position_in_the_data_is_required_if_and_only_if_it_was_saved(tmp_path):
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
    run.train_to(run.state["step"] + 10, best=True)
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


def test_number_of_workers_may_change_only_without_positions(tmp_path):
    as_workers(2, train_as_worker, tmp_path / "positions")
    run = ToyRun(tmp_path / "positions")
    with pytest.raises(ValueError, match=r"saved by 2 workers.*there are 1 now\. Start 2 again"):
        run.restore()
    assert set(run.values()) == {0}
    as_workers(2, train_as_worker, tmp_path / "none", has_position=False)
    assert as_workers(3, lambda run, _: run.restore()["step"], tmp_path / "none", has_position=False) == [10] * 3


def test_rejects_a_position_from_only_some_workers(tmp_path):
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
def test_rejects_invalid_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        ToyRun(tmp_path, **arguments)


def forge(folder, state=None, names=()):
    """Writes another state, and a manifest that has the right checksums and names other files as well."""
    if state is not None:
        (folder / "state.json").write_text(state)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"]
    for name in (*manifest["files"], *names):
        manifest["files"][name] = training_checkpoints._describe_file(folder / name)
    (folder / "manifest.json").write_text(training_checkpoints._add_checksum(manifest))


@pytest.mark.parametrize("name", ["../../secret", "/etc/hostname"])
def test_a_manifest_names_no_files_outside_its_folder(tmp_path, name):
    run = trained(tmp_path / "run", steps=(10,))
    (tmp_path / "secret").write_text("secret")
    forge(tmp_path / "run" / "step_00000010", names=[name])
    with pytest.raises(ValueError, match=r"step_00000010: manifest.json .*is not a list of the checkpoint's own files"):
        run.restore()


@pytest.mark.parametrize("state", ["[]", "{", "[" * 10_000, '{"step": "3"}', '{"step": 3, "best_step": -1}', "{}"])
def test_names_a_damaged_state(tmp_path, state):
    run = trained(tmp_path / "run", steps=(10,))
    forge(tmp_path / "run" / "step_00000010", state)
    with pytest.raises(ValueError, match=r"step_00000010/state.json is damaged: .*Delete the checkpoint's folder"):
        run.restore()
