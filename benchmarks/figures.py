"""Figures that programs print, and the table that compares them."""

import math
import re
import statistics

# A number without a unit of its own is read only behind this name.
ACCURACY = "acc"
# By unit: whether more of it is faster; None is a figure that says nothing about speed.
MORE_IS_FASTER = {"ms": False, "s": False, "ex/s": True, "tok/s": True, "GFLOP/s": True, "%": None, "": None}

_UNITS = "|".join(re.escape(unit) for unit in MORE_IS_FASTER if unit)
_FIGURE = re.compile(
    rf"(?P<name>[A-Za-z]\w*)\s+(?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*(?P<unit>{_UNITS})?(?![\w/]|\.\d)"
)
_IN_PARENTHESES = re.compile(r"\([^()]*\)")


def parse_figures(line):
    """The figures in a line such as `hf bf16: fwd 105 ms (152.4 ex/s)  train 474 ms, dev acc 0.79 after 2 epochs`.

    What stands before the first ": " is the program's name for itself, what stands in parentheses says the same in
    other words, and what has no unit is not a figure, except an accuracy; nor is a speed below 0.

    Args:
        line: str.

    Returns:
        dict of (name, unit) to float, in the line's order. Speeds are positive.

    Raises:
        ValueError: if a figure occurs twice, or a speed is 0.

    Example:

    >>> parse_figures("hf bf16: fwd 105 ms (152.4 ex/s)  train 4.7e2 ms, dev acc 0.79 after 2 epochs")
    {('fwd', 'ms'): 105.0, ('train', 'ms'): 470.0, ('acc', ''): 0.79}
    """
    figures = {}
    for match in _FIGURE.finditer(_IN_PARENTHESES.sub(" ", line.partition(": ")[2] or line)):
        name, number, unit = match["name"], float(match["number"]), match["unit"] or ""
        is_speed = MORE_IS_FASTER[unit] is not None
        if (not unit and name != ACCURACY) or (is_speed and number < 0):
            continue
        if (name, unit) in figures:
            raise ValueError(f"the line says {name} in {unit or 'no unit'} twice: {line.strip()}")
        if is_speed and not number:
            raise ValueError(f"a speed cannot be 0: {line.strip()}")
        figures[name, unit] = number
    return figures


def format_figures(name, figures, remark=""):
    """The line that `parse_figures` reads.

    Args:
        name: str. Who measured.
        figures: dict of (name, unit) to float.
        remark: str. What else there is to say; it goes into parentheses.

    Returns:
        str.

    Example:

    >>> format_figures("keras_bert", {("train", "ms"): 312.437, ("acc", ""): 0.9}, "2 rows")
    'keras_bert: train 312.4 ms, acc 0.9000 (2 rows)'
    """
    parts = [f"{figure} {_number(value, unit)} {unit}".rstrip() for (figure, unit), value in figures.items()]
    return f"{name}: {', '.join(parts)}" + (f" ({remark})" if remark else "")


def _number(value, unit):
    """Four digits that count, and never an exponent."""
    if not unit or not value:
        return f"{value:.4f}"
    return f"{value:.{max(3 - math.floor(math.log10(abs(value))), 0)}f}"


def times_faster(ours, theirs, unit):
    """How many times as fast ours is.

    Args:
        ours, theirs: float, figures of the same name and unit.
        unit: str.

    Returns:
        float, or None if the unit is not one of speed.

    Example:

    >>> times_faster(100.0, 150.0, "ms"), times_faster(100.0, 150.0, "ex/s")
    (1.5, 0.6666666666666666)
    """
    more_is_faster = MORE_IS_FASTER[unit]
    if more_is_faster is None:
        return None
    return ours / theirs if more_is_faster else theirs / ours


def comparison_table(turns, ours):
    """Medians over the turns, and how many times as fast ours is, turn by turn.

    Args:
        turns: list of dict of program to figures; every turn has the same programs and figures.
        ours: str. The program that the others are compared with.

    Returns:
        str, several lines: for each figure the programs that have it.
    """
    programs = list(turns[0])
    width = max(map(len, programs)) + 2
    columns = f"{'median':>10}{'lowest':>10}{'highest':>10}"
    lines = [f"{'':<{width + 33}}{f'{ours} is so many times as fast:':>30}", f"{'':<{width}}{columns}   {columns}"]
    for figure in dict.fromkeys(figure for program in programs for figure in turns[0][program]):
        name, unit = figure
        lines.append(f"{name}, {unit}" if unit else name)
        for program in programs:
            if figure in turns[0][program]:
                values = [turn[program][figure] for turn in turns]
                line = f"  {program:<{width - 2}}" + "".join(f"{_number(value, unit):>10}" for value in _spread(values))
                lines.append(line + _ratio_columns(turns, program, ours, figure))
    return "\n".join(lines)


def _ratio_columns(turns, program, ours, figure):
    if program == ours or figure not in turns[0][ours] or MORE_IS_FASTER[figure[1]] is None:
        return ""
    ratios = [times_faster(turn[ours][figure], turn[program][figure], figure[1]) for turn in turns]
    return "   " + "".join(f"{ratio:>10.2f}" for ratio in _spread(ratios))


def _spread(values):
    return statistics.median(values), min(values), max(values)
