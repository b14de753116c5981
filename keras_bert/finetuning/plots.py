"""Draws confusion matrices and training curves as PNG files."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from keras_bert.io.atomic_write import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PIXELS_PER_INCH = 120
_POINTS_PER_INCH = 72
_FONT = "DejaVu Sans"  # comes with matplotlib
_PLACEHOLDER_FONT = "Last Resort"  # draws a placeholder for every character
_DIGIT_WIDTH = 0.64  # relative to the font size
_MAX_NAMED_CLASSES = 100
_MAX_MATRIX_INCHES, _MIN_MATRIX_INCHES = 20, 2.4
_MAX_NAME_LENGTH = 28
_MIN_SMOOTHED_RECORDS, _NUM_SMOOTHING_WINDOWS = 100, 50

Series = dict[str, dict[int, float]]  # {name: {step: value}}


def draw_confusion_matrix(
    path: str | os.PathLike[str], confusion_matrix: ArrayLike, label_names: Sequence[str]
) -> Path:
    """Draws a confusion matrix as a PNG file, colored by the fraction of the row; an existing file is replaced.

    Names that no font can draw become class indices. Beyond 100 classes only colors are drawn: numbers take minutes.
    """
    from matplotlib.figure import Figure

    path, matrix = _check_png_path(path), _check_counts(confusion_matrix, len(label_names))
    num_classes, num_digits = len(matrix), len(str(int(matrix.max())))
    has_names = num_classes <= _MAX_NAMED_CLASSES
    font_size = 9 if num_classes <= 20 else 7 if num_classes <= 50 else 5  # points
    cell = max(num_digits * _DIGIT_WIDTH * font_size * 1.2, font_size * 2.2) / _POINTS_PER_INCH
    side = max(num_classes * cell, _MIN_MATRIX_INCHES) if has_names else _MAX_MATRIX_INCHES

    # The axes fill the figure; saving with a tight bounding box adds room for the labels, however long they are.
    figure = Figure(figsize=(side, side))
    axes = figure.add_axes((0, 0, 1, 1))
    fractions = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(fractions, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), count in np.ndenumerate(matrix):
        if has_names and (count or num_classes <= 10):
            color = "white" if fractions[row, column] > 0.5 else "black" if count else "0.75"
            axes.text(column, row, str(count), ha="center", va="center", color=color, fontsize=font_size)
    if has_names:
        _set_class_ticks(axes, label_names, font_size=min(9, 0.7 * side / num_classes * _POINTS_PER_INCH))
    axes.set_xlabel("predicted class", fontsize=10)
    axes.set_ylabel("true class", fontsize=10)
    accuracy = np.trace(matrix) / max(matrix.sum(), 1)
    axes.set_title(f"{matrix.sum():,} examples, accuracy {accuracy:.1%}", fontsize=10)
    bar = figure.colorbar(image, cax=figure.add_axes((1 + 0.15 / side, 0, 0.14 / side, 1)))
    bar.set_label("fraction of the true class", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return _save(figure, path)


def draw_training_curve(path: str | os.PathLike[str], log_records: Iterable[Mapping[str, Any]]) -> Path:
    """Draws a run's loss and evaluation metrics over its steps as a PNG file; the last record of a step counts."""
    from matplotlib.figure import Figure

    path, log_records = _check_png_path(path), list(log_records)
    losses = _collect_series(log_records, "train", lambda key: key == "loss").get("loss", {})
    metrics = _collect_series(log_records, "evaluation", lambda key: "/" in key)
    # Losses, perplexities and percentages would flatten the curves of metrics between -1 and 1.
    small = {name: values for name, values in metrics.items() if max(map(abs, values.values())) <= 1}
    large = {name: values for name, values in metrics.items() if name not in small}
    panels = [small, large] if small and large else [metrics]

    figure = Figure(figsize=(8, 2.8 * (1 + len(panels))), layout="constrained")
    axes = figure.subplots(1 + len(panels), 1, sharex=True, squeeze=False)[:, 0]
    _draw_loss(axes[0], losses)
    for panel, series in zip(axes[1:], panels, strict=True):
        _draw_metrics(panel, series)
    axes[-1].set_xlabel("step")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    last_step = max((step for values in (losses, *metrics.values()) for step in values), default=0)
    axes[-1].set_xlim(0, 1.02 * max(last_step, 1))
    return _save(figure, path)


def _draw_loss(axes: Axes, losses: dict[int, float]) -> None:
    axes.set_ylabel("training loss")
    if not losses:
        _write_message(axes, "no training records")
        return
    steps, values = list(losses), list(losses.values())
    is_smoothed = len(values) >= _MIN_SMOOTHED_RECORDS
    alpha = 0.3 if is_smoothed else 1.0
    axes.plot(steps, values, color="tab:blue", alpha=alpha, linewidth=1, marker=_choose_marker(values), markersize=4)
    if is_smoothed:
        width = len(values) // _NUM_SMOOTHING_WINDOWS
        means = np.convolve(values, np.full(width, 1 / width), mode="valid")
        axes.plot(steps[width - 1 :], means, color="tab:blue", linewidth=1.8, label=f"mean of {width} records")
        axes.legend(loc="upper right", fontsize=8)
    axes.grid(alpha=0.3)


