"""Programs called in this process on toy data; and trainings as processes of their own, alone or two together."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from absl import flags
from safetensors.numpy import load_file

from tests.addresses import free_addresses
from tests.forked import ForkedProgram

SECONDS = 300
UPDATES = 120  # 6 epochs of 160 examples
CHECKPOINT_EVERY = 20
TRAINING = {"epochs": 2, "batch_size": 8, "learning_rate": 5e-3, "max_seq_length": 16, "checkpoint_every": 1000}


def parse(module, **given):
    """The flags of a program, parsed."""
    values = flags.FlagValues()
    module.define_flags(values)
    arguments = [module.__name__]
    for name, value in given.items():
        repeated = value if isinstance(value, list) else [value]
        arguments += [f"--{name}={item}" for item in repeated if item is not None]
    values(arguments)
    return values


def run(module, mode, run_dir, init_checkpoint=None, **given):
    """Calls the `run` of a fine-tuning program, to train with settings for toys unless others are given."""
    if "train" in mode:
        given = {**TRAINING, "eval_batch_size": 8, "progress": False, **given}
    values = parse(module, mode=mode, run_dir=run_dir, init_checkpoint=init_checkpoint, **given)
    return module.run(values)


class Program:
    """A training of the toy RTE as a process of its own, and what it said."""

    def __init__(self, toy_glue, checkpoint, run_dir, *flags):
        command = [
            *(sys.executable, "-m", "tasks.glue", "--task=rte", f"--data_dir={toy_glue}", f"--run_dir={run_dir}"),
            *(f"--init_checkpoint={checkpoint}", "--mode=train", "--max_seq_length=16", "--batch_size=8"),
            *("--epochs=6", "--steps_per_execution=5", "--log_every=5", f"--checkpoint_every={CHECKPOINT_EVERY}"),
            *(f"--evaluate_every={UPDATES}", "--noprogress", *flags),
        ]
        self.run_dir = run_dir
        self._said = run_dir.with_name(f"{run_dir.name}_{time.monotonic_ns()}.log")
        self._earlier_records = len(self._all_records())
        with open(self._said, "w") as said:
            self.process = ForkedProgram(command, cwd=Path(__file__).parents[2], stdout=said, stderr=subprocess.STDOUT)

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


class Workers:
    """The two workers of one training."""

    def __init__(self, start, run_dir, *flags):
        flags = (*flags, "--strategy=multi_worker", f"--workers={','.join(free_addresses(2))}")
        self.programs = [start(run_dir, *flags, f"--worker_index={index}") for index in range(2)]

    def finish(self):
        return [program.finish() for program in self.programs]

    def weights(self):
        assert self.finish() == [0, 0], [program.said[-3000:] for program in self.programs]
        return self.programs[0].weights()
