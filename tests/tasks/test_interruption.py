"""The programs when they are ended from outside, and what the same command makes of it afterwards."""

import json
import os
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


class Program:
    """A training of the toy RTE as a process of its own, and what it said."""

    def __init__(self, toy_glue, checkpoint, run_dir, *flags):
        command = [
            *(sys.executable, "-m", "tasks.glue", "--task=rte", f"--data_dir={toy_glue}", f"--run_dir={run_dir}"),
            *(f"--init_checkpoint={checkpoint}", "--mode=train", "--max_seq_length=16", "--batch_size=8"),
            *("--epochs=25", "--steps_per_call=5", "--log_every=5", "--checkpoint_every=20", "--evaluate_every=500"),
            *("--noprogress", *flags),
        ]
        self.run_dir = Path(run_dir)
        self._said = run_dir.with_name(f"{run_dir.name}_{time.monotonic_ns()}.log")
        with open(self._said, "w") as said:
            self.process = subprocess.Popen(
                command, cwd=Path(__file__).parents[2], stdout=said, stderr=subprocess.STDOUT, env={**os.environ}
            )

    @property
    def said(self):
        return self._said.read_text()

    def wait_for_update(self, update):
        """Returns once the log has a record of this update."""
        log, deadline = self.run_dir / "log.jsonl", time.monotonic() + SECONDS
        while not (log.is_file() and f'"step": {update},' in log.read_text()):
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
        weights = load_file(self.run_dir / "model" / "model.safetensors")
        return np.concatenate([weights[name].ravel() for name in sorted(weights)])


@pytest.fixture(scope="module")
def start(toy_glue, toy_checkpoint):
    return lambda run_dir, *flags: Program(toy_glue, toy_checkpoint, run_dir, *flags)


@pytest.fixture(scope="module")
def uninterrupted(start, tmp_path_factory):
    program = start(tmp_path_factory.mktemp("whole") / "run", "--deterministic")
    assert program.finish() == 0, program.said[-3000:]
    return program.weights()


def test_sigterm_saves_and_the_same_command_goes_on(start, uninterrupted, tmp_path):
    program = start(tmp_path / "run", "--deterministic")
    program.wait_for_update(35)
    program.process.send_signal(signal.SIGTERM)
    assert program.finish() == 143
    assert "The same command goes on from there" in program.said
    checkpoints = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step_*"))
    assert int(checkpoints[-1].removeprefix("step_")) >= 35
    again = start(tmp_path / "run", "--deterministic")
    assert again.finish() == 0, again.said[-3000:]
    assert "restored from the run" in again.said
    np.testing.assert_array_equal(again.weights(), uninterrupted)


def test_sigkill_loses_no_more_than_the_updates_since_the_checkpoint(start, uninterrupted, tmp_path):
    for update in (45, 170, 320):
        program = start(tmp_path / "run", "--deterministic")
        program.wait_for_update(update)
        program.process.kill()
        assert program.finish() == -signal.SIGKILL
    last = start(tmp_path / "run", "--deterministic")
    assert last.finish() == 0, last.said[-3000:]
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    resumed = [record["step"] for record in log if record["event"] == "resumed"]
    assert len(resumed) == 3
    assert all(step % 20 == 0 and step > 0 for step in resumed)
    np.testing.assert_array_equal(last.weights(), uninterrupted)


def test_a_second_run_in_the_folder_is_refused_while_one_lives(start, tmp_path):
    first = start(tmp_path / "run", "--epochs=5000")
    first.wait_for_update(5)
    second = start(tmp_path / "run", "--epochs=5000")
    try:
        assert second.finish() == 1
        assert f"{first.process.pid}" in second.said
    finally:
        first.process.kill()
        first.finish()


def test_other_flags_in_the_same_folder_are_refused_by_name(start, tmp_path):
    first = start(tmp_path / "run")
    first.wait_for_update(5)
    first.process.kill()
    first.finish()
    other = start(tmp_path / "run", "--weight_decay=0.5", "--seed=7")
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


def test_when_a_worker_dies_the_other_names_it_and_the_job_goes_on_when_restarted(start, tmp_path):
    whole = Workers(start, tmp_path / "whole")
    assert whole.finish() == [0, 0], [program.said[-3000:] for program in whole.programs]

    broken = Workers(start, tmp_path / "run")
    chief, other = broken.programs
    chief.wait_for_update(60)
    other.process.kill()
    died = time.monotonic()
    assert chief.finish() not in (0, 143)
    assert time.monotonic() - died < 60
    assert "lost worker 1" in chief.said

    again = Workers(start, tmp_path / "run")
    assert again.finish() == [0, 0], [program.said[-3000:] for program in again.programs]
    np.testing.assert_array_equal(again.programs[0].weights(), whole.programs[0].weights())
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"results.json", "model", "checkpoints", "log.jsonl"} <= files  # written once, by the chief
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 2  # one for each process of the chief's


def test_sigterm_to_one_worker_stops_all_and_saves(start, tmp_path):
    workers = Workers(start, tmp_path / "run")
    workers.programs[0].wait_for_update(30)
    workers.programs[1].process.send_signal(signal.SIGTERM)
    assert workers.finish() == [143, 143]
    assert list((tmp_path / "run" / "checkpoints").glob("step_*"))
