"""Programs on toy data, called in this process or started as processes of their own."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from absl import flags
from safetensors.numpy import load_file

from tests.forked import ForkedProgram

SECONDS = 300
TRAINING = {"epochs": 2, "batch_size": 8, "learning_rate": 5e-3, "max_seq_length": 16, "checkpoint_every": 1000}


def parse(module, **options):
    """Returns the parsed flags of a program."""
    values = flags.FlagValues()
    module.define_flags(values)
    arguments = [module.__name__]
    for name, value in options.items():
        repeated = value if isinstance(value, list) else [value]
        arguments += [f"--{name}={item}" for item in repeated if item is not None]
    values(arguments)
    return values


def run(module, mode, run_dir, init_checkpoint=None, **options):
    """Calls `run` of a fine-tuning program; the defaults for training are for toys."""
    if "train" in mode:
        options = {**TRAINING, "eval_batch_size": 8, "progress": False, **options}
    return module.run(parse(module, mode=mode, run_dir=run_dir, init_checkpoint=init_checkpoint, **options))


def read_json(path):
    return json.loads(path.read_text())


def read_records(run_dir, event):
    """Returns the records of an event in a run's log."""
    log = run_dir / "log.jsonl"
    lines = log.read_text().splitlines(keepends=True) if log.is_file() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]  # the last may be incomplete
    return [record for record in found if record["event"] == event]


def read_weights(run_dir):
    weights = load_file(run_dir / "model" / "model.safetensors")
    return np.concatenate([weights[name].ravel() for name in sorted(weights)])


class Program:
    """A training in a process of its own."""

    def __init__(self, run_dir, *command):
        self.run_dir = run_dir
        self._log = run_dir.with_name(f"{run_dir.name}_{time.monotonic_ns()}.log")
        self._num_old_records = {event: len(read_records(run_dir, event)) for event in ("train", "resumed")}
        command = [sys.executable, "-m", *command, f"--run_dir={run_dir}", "--noprogress"]
        with open(self._log, "w") as log:
            self.process = ForkedProgram(command, cwd=Path(__file__).parents[2], stdout=log, stderr=subprocess.STDOUT)

    @property
    def output(self):
        return self._log.read_text()

    def steps(self, event):
        """Returns the steps of an event, without those logged before this process started."""
        return [record["step"] for record in read_records(self.run_dir, event)[self._num_old_records[event] :]]

    def wait_for_step(self, step):
        deadline = time.monotonic() + SECONDS
        while not any(logged >= step for logged in self.steps("train")):
            assert self.process.poll() is None, self.output[-3000:]
            assert time.monotonic() < deadline, self.output[-3000:]
            time.sleep(0.02)

    def finish(self):
        """Returns the exit status."""
        try:
            return self.process.wait(timeout=SECONDS)
        finally:
            self.process.kill()


def check_status(programs, status):
    found = [program.finish() for program in programs]
    assert found == [status] * len(found), [program.output[-3000:] for program in programs]


def interrupt(programs, step):
    """Sends SIGTERM to the last program of a run after a step; returns the step at which all of them stopped."""
    programs[0].wait_for_step(step)
    programs[-1].process.send_signal(signal.SIGTERM)
    check_status(programs, 143)
    (stopped_at,) = map(int, re.findall(r"stopped at step (\d+) of", programs[0].output))
    assert stopped_at >= step
    assert "run the same command again to resume" in programs[0].output
    return stopped_at


def trained_weights(programs):
    check_status(programs, 0)
    return read_weights(programs[0].run_dir)
