"""Draws confusion matrices and training curves as PNG files."""

import math
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_RESOLUTION = 120  # pixels an inch
_POINTS = 72  # points an inch
_FONT = "DejaVu Sans"  # comes with matplotlib
_LAST_RESORT = "Last Resort"  # draws a placeholder for every character
_DIGIT_WIDTH = 0.64  # of the text's size
_MOST_NAMED_CLASSES, _LARGEST_MATRIX = 100, 20  # inches
_SMALLEST_MATRIX = 2.4  # inches
_LONGEST_NAME = 28  # characters
_SMOOTHED_FROM, _SMOOTHING_WINDOWS = 100, 50  # records


def confusion_matrix_figure(path: str | Path, confusion_matrix: ArrayLike, label_names: Sequence[str]) -> Path:
    """Draws how often each class was taken for which, as a PNG file.

    A cell holds the number of examples; its colour is their share of the row's, the true class. A name that is too long
    is shortened in the middle, and one that no installed font can write is replaced by the number of its class. Beyond
    100 classes there are colours only: the numbers could not be read, and the figure would take minutes.

    Args:
        path: str or Path of the file to write, ending in ".png"; an older one is replaced.
        confusion_matrix: ints [true][predicted], as `classification_report` gives.
        label_names: list of str, the names of the classes.

    Returns:
        Path of the file.

    Raises:
        ValueError: if the matrix is not a square of counts that fits the names, or the path is not that of a PNG file.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "confusion_matrix.png"
    >>> confusion_matrix_figure(path, [[2, 0], [1, 1]], ["negative", "positive"]).name
    'confusion_matrix.png'
    """
    from matplotlib.figure import Figure

    path, matrix = _png_path(path), _counts(confusion_matrix, len(label_names))
    number, digits = len(matrix), len(str(int(matrix.max())))
    size = 9 if number <= 20 else 7 if number <= 50 else 5  # points
    cell = max(digits * _DIGIT_WIDTH * size * 1.2, size * 2.2) / _POINTS
    side = _LARGEST_MATRIX if number > _MOST_NAMED_CLASSES else max(number * cell, _SMALLEST_MATRIX)  # inches

    # The axes fill the figure; what stands around them is added when the file is written, however long the names are.
    figure = Figure(figsize=(side, side))
    axes = figure.add_axes((0, 0, 1, 1))
    totals = matrix.sum(axis=1, keepdims=True)
    shares = matrix / np.maximum(totals, 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), count in np.ndenumerate(matrix):
        if number <= _MOST_NAMED_CLASSES and (count or number <= 10):
            colour = "white" if shares[row, column] > 0.5 else "black" if count else "0.75"
            axes.text(column, row, str(count), ha="center", va="center", color=colour, fontsize=size)
    if number <= _MOST_NAMED_CLASSES:
        _name_ticks(axes, label_names, size=min(9, 0.7 * side / number * _POINTS))
    axes.set_xlabel("predicted class", fontsize=10)
    axes.set_ylabel("true class", fontsize=10)
    accuracy = np.trace(matrix) / max(matrix.sum(), 1)
    axes.set_title(f"{matrix.sum():,} examples, accuracy {accuracy:.1%}", fontsize=10)
    bar = figure.colorbar(image, cax=figure.add_axes((1 + 0.15 / side, 0, 0.14 / side, 1)))
    bar.set_label("share of the true class", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return _write(figure, path)


def training_curve_figure(path: str | Path, log_records: Sequence[Mapping[str, Any]]) -> Path:
    """Draws a run's loss and the scores of its evaluations over the steps, as a PNG file.

    Where a step is logged more than once, as after a resumed run, the last record counts. Of long runs a running mean
    of the loss is drawn, too.

    Args:
        path: str or Path of the file to write, ending in ".png"; an older one is replaced.
        log_records: list of dicts as in a run's `log.jsonl`: those of training, `{"event": "train", "step": int,
            "loss": float, ...}`, and those of evaluations, `{"event": "evaluation", "step": int, "<split>/<metric>":
            float, ...}`. Others are not looked at, nor are values that are missing or not finite.

    Returns:
        Path of the file.

    Raises:
        ValueError: if the path is not that of a PNG file.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "training_curve.png"
    >>> records = [{"event": "train", "step": 10, "loss": 0.7}, {"event": "train", "step": 20, "loss": 0.4},
    ...            {"event": "evaluation", "step": 20, "dev/accuracy": 0.9}]
    >>> training_curve_figure(path, records).name
    'training_curve.png'
    """
    from matplotlib.figure import Figure

    path = _png_path(path)
    losses = _series(log_records, "train", lambda key: key == "loss").get("loss", {})
    scores = _series(log_records, "evaluation", lambda key: "/" in key)
    # Losses, perplexities and percentages would press scores between -1 and 1 into one flat line.
    small = {name: values for name, values in scores.items() if max(map(abs, values.values())) <= 1}
    large = {name: values for name, values in scores.items() if name not in small}
    panels = [small, large] if small and large else [scores]

    figure = Figure(figsize=(8, 2.8 * (1 + len(panels))), layout="constrained")
    axes = figure.subplots(1 + len(panels), 1, sharex=True, squeeze=False)[:, 0]
    _draw_loss(axes[0], losses)
    for panel, named in zip(axes[1:], panels, strict=True):
        _draw_scores(panel, named)
    axes[-1].set_xlabel("step")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    return _write(figure, path)


def _draw_loss(axes, losses):
    axes.set_ylabel("training loss")
    if not losses:
        return _say(axes, "no training records")
    steps, values = list(losses), list(losses.values())
    long = len(values) >= _SMOOTHED_FROM
    axes.plot(steps, values, color="tab:blue", alpha=0.3 if long else 1.0, linewidth=1, marker=_marker(values))
    if long:
        width = len(values) // _SMOOTHING_WINDOWS
        means = np.convolve(values, np.full(width, 1 / width), mode="valid")
        label = f"mean of {width} records"
        axes.plot(steps[width - 1 :], means, color="tab:blue", linewidth=1.8, label=label)
        axes.legend(loc="upper right", fontsize=8)
    axes.grid(alpha=0.3)


def _draw_scores(axes, named):
    axes.set_ylabel("evaluation")
    if not named:
        return _say(axes, "no evaluation records")
    for index, (name, values) in enumerate(named.items()):
        style = ("-", "--", ":", "-.")[index // 10 % 4]
        axes.plot(
            list(values), list(values.values()), linestyle=style, marker=_marker(values), markersize=4, label=name
        )
    columns = math.ceil(len(named) / 14)
    # Beside the panel, where it hides no point.
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), fontsize=8, frameon=False, ncols=columns)
    for text in legend.get_texts():
        text.set_parse_math(False)
    axes.grid(alpha=0.3)


