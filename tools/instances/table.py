"""What was realised in pre-training instances beside what was asked for, for `tools.inspect_pretraining_data`."""

from typing import NamedTuple

import numpy as np

from tools.instances.counts import summary
from tools.instances.text import LABEL_NAMES, LABEL_QUESTIONS

_HALF = 0.5  # of the second segments are to be random ones, or swapped: arXiv 1810.04805 and 1909.11942, section 3.1


class Row(NamedTuple):
    """A line of the table.

    Attributes:
        label: str, for a human.
        realised: int, float, or dict of `summary`; None if it is not known, or a share of nothing.
        asked_for: list of the values that the settings have for it; empty if they say nothing.
        form: str, "number", "share", or "summary", of which the most is asked for.
    """

    label: str
    realised: int | float | dict | None
    asked_for: list | tuple = ()
    form: str = "share"


def make_table(counts, shards):
    """What was realised beside what was asked for.

    Args:
        counts: `InstanceCounts` of at least one instance.
        shards: list of `InstanceShard`.

    Returns:
        dict of name to `Row`.
    """
    rows = {"instances": Row("instances", counts.instances, form="number")}
    return (
        rows | _length_rows(counts) | _masking_rows(counts, shards) | _label_rows(counts, shards) | _text_rows(counts)
    )


def _length_rows(counts):
    length = len(counts.lengths) - 1
    return {
        "length": Row("tokens of an instance, with [CLS] and [SEP]", summary(counts.lengths), [length], "summary"),
        "real_tokens": Row("places that are no padding", _tokens(counts) / (counts.instances * length)),
        "first_segment": Row("tokens of the first segment", summary(counts.first_lengths), form="summary"),
        "second_segment": Row("tokens of the second segment", summary(counts.second_lengths), form="summary"),
    }


def _masking_rows(counts, shards):
    masked, tokens, most = int(counts.masked_at.sum()), _tokens(counts), len(counts.masked_numbers) - 1
    replacements = asked_replacements(shards)
    another = "another token"
    if counts.as_mask is None:
        another, replacements["as_random"] = "[MASK] or another", []
    planned = [] if counts.planned is None else [counts.planned / tokens]
    whole_words = _asked(shards, "whole_words")
    rows = {
        "masked_tokens": Row("masked tokens of an instance", summary(counts.masked_numbers), [most], "summary"),
        "at_most_masked": Row(f"instances with {most} masked", int(counts.masked_numbers[most]) / counts.instances),
        "masking_rate": Row("masking rate, of all tokens", masked / tokens, _asked(shards, "masking_rate")),
        "masking_rate_capped": Row("masking rate, beside that rounded and capped", masked / tokens, planned),
        "as_mask": Row("masked tokens that are [MASK]", _share(counts.as_mask, masked), replacements["as_mask"]),
        "as_random": Row(
            f"masked tokens that are {another}", _share(counts.as_random, masked), replacements["as_random"]
        ),
        "kept": Row("masked tokens that are kept", _share(counts.kept, masked), replacements["kept"]),
        "whole_words": Row(
            "masked words of several pieces: masked whole",
            _share(counts.whole_words, counts.masked_words),
            [1.0] if whole_words == [True] else [],
        ),
    }
    faults = {"masked_specials": "[CLS], [SEP] or padding", "masked_twice": "what is masked already"}
    for name, where in faults.items():
        if getattr(counts, name):
            rows[name] = Row(f"masked places on {where}", getattr(counts, name), [0], "number")
    return rows


def _label_rows(counts, shards):
    tasks = _tasks(shards)
    if tasks == ["none"]:
        return {}
    question = LABEL_QUESTIONS[tasks[0]] if len(tasks) == 1 else "next sentence"
    asked = [_HALF] if "none" not in tasks else []
    return {
        f"label_{label}": Row(f"{question}: {name}", int(counts.labels[label]) / counts.instances, asked)
        for label, name in enumerate(label_names(shards))
    }


def _text_rows(counts):
    return {
        "repeated_instances": Row("repetitions of an instance", counts.repeated_instances.share()),
        "repeated_texts": Row("repetitions of its text, with any masks", counts.repeated_texts.share()),
        "unknown_tokens": Row("tokens of the text that are [UNK]", _share(counts.unknown, int(counts.text_at.sum()))),
    }


def _tokens(counts):
    return int(counts.lengths @ np.arange(len(counts.lengths)))


def _share(number, of):
    return None if number is None or not of else number / of


def _asked(shards, name):
    return sorted({getattr(shard.settings, name) for shard in shards if shard.settings is not None})


def _tasks(shards):
    # google-research/bert and tensorflow/models, which leave nothing beside their files, have no other task.
    return sorted({"nsp" if shard.settings is None else shard.settings.next_sentence for shard in shards})


def label_names(shards):
    """Names of the next-sentence labels 0 and 1.

    Args:
        shards: list of `InstanceShard`.

    Returns:
        A pair of str.
    """
    tasks = _tasks(shards)
    return LABEL_NAMES[tasks[0]] if len(tasks) == 1 else ("label 0", "label 1")


def asked_replacements(shards):
    """What was to become of masked tokens.

    Args:
        shards: list of `InstanceShard`.

    Returns:
        dict of `as_mask`, `as_random` and `kept`, each a list of the different shares asked for.
    """
    settings = [shard.settings for shard in shards if shard.settings is not None]
    return {
        "as_mask": _asked(shards, "mask_share"),
        "as_random": _asked(shards, "random_share"),
        "kept": sorted({round(1 - each.mask_share - each.random_share, 9) for each in settings}),
    }


def describe_table(rows, has_vocabulary):
    """The table for a human.

    Args:
        rows: dict of `Row`.
        has_vocabulary: bool. Whether something unknown is so for want of a vocabulary.

    Returns:
        list of str, lines.
    """
    lines = [f"{'':<46}{'realised':<34}asked for"]
    for row in rows.values():
        unknown = "none" if has_vocabulary else "needs --vocab_file"
        realised = unknown if row.realised is None else _format(row.realised, row.form)
        asked = " or ".join(_format(value, row.form) for value in row.asked_for)
        lines.append(f"{row.label:<46}{realised:<34}{asked}".rstrip())
    return lines


def _format(value, form):
    if form == "share":
        return f"{value:.2%}"
    if isinstance(value, dict):
        return f"{value['mean']:.2f}, median {value['median']:g}, {value['min']} to {value['max']}"
    return f"at most {value:,}" if form == "summary" else f"{value:,}"
