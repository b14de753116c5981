"""What an ablation came to, as a table for people and as data for programs."""

import statistics


def table_of(rows):
    """A table in Markdown.

    Args:
        rows: list of dict of column to str, all with the same columns.

    Returns:
        str.

    Example:

    >>> print(table_of([{"Pre-training": "BERT", "sst2": "0.9"}]), end="")
    | Pre-training | sst2 |
    |---|---|
    | BERT | 0.9 |
    """
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([*row.values()] for row in rows)]
    first, rule, *others = (" | ".join(map(str, cells)) for cells in lines)
    return "".join([f"| {first} |\n", f"|{rule.replace(' ', '')}|\n", *(f"| {line} |\n" for line in others)])


def row_of(variant, pretraining, fine_tuning):
    """A row: what the variant is, what its pre-training cost and came to, and its scores.

    Args:
        variant: a `tools.ablations.variants.Variant`.
        pretraining: dict, `results.json` of its pre-training, or None.
        fine_tuning: dict of task to `results.json` of its fine-tuning.

    Returns:
        dict of column to str. A score is the median of its trials, and their range behind it.
    """
    row = dict(variant.row)
    if pretraining is not None:
        row |= {
            "updates": f"{pretraining['updates']:,}",
            "minutes": f"{pretraining['seconds'] / 60:.1f}",
        }
        if "eval/perplexity" in pretraining["metrics"]:
            row["LM perplexity"] = f"{pretraining['metrics']['eval/perplexity']:.4g}"
    for task, results in fine_tuning.items():
        row[f"{task} ({results['score']})"] = _median_and_range(scores_of(results))
    return row


def scores_of(results):
    """The score of each trial that has one: list of float.

    Args:
        results: dict, `results.json` of a fine-tuning.

    Returns:
        list of float.

    Example:

    >>> scores_of({"trials": [{"score": 0.5}, {"score": None}]})
    [0.5]
    """
    return [trial["score"] for trial in results["trials"] if trial["score"] is not None]


def _median_and_range(scores):
    if not scores:
        return "diverged"
    return f"{statistics.median(scores):.4f} ({min(scores):.4f} to {max(scores):.4f}, n={len(scores)})"