def _marker(values):
    return "o" if len(values) <= 30 else None


def _say(axes, message):
    axes.text(0.5, 0.5, message, ha="center", va="center", color="0.5", transform=axes.transAxes)
    axes.set_yticks([])


def _series(records, event, wanted):
    """{key: {step: value}} of the finite numbers of an event, by ascending steps."""
    found = {}
    for record in records:
        step = record.get("step")
        if record.get("event") == event and _is_finite_number(step):
            for key, value in record.items():
                if wanted(key) and _is_finite_number(value):
                    found.setdefault(key, {})[step] = float(value)
    return {key: dict(sorted(values.items())) for key, values in found.items()}


def _is_finite_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _name_ticks(axes, label_names, size):
    shown, families = _drawable(_shortened(label_names))
    font = {"fontsize": size, "family": families, "parse_math": False}
    ticks = np.arange(len(shown))
    axes.set_yticks(ticks, shown, **font)
    slanted = len(shown) <= 20
    axes.set_xticks(ticks, shown, rotation=45 if slanted else 90, **font)
    if slanted:
        for text in axes.get_xticklabels():
            text.set(ha="right", rotation_mode="anchor")
    axes.tick_params(length=2)


def _shortened(names):
    """Names of a bearable length, still distinct."""
    ends = (_LONGEST_NAME * 3 // 5, _LONGEST_NAME * 2 // 5 - 1)
    short = [name if len(name) <= _LONGEST_NAME else f"{name[: ends[0]]}…{name[-ends[1] :]}" for name in names]
    return [name if short.count(name) == 1 else f"{name[: ends[0]]}… #{index}" for index, name in enumerate(short)]


def _drawable(names):
    """The names as they can be drawn, and the font families that draw them, the first that has a character first."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    families = [_FONT]
    missing = set(map(ord, "".join(names))) - get_font(findfont(FontProperties(family=_FONT))).get_charmap().keys()
    for entry in fontManager.ttflist if missing else ():
        if entry.name.startswith(_LAST_RESORT) or entry.name in families:
            continue
        font = get_font(entry.fname)
        found = missing & font.get_charmap().keys()
        if found and font.scalable:  # fonts of coloured pictures are not
            families.append(entry.name)
            missing -= found
    drawable = [f"class {index}" if missing.intersection(map(ord, name)) else name for index, name in enumerate(names)]
    return drawable, families


def _counts(confusion_matrix, number):
    matrix = np.asarray(confusion_matrix)
    if matrix.shape != (number, number) or not number or matrix.dtype.kind not in "iu" or matrix.min() < 0:
        raise ValueError(
            f"confusion_matrix must be counts [true][predicted] of the {number} named classes; got the shape "
            f"{matrix.shape} and the type {matrix.dtype}"
        )
    return matrix


def _png_path(path):
    path = Path(path)
    if path.suffix != ".png":
        raise ValueError(f"the figure is written as PNG: the path must end in .png; got {path}")
    return path


def _write(figure, path):
    """Writes the whole file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished-{uuid.uuid4().hex}")
    try:
        figure.savefig(unfinished, format="png", dpi=_RESOLUTION, bbox_inches="tight", pad_inches=0.15)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path
