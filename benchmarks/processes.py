"""Programs that measure: each is run as a process of its own, and prints a line with its figures."""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile

from benchmarks.figures import parse_figures

_TAIL = 2000  # characters of a program's output that an error shows


class ProgramError(Exception):
    """A program failed, hung, or printed nothing that can be compared."""


def parse_peer(text):
    """The name and the command of a peer.

    Args:
        text: str, `NAME=COMMAND`. The command is split as a shell would, and run without one.

    Returns:
        A pair: str, and list of str.

    Raises:
        ValueError: if a part is missing, or there is no such program.

    Example:

    >>> parse_peer("mine=python -c 'print(1)'")
    ('mine', ['python', '-c', 'print(1)'])
    """
    name, _, command = text.partition("=")
    try:
        command = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"--peer={text}: the command cannot be split into words: {error}") from None
    if not name.strip() or not command:
        raise ValueError(f'--peer={text} is not NAME=COMMAND; an example is --peer="theirs=python their_benchmark.py"')
    if shutil.which(command[0]) is None:
        raise ValueError(f"--peer={text}: there is no program {command[0]}")
    return name.strip(), command


def run_turns(programs, turns, ours, timeout, report=print):
    """Runs all programs in turn, and begins again.

    Args:
        programs: dict of name to command, a list of str; ours comes first.
        turns: int.
        ours: str. The program that the others must have a figure in common with.
        timeout: float or None. Seconds that any other program may take in a turn.
        report: function that takes a line after each program.

    Yields:
        dict of program to figures, after each turn.

    Raises:
        ProgramError: if a program fails, takes too long, prints no figures or other figures than in its first turn, or
            has none in common with ours.
    """
    first = {}
    for turn in range(1, turns + 1):
        figures = {}
        for name, command in programs.items():
            line, figures[name] = run_program(name, command, None if name == ours else timeout)
            report(f"turn {turn} of {turns}: {name}: {line.partition(': ')[2] or line}")
            expected = first.setdefault(name, figures[name])
            if set(figures[name]) != set(expected):
                raise ProgramError(
                    f"{name} prints {_listed(figures[name])}, but printed {_listed(expected)} in its first turn"
                )
            if not set(first[ours]) & set(figures[name]):
                raise ProgramError(
                    f"{name} has no figure in common with {ours}: it prints {_listed(figures[name])}, "
                    f"and {ours} {_listed(first[ours])}"
                )
        yield figures


def run_program(name, command, timeout=None):
    """Runs a program once, as a process of its own, and reads its figures.

    Args:
        name: str, for errors.
        command: list of str.
        timeout: float or None. Seconds, after which the process and those that it started are killed.

    Returns:
        A pair: the last line of standard output that holds figures, and these, as `parse_figures` gives them.

    Raises:
        ProgramError: if it fails, takes too long, or prints no figures; the message shows the end of its output.
    """
    # Into files: a pipe would be kept open by whatever the program leaves running.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            returned, problem = process.wait(timeout), None
        except subprocess.TimeoutExpired:
            returned, problem = None, f"was still running after {timeout:g} s (--peer_timeout)"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        printed, complaints = _text(output), _text(errors)
    if returned:
        problem = f"failed with exit status {returned}"
    elif problem is None:
        try:
            for line in reversed(printed.splitlines()):
                if figures := parse_figures(line):
                    return line.strip(), figures
            problem = "printed no figures such as `train 474 ms` or `infer 386.6 ex/s`"
        except ValueError as error:
            problem = f"printed what cannot be read ({error})"
    tail = "\n".join(text.strip()[-_TAIL:] for text in (complaints, printed) if text.strip())
    raise ProgramError(f"{name} {problem}: {shlex.join(command)}\n{tail or '(it printed nothing)'}")


def _text(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def _listed(figures):
    return ", ".join(f"{name} in {unit}" if unit else name for name, unit in figures)
