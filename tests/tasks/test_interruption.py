"""The programs when they are ended from outside, and what the same command makes of it afterwards."""

import json
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.training.test_cluster import free_addresses

pytestmark = pytest.mark.slow
SECONDS = 300
UPDATES = 500  # 25 epochs of 160 examples
CHECKPOINT_EVERY = 20


class Program:
    """A training of the toy RTE as a process of its own, and what it said."""

    def __init__(self, toy_glue, checkpoint, run_dir, *flags):
        command = [
            *(sys.executable, "-m", "tasks.glue", "--task=rte", f"--data_dir={toy_glue}", f"--run_dir={run_dir}"),
            *(f"--init_checkpoint={checkpoint}", "--mode=train", "--max_seq_length=16", "--batch_size=8"),
            *("--epochs=25", "--steps_per_call=5", "--log_every=5", f"--checkpoint_every={CHECKPOINT_EVERY}"),
            *(f"--evaluate_every={UPDATES}", "--noprogress", *flags),
        ]
        self.run_dir = run_dir
        self._said = run_dir.with_name(f"{run_dir.name}_{time.monotonic_ns()}.log")
        self._earlier_records = len(self._all_records())
        with open(self._said, "w") as said:
            self.process = subprocess.Popen(
                command, cwd=Path(__file__).parents[2], stdout=said, stderr=subprocess.STDOUT
            )

    @property
    def said(self):
        return self._said.read_text()

    def _all_records(self):
        log = self.run_dir / "log.jsonl"
        lines = log.read_text().splitlines(keepends=True) if log.is_file() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]  # the last may be half written

    def records(self, event):
        """The records of a kind in the run's log, but for those from before this process."""
        return [record for record in self._all_records()[self._earlier_records :] if record["event"] == event]

    def wait_for_update(self, update):
        """Returns once there is a record of this update or a later one."""
        deadline = time.monotonic() + SECONDS
        while not any(record["step"] >= update for record in self.records("train")):
            assert self.process.poll() is None, self.said[-3000:]
            assert time.monotonic() < deadline, self.said[-3000:]
            time.sleep(0.02)

    def finish(self):
        """The exit status."""
        try:
            return self.process.wait(timeout=SECONDS)
        finally:
            self.process.kill()

    def weights(self):
        """What it has trained, once it is done."""
        assert self.finish() == 0, self.said[-3000:]
        weights = load_file(self.run_dir / "model" / "model.safetensors")
        return np.concatenate([weights[name].ravel() for name in sorted(weights)])

    def files(self):
        """The names of all that is in the run's folder; TensorBoard's files are named after process and time."""
        names = [str(path.relative_to(self.run_dir)) for path in self.run_dir.rglob("*")]
        return sorted(re.sub(r"/events\.out\.tfevents\..*", "/events", name) for name in names)


@pytest.fixture(scope="module")
def start(toy_glue, toy_checkpoint):
    programs = []

    def start(run_dir, *flags):
        programs.append(Program(toy_glue, toy_checkpoint, run_dir, *flags))
        return programs[-1]

    yield start
    for program in programs:
        program.process.kill()


@pytest.fixture(scope="module")
def uninterrupted(start, tmp_path_factory):
    """A run that nothing happens to; it may not be at its end yet."""
    return start(tmp_path_factory.mktemp("whole") / "run", "--deterministic")


