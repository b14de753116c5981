"""Draws the histograms of pre-training instances for `tools.inspect_pretraining_data`."""

import numpy as np

from tools.figures import write_figure

_WIDE = 100  # times the median: counts beyond it are drawn on a logarithmic scale
_BLUE, _ORANGE = "tab:blue", "tab:orange"
_LINE = {"color": "black", "linewidth": 1, "linestyle": "--"}
_COMMON = 0.02  # of the instances have a token at a position that sets the scale


def draw_instances(path, counts, asked, label_names, title):
    """Draws counts of instances as a PNG file of six panels.

    Args:
        path: str or Path of the file to write; an older one is replaced.
        counts: `InstanceCounts` of at least one instance.
        asked: dict of what was asked for: `as_mask`, `as_random` and `kept`, each a list of float.
        label_names: list of str, the names of the next-sentence labels.
        title: str.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 10), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left", parse_math=False)
    panels = figure.subplots(3, 2)
    _draw_histogram(panels[0, 0], "tokens of an instance, with [CLS] and [SEP]", {"": counts.lengths})
    _draw_histogram(panels[0, 1], "masked tokens of an instance", {"": counts.masked_numbers})
    _draw_masked_positions(panels[1, 0], counts)
    segments = {"first segment": counts.first_lengths, "second segment": counts.second_lengths}
    _draw_histogram(panels[1, 1], "tokens of the segments, without [CLS] and [SEP]", segments)
    _draw_replacements(panels[2, 0], counts, asked)
    _draw_shares(panels[2, 1], "next-sentence labels", label_names, counts.labels)
    write_figure(figure, path)


def _prepare(axes, title):
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _draw_histogram(axes, title, histograms):
    """Draws how many instances have each value; several histograms stand before each other."""
    _prepare(axes, title)
    for (name, histogram), colour in zip(histograms.items(), (_BLUE, _ORANGE), strict=False):
        edges = np.arange(len(histogram) + 1) - 0.5
        axes.stairs(histogram, edges, fill=True, color=colour, alpha=0.5 if len(histograms) > 1 else 0.9, label=name)
    axes.set_ylabel("instances", fontsize=9)
    _choose_scale(axes, np.concatenate(list(histograms.values())))
    if len(histograms) > 1:
        axes.legend(fontsize=8)


def _choose_scale(axes, numbers):
    """Keeps the many instances of full length from pressing all others into a flat line."""
    numbers = numbers[numbers > 0]
    if numbers.max(initial=0) > _WIDE * np.median(numbers):
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
    axes.yaxis.set_major_formatter("{x:,g}")


def _draw_masked_positions(axes, counts):
    from matplotlib.ticker import PercentFormatter

    _prepare(axes, "share of tokens masked at each position, without [CLS] and [SEP]")
    shares = counts.masked_at / np.maximum(counts.text_at, 1)
    axes.stairs(shares, np.arange(len(shares) + 1) - 0.5, fill=True, color=_BLUE, alpha=0.9)
    mean = counts.masked_at.sum() / max(counts.text_at.sum(), 1)
    axes.axhline(mean, **_LINE, label="mean")
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    # What a few long instances have at their ends must not press all others flat.
    common = shares[counts.text_at > _COMMON * counts.text_at.max()]
    axes.set_ylim(0, 1.1 * max(common.max(initial=0), mean) or 1)
    axes.set_xlabel("position", fontsize=9)
    axes.legend(fontsize=8, loc="lower right")


def _draw_replacements(axes, counts, asked):
    names = {"as_mask": "[MASK]", "as_random": "another token", "kept": "kept"}
    if counts.as_mask is None:
        names = {"as_random": "[MASK] or another token", "kept": "kept"}
    numbers = np.array([getattr(counts, name) for name in names])
    _draw_shares(axes, "what stands at the masked places", list(names.values()), numbers)
    for place, name in enumerate(names):
        if counts.as_mask is not None:
            axes.hlines(asked[name], place - 0.45, place + 0.45, **_LINE, label="asked for")
    if counts.as_mask is not None and asked["kept"]:
        axes.legend(*(values[:1] for values in axes.get_legend_handles_labels()), fontsize=8)


def _draw_shares(axes, title, names, numbers):
    _prepare(axes, title)
    shares = numbers / max(numbers.sum(), 1)
    bars = axes.bar(range(len(names)), shares, width=0.7, color=_BLUE, alpha=0.9)
    axes.bar_label(bars, [f"{share:.2%}" for share in shares], fontsize=8)
    axes.set_xticks(range(len(names)), names, fontsize=9)
    axes.set_ylim(0, 1.1)
    axes.yaxis.set_major_formatter("{x:.0%}")
