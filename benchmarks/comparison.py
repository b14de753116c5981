"""Runs measuring programs in fresh processes, round by round, and compares the figures that they print."""

import math
import re
import shlex
import statistics
import subprocess

# Whether a higher figure is better, by unit; None for figures that are not compared.
HIGHER_IS_BETTER = {"ms": False, "s": False, "ex/s": True, "tok/s": True, "MiB": False, "%": None}
_UNITS = "|".join(HIGHER_IS_BETTER)
_FIGURE = re.compile(rf"([A-Za-z]\w*)\s+(-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*({_UNITS})(?![\w/]|\.\d)")
_TAIL_CHARACTERS = 2000


class ProgramError(Exception):
    """A program failed, timed out, or printed no figures that can be compared."""


def parse_figures(line):
    """Reads figures such as `train 474 ms` from a line; ignores the program's name and what is in parentheses."""
    line = re.sub(r"\([^()]*\)", " ", line.partition(": ")[2] or line)
    return {f"{name} {unit}": float(number) for name, number, unit in _FIGURE.findall(line)}


def format_figures(program, figures, remark=""):
    """Formats figures as the line that `parse_figures` reads."""
    parts = []
    for figure, value in figures.items():
        name, unit = figure.split()
        parts.append(f"{name} {_round(value)} {unit}")
    return f"{program}: {', '.join(parts)}" + (f" ({remark})" if remark else "")


def _round(value):
    """Formats a number with four significant digits, without an exponent."""
    digits = max(3 - math.floor(math.log10(abs(value))), 0) if value else 3
    return f"{value:.{digits}f}"


def run_program(program, command, timeout=None):
    """Runs a command and returns the last line of its output that holds figures, and the figures."""
    problem, output, errors = None, "", ""
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        output, errors = run.stdout, run.stderr
        for line in reversed(output.splitlines()):
            if run.returncode == 0 and (figures := parse_figures(line)):
                return line.strip(), figures
        problem = f"failed with exit status {run.returncode}" if run.returncode else "printed no figures"
    except subprocess.TimeoutExpired:
        problem = f"was still running after {timeout:g} s (--peer_timeout)"
    tail = (errors + output).strip()[-_TAIL_CHARACTERS:]
    raise ProgramError(f"{program} {problem}: {shlex.join(command)}\n{tail}")


def run_rounds(programs, num_rounds, timeout=None, report=print):
    """Runs {program: command} one after the other, `num_rounds` times; yields {program: figures} after each round."""
    ours = next(iter(programs))
    for number in range(1, num_rounds + 1):
        found = {}
        for program, command in programs.items():
            line, found[program] = run_program(program, command, None if program == ours else timeout)
            report(f"round {number} of {num_rounds}: {program}: {line.partition(': ')[2] or line}")
            if not found[ours].keys() & found[program].keys():
                raise ProgramError(f"{program} prints {', '.join(found[program])}, {ours} {', '.join(found[ours])}")
        yield found


def comparison_table(rounds, ours):
    """Formats medians over the rounds, and the speedup of `ours` over the other programs, round by round."""
    programs = list(rounds[0])
    width = max(map(len, programs)) + 4
    columns = f"{'median':>10}{'min':>10}{'max':>10}"
    lines = [f"{'':<{width + 33}}speedup of {ours}:", f"{'':<{width}}{columns}   {columns}"]
    for figure in dict.fromkeys(figure for program in programs for figure in rounds[0][program]):
        lines.append(figure)
        for program in programs:
            values = [found[program][figure] for found in rounds if figure in found[program]]
            if not values:
                continue
            line = f"  {program:<{width - 2}}" + "".join(f"{_round(value):>10}" for value in _summarize(values))
            higher_is_better = HIGHER_IS_BETTER[figure.split()[1]]
            if program != ours and figure in rounds[0][ours] and higher_is_better is not None:
                ratios = [found[ours][figure] / found[program][figure] for found in rounds if figure in found[program]]
                ratios = ratios if higher_is_better else [1 / ratio for ratio in ratios]
                line += "   " + "".join(f"{ratio:>10.2f}" for ratio in _summarize(ratios))
            lines.append(line)
    return "\n".join(lines)


def _summarize(values):
    return statistics.median(values), min(values), max(values)
