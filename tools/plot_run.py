"""Draws the logs of one or several runs for comparison: loss, score, learning rate and speed over the updates.

    python -m tools.plot_run runs/rte runs/cola --output=runs.png

RUN_DIR is the folder of a run, finished or still training; of a run with several trials all are drawn. Each run has a
colour, and a star where its score was best. Loss, gradient norm and speeds are drawn as running means, with the records
behind them; the terms of a loss that has several are dashed. A number that was not finite leaves a gap. Where a step
was logged twice, as after a crash, the later record counts.

Of more than 2,000 records, neighbours are averaged: a point is then the mean over 2, 4, 8, ... updates, as few as give
no more than 2,000 points. Memory does not grow with the log.
"""

import math
import sys

import numpy as np
from absl import app, flags

from tools.figures import check_figure, write_figure
from tools.run_logs import LOSS_TERM, choose_scores, distinct_names, read_runs

_LEGEND_WIDTH = 210  # characters
_TERM_STYLES = ("--", ":", "-.", (0, (6, 2, 1, 2, 1, 2)), (0, (1, 4)), (0, (8, 4)))  # of the terms of a loss
_WIDE = 100  # times the median: values beyond it are drawn on a logarithmic scale
_STAR = {"marker": "*", "markeredgecolor": "black", "markeredgewidth": 0.6}


def smooth(values, window):
    """Means over a window around each value; at the ends over what is there of it.

    Args:
        values: float array [points]; NaN is left out of the means, and stays.
        window: int. Points in a window; an even number counts as the odd one after it.

    Returns:
        float array [points].
    """
    finite = np.isfinite(values)
    if not finite.any():
        return values
    half = window // 2
    # Not by cumulative sums: after a huge value their differences would be nothing but rounding.
    sums, numbers = (
        np.convolve(row, np.ones(2 * half + 1))[half : half + len(values)]
        for row in (np.where(finite, values, 0), finite)
    )
    return np.where(finite, sums / np.maximum(numbers, 1), math.nan)


