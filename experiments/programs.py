"""Runs the programs that pre-train and fine-tune the variants, one after the other, each once."""

import json
import shlex
import signal
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from absl import app, flags

FINE_TUNING_PROGRAMS = (
    "tasks.classify",
    "tasks.distill",
    "tasks.embed",
    "tasks.glue",
    "tasks.setfit",
    "tasks.squad",
    "tasks.swag",
    "tasks.tagging",
)
_NUM_LOG_LINES = 5  # shown in errors


class ProgramFailed(Exception):
    """A program rejected its flags or ended without results."""


def run_experiment(name, run, argv):
    """Calls `run` of the experiment `name` with the flags; errors that the user can fix have no traceback."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; put the flags of a program in quotes")
    try:
        run(flags.FLAGS)
    except KeyboardInterrupt:
        sys.exit(f"{name}: interrupted; re-run the same command to resume")
    except (OSError, ValueError, ProgramFailed) as error:
        sys.exit(f"{name}: {error}")


@dataclass(frozen=True)
class Program:
    """A program that runs once and writes to a run directory."""

    name: str  # name in messages
    module: str  # for example "tasks.glue"
    flags: tuple[str, ...]  # all flags except those below
    inputs: tuple[str, ...]  # flags that name files which earlier programs write
    folder: Path  # the run directory; the program's output is logged in `<folder>_program.log`

    @property
    def command(self):
        own = [f"--run_dir={self.folder}", "--noprogress"]
        return [sys.executable, "-m", self.module, *self.flags, *self.inputs, *own]

    @property
    def results(self):
        """Path of the file that exists once the program has finished."""
        return self.folder / "results.json"


def parse_flags(name, text, reserved):
    """Splits the flags of a program, given by the flag `name`, as a shell does; raises ValueError for reserved ones."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"--{name}={text}: cannot be split into words: {error}") from None
    for word in words:
        if not word.startswith("--"):
            raise ValueError(f"--{name}={text}: {word} is not a flag; write flags as --flag=value")
        flag = word[2:].partition("=")[0]
        if flag in reserved:
            raise ValueError(f"--{name}={text}: --{flag} is set for each variant; leave it out")
    return words


def parse_task(text, reserved):
    """Splits `NAME=PROGRAM FLAGS` into name, module and list of flags.

    >>> parse_task("sst2=tasks.glue --task=sst2 --data_dir=glue", reserved=())
    ('sst2', 'tasks.glue', ['--task=sst2', '--data_dir=glue'])
    """
    name, _, command = text.partition("=")
    module, _, given = command.strip().partition(" ")
    if not name.isidentifier() or module not in FINE_TUNING_PROGRAMS:
        raise ValueError(
            f'--task={text} is not NAME=PROGRAM FLAGS, such as "sst2=tasks.glue --task=sst2 --data_dir=glue"; programs '
            f"are {', '.join(FINE_TUNING_PROGRAMS)}"
        )
    return name, module, parse_flags("task", given, reserved)


def check_flags(programs):
    """Runs the programs with --only_check_args, so that a wrong flag is found before hours of training.

    Programs that differ only in `inputs` and `folder` are checked once, and finished ones not at all. Raises
    ProgramFailed if a program rejects its flags.
    """
    checked = set()
    for program in programs:
        key = program.module, program.flags
        if key in checked or program.results.is_file():
            continue
        checked.add(key)
        command = [*program.command, "--only_check_args"]
        run = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if run.returncode:
            output = "\n".join(run.stdout.splitlines()[-_NUM_LOG_LINES:])
            raise ProgramFailed(f"{program.name}: {program.module} rejects these flags; nothing was run:\n{output}")


def run_once(program, report=print):
    """Runs a program unless it has finished, and returns its `results.json`. Interrupted runs resume.

    Ctrl-C and SIGTERM reach the program, so that it can save a checkpoint. Raises ProgramFailed if it fails or writes
    no results.
    """
    if not program.results.is_file():
        folder, command = program.folder, program.command
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = folder.with_name(f"{folder.name}_program.log")
        report(f"{shlex.join(command[1:])}  (log: {log})")
        with open(log, "ab") as output:
            status = _wait(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output))
        if status or not program.results.is_file():
            with open(log, encoding="utf-8", errors="replace") as output:
                end = "".join(deque(output, _NUM_LOG_LINES)).strip()
            raise ProgramFailed(f"{program.module} ended with exit status {status}; the end of {log}:\n{end}")
    return json.loads(program.results.read_text(encoding="utf-8"))


def _wait(process):
    """Returns the exit status, forwarding SIGTERM; Ctrl-C reaches the process from the terminal."""
    previous = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)
