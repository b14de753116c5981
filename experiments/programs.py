"""The programs that pre-train and fine-tune the variants, run one after the other, each once."""

import json
import shlex
import signal
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path

FINE_TUNING_PROGRAMS = ("tasks.classify", "tasks.glue", "tasks.squad", "tasks.swag", "tasks.tagging")
_RESULTS_NAME = "results.json"  # what a program leaves in its run's folder once it has finished
_LOG_NAME = "program.log"
_LINES = 5  # of a program's output that an error shows


class ProgramFailed(Exception):
    """A program refused its flags or ended without a result; the message shows the end of what it said."""


@dataclass(frozen=True)
class Program:
    """A program that is to be run once, and writes its run into a folder.

    Args:
        name: str, what it is called in messages.
        module: str.
        flags: tuple of str, all but the following ones.
        inputs: tuple of str: flags that name what is made before the program is run.
        folder: Path, of its run. What it says stands beside it, in `<folder>_program.log`.

    Example:

    >>> program = Program("--task=sst2", "tasks.glue", ("--task=sst2",), ("--init_checkpoint=bert",), Path("run/sst2"))
    >>> program.command[1:]
    ['-m', 'tasks.glue', '--task=sst2', '--init_checkpoint=bert', '--run_dir=run/sst2', '--noprogress']
    """

    name: str
    module: str
    flags: tuple[str, ...]
    inputs: tuple[str, ...]
    folder: Path

    @property
    def command(self):
        """Its command line: list of str."""
        own = [f"--run_dir={self.folder}", "--noprogress"]
        return [sys.executable, "-m", self.module, *self.flags, *self.inputs, *own]

    @property
    def results(self):
        """Path of what it leaves once it has finished."""
        return self.folder / _RESULTS_NAME


def parse_flags(name, text, own):
    """The flags of a program, as on a shell's command line.

    Args:
        name: str, the flag of this program that they stand in, for messages.
        text: str.
        own: collection of str, names of flags that are set for each variant.

    Returns:
        list of str.

    Raises:
        ValueError: if it cannot be split into words, a word is no flag, or a flag is one of `own`.

    Example:

    >>> parse_flags("pretrain", "--phase=64:100:32 --nofill_to_length", own=("run_dir",))
    ['--phase=64:100:32', '--nofill_to_length']
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"--{name}={text}: cannot be split into words: {error}") from None
    for word in words:
        if not word.startswith("--"):
            raise ValueError(f"--{name}={text}: {word} is no flag; write flags as --flag=value")
        flag = word[2:].partition("=")[0]
        if flag in own:
            raise ValueError(f"--{name}={text}: --{flag} is set for each variant; leave it out")
    return words


def parse_task(text, own):
    """A task to fine-tune on, and the program that does.

    Args:
        text: str, `NAME=PROGRAM FLAGS`.
        own: collection of str, names of flags that are set for each variant.

    Returns:
        A triple: str, the name; str, the program's module; list of str, its flags.

    Raises:
        ValueError: if it is not of that form, or no such program fine-tunes; and as `parse_flags`.

    Example:

    >>> parse_task("sst2=tasks.glue --task=sst2 --data_dir=glue", own=())
    ('sst2', 'tasks.glue', ['--task=sst2', '--data_dir=glue'])
    """
    name, _, command = text.partition("=")
    module, _, given = command.strip().partition(" ")
    if not name.isidentifier() or not module.startswith("tasks."):
        raise ValueError(
            f"--task={text} is not NAME=PROGRAM FLAGS, with a name of letters, digits and _; an example is "
            '--task="sst2=tasks.glue --task=sst2 --data_dir=glue"'
        )
    if module not in FINE_TUNING_PROGRAMS:
        raise ValueError(
            f"--task={text}: {module} is no program that fine-tunes; those are {', '.join(FINE_TUNING_PROGRAMS)}"
        )
    return name, module, parse_flags("task", given, own)


def check_flags(programs):
    """Has programs parse their flags, and do nothing else.

    A mistake in them would otherwise be known only when their turn comes, after hours of training. Of those that differ
    in nothing but `inputs` and `folder` one is asked, and none that has finished.

    Args:
        programs: iterable of Program.

    Raises:
        ProgramFailed: if one is not there, or does not take its flags.
    """
    asked = set()
    for program in programs:
        question = program.module, program.flags
        if question in asked or program.results.is_file():
            continue
        asked.add(question)
        answer = subprocess.run(
            [*program.command, "--only_check_args"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if answer.returncode:
            said = _end_of(answer.stdout.splitlines(keepends=True))
            raise ProgramFailed(
                f"{program.name}: {program.module} does not take these flags, and nothing was begun:\n{said}"
            )


def run_once(program, report=print):
    """Runs a program; one that has finished is not run again.

    What was interrupted goes on where it was, as these programs do. Ctrl-C and SIGTERM reach the program, which saves
    what it can.

    Args:
        program: a Program.
        report: function that takes a line before the program is run.

    Returns:
        dict, its `results.json`.

    Raises:
        ProgramFailed: if it failed, or left no such file.
    """
    if not program.results.is_file():
        folder, command = program.folder, program.command
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = folder.with_name(f"{folder.name}_{_LOG_NAME}")
        report(f"{shlex.join(command[1:])}  (its messages: {log})")
        with open(log, "ab") as said:
            status = _wait(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said))
        if status or not program.results.is_file():
            with open(log, encoding="utf-8", errors="replace") as said:
                end = _end_of(said)
            raise ProgramFailed(f"{program.module} ended with exit status {status}; the end of {log}:\n{end}")
    return json.loads(program.results.read_text(encoding="utf-8"))


def _end_of(lines):
    return "".join(deque(lines, _LINES)).strip()


def _wait(process):
    """The exit status of a program, to which SIGTERM is handed on; Ctrl-C it gets from the terminal itself."""
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
