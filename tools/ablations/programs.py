"""The programs that pre-train and fine-tune the variants, run one after the other, each once."""

import json
import shlex
import signal
import subprocess
import sys
from collections import deque

RESULTS_NAME = "results.json"  # what a program leaves in its run's folder once it has finished
_LOG_NAME = "program.log"
_LINES = 5  # of a program's output that an error shows


class ProgramFailed(Exception):
    """A program ended without a result; the message shows the end of what it said."""


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
        ValueError: if it is not of that form; and as `parse_flags`.

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
    return name, module, parse_flags("task", given, own)


def run_once(module, arguments, folder, report=print):
    """Runs a program that writes its run into a folder; one that has finished there is not run again.

    What was interrupted goes on where it was, as these programs do. Ctrl-C and SIGTERM reach the program, which saves
    what it can.

    Args:
        module: str.
        arguments: list of str, its flags but for `--run_dir`.
        folder: Path, of its run. What it says stands beside it, in `<folder>_program.log`.
        report: function that takes a line before the program is run.

    Returns:
        dict, its `results.json`.

    Raises:
        ProgramFailed: if it failed, or left no such file.
    """
    results = folder / RESULTS_NAME
    if not results.is_file():
        command = [sys.executable, "-m", module, *arguments, f"--run_dir={folder}", "--noprogress"]
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = folder.with_name(f"{folder.name}_{_LOG_NAME}")
        report(f"{shlex.join(command[1:])}  (its messages: {log})")
        with open(log, "ab") as said:
            status = _wait(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said))
        if status or not results.is_file():
            with open(log, encoding="utf-8", errors="replace") as said:
                end = "".join(deque(said, _LINES)).strip()
            raise ProgramFailed(f"{module} ended with exit status {status}; the end of {log}:\n{end}")
    return json.loads(results.read_text(encoding="utf-8"))


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