def _draw_metrics(axes: Axes, series: Series) -> None:
    axes.set_ylabel("evaluation")
    if not series:
        _write_message(axes, "no evaluation records")
        return
    for index, (name, values) in enumerate(series.items()):
        style, marker = ("-", "--", ":", "-.")[index // 10 % 4], _choose_marker(values)
        axes.plot(list(values), list(values.values()), linestyle=style, marker=marker, markersize=4, label=name)
    # To the right of the axes the legend hides no point.
    num_columns = math.ceil(len(series) / 14)
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), fontsize=8, frameon=False, ncols=num_columns)
    for text in legend.get_texts():
        text.set_parse_math(False)
    axes.grid(alpha=0.3)


def _choose_marker(values: Sequence[float] | Mapping[int, float]) -> str | None:
    return "o" if len(values) <= 30 else None


def _write_message(axes: Axes, message: str) -> None:
    axes.text(0.5, 0.5, message, ha="center", va="center", color="0.5", transform=axes.transAxes)
    axes.set_yticks([])


def _collect_series(records: Iterable[Mapping[str, Any]], event: str, is_wanted: Callable[[str], bool]) -> Series:
    """Collects the finite numbers of an event, in the order of their steps."""
    series: Series = {}
    for record in records:
        step = record.get("step")
        if record.get("event") == event and _is_finite_number(step):
            for key, value in record.items():
                if is_wanted(key) and _is_finite_number(value):
                    series.setdefault(key, {})[int(step)] = float(value)
    return {key: dict(sorted(values.items())) for key, values in series.items()}


def _is_finite_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _set_class_ticks(axes: Axes, label_names: Sequence[str], font_size: float) -> None:
    names, families = _find_fonts(_abbreviate(label_names))
    font: dict[str, Any] = {"fontsize": font_size, "family": families, "parse_math": False}
    is_slanted = len(names) <= 20
    axes.set_yticks(np.arange(len(names)), names, **font)
    axes.set_xticks(np.arange(len(names)), names, rotation=45 if is_slanted else 90, **font)
    if is_slanted:
        for text in axes.get_xticklabels():
            text.set(ha="right", rotation_mode="anchor")
    axes.tick_params(length=2)


def _abbreviate(names: Sequence[str]) -> list[str]:
    """Shortens long names in the middle and keeps them distinct."""
    start, end = _MAX_NAME_LENGTH * 3 // 5, _MAX_NAME_LENGTH * 2 // 5 - 1
    short = [name if len(name) <= _MAX_NAME_LENGTH else f"{name[:start]}…{name[-end:]}" for name in names]
    counts = Counter(short)
    return [name if counts[name] == 1 else f"{name[:start]}… #{index}" for index, name in enumerate(short)]


def _find_fonts(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Finds font families that can draw the names, in order of preference; replaces names that none can draw."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    families = [_FONT]
    missing = set(map(ord, "".join(names))) - get_font(findfont(FontProperties(family=_FONT))).get_charmap().keys()
    for entry in fontManager.ttflist if missing else ():
        if entry.name.startswith(_PLACEHOLDER_FONT) or entry.name in families:
            continue
        font = get_font(entry.fname)
        found = missing & font.get_charmap().keys()
        if found and font.scalable:  # color bitmap fonts are not
            families.append(entry.name)
            missing -= found
    drawable = [f"class {index}" if missing.intersection(map(ord, name)) else name for index, name in enumerate(names)]
    return drawable, families


def _check_counts(confusion_matrix: ArrayLike, num_classes: int) -> np.ndarray:
    matrix = np.asarray(confusion_matrix)
    is_square = num_classes and matrix.shape == (num_classes, num_classes)
    if not is_square or matrix.dtype.kind not in "iu" or matrix.min() < 0:
        raise ValueError(
            f"confusion_matrix must hold the counts [true class, predicted class] of {num_classes} classes; got shape "
            f"{matrix.shape} and dtype {matrix.dtype}"
        )
    return matrix


def _check_png_path(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    if path.suffix != ".png":
        raise ValueError(f"figures are written as PNG: the path must end in .png; got {path}")
    return path


def _save(figure: Figure, path: Path) -> Path:
    with atomic_path(path, overwrite=True) as unfinished:
        figure.savefig(unfinished, format="png", dpi=_PIXELS_PER_INCH, bbox_inches="tight", pad_inches=0.15)
    return path