def draw_runs(path, runs, scores, smoothing):
    """Draws runs as a PNG file: six panels over the updates, and a legend with the best score of each run.

    Args:
        path: str or Path of the file to write; an older one is replaced.
        runs: list of `Run`.
        scores: list of str or None, the metric of each run.
        smoothing: float from 0 to 1. The share of a run's records over which a running mean goes; 0 draws none.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    looks = list(zip(runs, scores, _colours(len(runs)), strict=True))
    names = distinct_names([run.path for run in runs])
    labels = [_label(name, run, score) for name, (run, score, _) in zip(names, looks, strict=True)]
    columns = min(max(_LEGEND_WIDTH // (max(map(len, labels)) + 8), 1), len(runs))
    figure = Figure(figsize=(13, 10 + 0.2 * math.ceil(len(runs) / columns)), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    panels = figure.subplots(3, 2, sharex=True)
    _draw_series(panels[0, 0], "training loss", "loss", looks, smoothing)
    _draw_loss_terms(panels[0, 0], looks, smoothing)
    _mark_loss_at_best(panels[0, 0], looks, smoothing)
    _draw_scores(panels[0, 1], looks)
    _draw_series(panels[1, 0], "learning rate", "learning_rate", looks, smoothing=0)
    _draw_series(panels[1, 1], "gradient norm", "gradient_norm", looks, smoothing)
    _draw_series(panels[2, 0], "examples a second", "examples_per_second", looks, smoothing)
    _draw_series(panels[2, 1], "real tokens a second", "tokens_per_second", looks, smoothing)
    panels[1, 0].yaxis.set_major_formatter("{x:g}")
    for axes in (panels[0, 0], panels[1, 1]):
        _choose_scale(axes)
    for axes in panels[2]:
        axes.set_ylim(0, 1.1 * _finite_values(axes).max(initial=0) or None)
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.set_xlabel("updates", fontsize=9)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    _draw_legend(figure, looks, labels, columns, smoothing)
    write_figure(figure, path)


def _colours(number):
    from matplotlib import colormaps

    return colormaps["tab10"].colors[:number] if number <= 10 else colormaps["turbo"](np.linspace(0.03, 0.97, number))


def _label(name, run, score):
    if score is None:
        return f"{name}: {'not evaluated by this score' if run.evaluations else 'no evaluation'}"
    if score not in run.best:
        return f"{name}: {score} was never finite"
    step, value = run.best[score]
    return f"{name}: {score} {value:.4g} at update {step:,.0f}"


def _prepare(axes, title):
    axes.set_title(_drawable(title), loc="left", fontsize=10, fontweight="bold", parse_math=False)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _draw_series(axes, title, name, looks, smoothing):
    """Draws a series of the records of training, a curve for each run; running means stand before what they are of."""
    _prepare(axes, title)
    for run, _, colour in looks:
        if name in run.training:
            steps, values = run.training[name].points()
            smoothed = _window(values, smoothing) > 1
            line = {"linewidth": 0.8, "alpha": 0.25} if smoothed else {"linewidth": 1.4}
            axes.plot(steps, values, color=colour, marker=_marker(values, 30), markersize=3.5, **line)
            if smoothed:
                axes.plot(*_smoothed(run, name, smoothing), color=colour, linewidth=1.6, zorder=3)
    _say_if_empty(axes)


def _draw_loss_terms(axes, looks, smoothing):
    from matplotlib.lines import Line2D

    terms = sorted({name for run, _, _ in looks for name in run.training if name.startswith(LOSS_TERM)})
    styles = {name: _TERM_STYLES[place % len(_TERM_STYLES)] for place, name in enumerate(terms)}
    for run, _, colour in looks:
        for name in styles.keys() & run.training.keys():
            axes.plot(*_smoothed(run, name, smoothing), color=colour, linestyle=styles[name], linewidth=1.2, zorder=3)
    if terms:
        handles = [Line2D([], [], color="0.3", linestyle=styles[name], linewidth=1.2) for name in terms]
        legend = axes.legend(handles, map(_drawable, terms), loc="upper right", fontsize=8, handlelength=4)
        _without_mathematics(legend)


def _mark_loss_at_best(axes, looks, smoothing):
    for run, score, colour in looks:
        if score in run.best and "loss" in run.training:
            steps, values = _smoothed(run, "loss", smoothing)
            finite = np.isfinite(values)
            step, _ = run.best[score]
            if finite.any():
                _star(axes, step, np.interp(step, steps[finite], values[finite]), colour)


def _smoothed(run, name, smoothing):
    steps, values = run.training[name].points()
    return steps, smooth(values, _window(values, smoothing))


def _draw_scores(axes, looks):
    drawn = list(dict.fromkeys(score for _, score, _ in looks if score is not None))
    _prepare(axes, f"score: {drawn[0]}" if len(drawn) == 1 else "score")
    for run, score, colour in looks:
        if score is not None:
            steps, values = run.evaluations[score].points()
            axes.plot(steps, values, color=colour, marker=_marker(values, 100), markersize=3.5, linewidth=1.2)
        if score in run.best:
            _star(axes, *run.best[score], colour)
    _say_if_empty(axes)


def _window(values, smoothing):
    return max(round(len(values) * smoothing), 1)


def _marker(values, most):
    return "o" if len(values) <= most else None


def _star(axes, step, value, colour):
    axes.plot(step, value, color=colour, markersize=13, zorder=5, **_STAR)


def _say_if_empty(axes):
    if not len(_finite_values(axes)):
        axes.text(0.5, 0.5, "nothing logged", ha="center", va="center", color="0.5", transform=axes.transAxes)
        axes.set_yticks([])


def _choose_scale(axes):
    """Keeps a few large values from pressing all others into a flat line."""
    values = _finite_values(axes)
    if len(values) and values.min() > 0 and values.max() > _WIDE * np.median(values):
        axes.set_yscale("log")


def _finite_values(axes):
    values = np.concatenate([np.zeros(0), *(line.get_ydata() for line in axes.lines)])
    return values[np.isfinite(values)]


def _draw_legend(figure, looks, labels, columns, smoothing):
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, linewidth=2, markersize=11, **(_STAR if score in run.best else {}))
        for run, score, colour in looks
    ]
    legend = figure.legend(
        handles, map(_drawable, labels), loc="outside lower left", ncols=columns, fontsize=8.5, frameon=False
    )
    legend.set_title(_explanation([run for run, _, _ in looks], smoothing), {"size": 8.5})
    legend.set_alignment("left")
    _without_mathematics(legend)


def _explanation(runs, smoothing):
    """What the reader of the figure must know of stars, running means and averages."""
    training = [curve for run in runs for curve in run.training.values()]
    evaluations = [curve for run in runs for curve in run.evaluations.values()]
    width = max(curve.width for curve in training + evaluations)
    sentences = ["A star is where the score was best."] if evaluations else []
    if any(_window(curve.points()[1], smoothing) > 1 for curve in training):
        share = f"{100 * smoothing:g}%"
        sentences.append(f"Strong lines are running means over {share} of the records, which stand faint behind them.")
    if width > 1:
        sentences.append(f"Of long logs, a point is the mean over up to {width:,} updates.")
    return " ".join(sentences)


def _drawable(text):
    """A text without characters that the font lacks: their numbers stand for them."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    known = get_font(findfont(FontProperties())).get_charmap()
    return "".join(char if ord(char) in known else char.encode("unicode_escape").decode() for char in text)


def _without_mathematics(legend):
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name may hold dollar signs


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    flags.DEFINE_string("output", None, "File to write, ending in .png.", flag_values=values, required=True)
    flags.DEFINE_string(
        "score", None, "Metric to draw, as logged, such as dev/accuracy; by default each run's own.", flag_values=values
    )
    flags.DEFINE_bool(
        "lower_is_better", False, "Whether the best is where the score was least, as of a loss.", flag_values=values
    )
    flags.DEFINE_float(
        "smoothing",
        0.05,
        "Share of a run's records over which running means go; 0 draws none.",
        lower_bound=0,
        upper_bound=1,
        flag_values=values,
    )
    flags.DEFINE_bool("overwrite", False, "Whether to replace an output that exists.", flag_values=values)


def run(run_dirs, values):
    """Checks the arguments, reads the logs, draws, and says on standard error what was written."""
    if not run_dirs:
        raise ValueError("no RUN_DIR; give the folder of a run, or of several")
    check_figure(values.output, values.overwrite)
    runs = read_runs(run_dirs, values.lower_is_better)
    draw_runs(values.output, runs, choose_scores(runs, values.score), values.smoothing)
    print(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} drawn to {values.output}", file=sys.stderr)


def main(argv):
    """Runs the program; what is wrong with folders or flags is said in one line."""
    try:
        run(argv[1:], flags.FLAGS)
    except (OSError, ValueError) as error:
        sys.exit(f"tools.plot_run: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