@pytest.fixture
def draw():
    """Draws updates in order at which to interrupt a run; at none of the last ones, which would be over too soon."""
    seed = secrets.randbits(32)
    print(f"the updates were drawn with seed {seed}")  # pytest shows this where the test fails
    return lambda number: sorted(np.random.default_rng(seed).integers(1, UPDATES * 3 // 4, number).tolist())


def test_after_sigterm_and_after_sigkill_the_same_command_goes_on(start, uninterrupted, draw, tmp_path):
    terminated_at, killed_at = draw(2)
    first = start(tmp_path / "run", "--deterministic")
    first.wait_for_update(terminated_at)
    first.process.send_signal(signal.SIGTERM)
    assert first.finish() == 143
    (stopped_at,) = map(int, re.findall(f"stopped after update (\\d+) of {UPDATES}", first.said))
    assert stopped_at >= terminated_at
    assert "The same command goes on from there" in first.said

    second = start(tmp_path / "run", "--deterministic")
    second.wait_for_update(killed_at)
    second.process.kill()
    assert second.finish() == -signal.SIGKILL
    assert [record["step"] for record in second.records("resumed")] == [stopped_at]
    lost_at = second.records("train")[-1]["step"]

    last = start(tmp_path / "run", "--deterministic")
    np.testing.assert_array_equal(last.weights(), uninterrupted.weights())
    assert "restored from the run" in last.said
    (resumed_at,) = (record["step"] for record in last.records("resumed"))
    saved = {stopped_at, *range(0, lost_at + 1, CHECKPOINT_EVERY)}
    assert resumed_at in saved
    assert resumed_at >= max(saved - {lost_at})  # an update's checkpoint is written after its record
    assert set(last.files()) == set(uninterrupted.files())


def test_a_second_run_in_the_folder_is_refused_until_the_first_is_dead(start, uninterrupted, draw, tmp_path):
    first = start(tmp_path / "run")
    first.wait_for_update(*draw(1))
    first.process.send_signal(signal.SIGSTOP)
    second = start(tmp_path / "run")
    try:
        assert second.finish() == 1
        assert f"in use by process {first.process.pid}" in second.said
    finally:
        first.process.kill()
    assert first.finish() == -signal.SIGKILL
    third = start(tmp_path / "run")
    # Not --deterministic: as equal as sums are whose order is free.
    np.testing.assert_allclose(third.weights(), uninterrupted.weights(), rtol=0, atol=1e-6)


def test_other_flags_in_the_same_folder_are_refused_by_name(start, uninterrupted):
    uninterrupted.wait_for_update(5)
    other = start(uninterrupted.run_dir, "--weight_decay=0.5", "--seed=7")
    assert other.finish() == 1
    assert "weight_decay is 0.5, there it was 0.01" in other.said
    assert "seeds is [7]" in other.said


class Workers:
    """The two workers of one training."""

    def __init__(self, start, run_dir):
        addresses = ",".join(free_addresses(2))
        flags = ("--deterministic", "--strategy=multi_worker", f"--workers={addresses}")
        self.programs = [start(run_dir, *flags, f"--worker_index={index}") for index in range(2)]

    def finish(self):
        return [program.finish() for program in self.programs]

    def weights(self):
        assert self.finish() == [0, 0], [program.said[-3000:] for program in self.programs]
        return self.programs[0].weights()


def test_workers_go_on_after_sigterm_to_one_and_after_the_death_of_one(start, uninterrupted, draw, tmp_path):
    terminated_at, killed_at = draw(2)
    first = Workers(start, tmp_path / "run")
    first.programs[0].wait_for_update(terminated_at)
    first.programs[1].process.send_signal(signal.SIGTERM)
    assert first.finish() == [143, 143], [program.said[-3000:] for program in first.programs]
    (stopped_at,) = map(int, re.findall(f"stopped after update (\\d+) of {UPDATES}", first.programs[0].said))
    assert stopped_at >= terminated_at

    second = Workers(start, tmp_path / "run")
    chief, other = second.programs
    chief.wait_for_update(killed_at)
    other.process.kill()
    died = time.monotonic()
    assert chief.finish() not in (0, 143)
    assert time.monotonic() - died < 60
    assert "lost worker 1" in chief.said
    assert [record["step"] for record in chief.records("resumed")] == [stopped_at]

    last, whole = Workers(start, tmp_path / "run"), Workers(start, tmp_path / "whole")
    np.testing.assert_array_equal(last.weights(), whole.weights())
    files, place = whole.programs[0].files(), re.compile(r"/place_\d")
    assert [name for name in files if place.search(name)] == [
        f"checkpoints/step_{step:08d}/place_{worker:05d}-of-00002.{kind}"
        for step in (UPDATES - CHECKPOINT_EVERY, UPDATES)
        for worker in range(2)
        for kind in ("data-00000-of-00001", "index")
    ]
    uninterrupted.weights()
    assert [name for name in files if not place.search(name)] == [
        name for name in uninterrupted.files() if not place.search(name)
    ]
    # Of TensorBoard's files there is one for each process of the chief's.
    assert last.programs[0].files() == sorted([*files, "tensorboard/events", "tensorboard/events"])
