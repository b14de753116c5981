"""What an ablation came to, as a table for people and as data for programs."""

import statistics


def table_of(rows):
    """A table in Markdown.

    Args:
        rows: list of dict of column to str. What one of them lacks is "-" in the table.

    Returns:
        str.

    Example:

    >>> print(table_of([{"Pre-training": "BERT", "sst2": "0.9"}]), end="")
    | Pre-training | sst2 |
    |---|---|
    | BERT | 0.9 |
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns), *([row.get(column, "-") for column in columns] for row in rows)]
    first, rule, *others = (" | ".join(map(str, cells)) for cells in lines)
    return "".join([f"| {first} |\n", f"|{rule.replace(' ', '')}|\n", *(f"| {line} |\n" for line in others)])


def row_of(variant, pretraining, fine_tuning):
    """A row: what the variant is, what its pre-training cost and came to, and its scores.

    Args:
        variant: a `experiments.variants.Variant`.
        pretraining: dict, `results.json` of its pre-training, or None.
        fine_tuning: dict of task to `results.json` of its fine-tuning.

    Returns:
        dict of column to str. A score is the median of the trials with the best learning rate, and their range behind
        it; that on test stands behind that on dev.
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
        for metric, scores in scores_of(results).items():
            row[f"{task} ({metric})"] = _median_and_range(scores)
    return row


def scores_of(results):
    """What the trials came to: on dev, which chose each one's best evaluation, and on test where there is one.

    Where several learning rates were tried, the trials are those of the one that the best trial has (paper, section
    4.1): what the other rates came to says nothing about the variant.

    Args:
        results: dict, `results.json` of a fine-tuning.

    Returns:
        dict of metric to list of float, one a seed, without the trials that diverged.

    Example:

    >>> best = {"learning_rate": 3e-5, "score": 0.5, "metrics": {"dev/f1": 0.5, "test/f1": 0.4}}
    >>> diverged = {"learning_rate": 3e-5, "score": None, "metrics": {}}
    >>> other_rate = {"learning_rate": 1e-3, "score": 0.1, "metrics": {"dev/f1": 0.1, "test/f1": 0.1}}
    >>> scores_of({"score": "dev/f1", "best": best, "trials": [other_rate, diverged, best]})
    {'dev/f1': [0.5], 'test/f1': [0.4]}
    """
    score, rate = results["score"], results["best"]["learning_rate"]
    of_test = f"test/{score.partition('/')[2]}"
    trials = [trial for trial in results["trials"] if trial["learning_rate"] == rate and trial["score"] is not None]
    scores = {score: [trial["score"] for trial in trials]}
    if any(of_test in trial["metrics"] for trial in trials):
        scores[of_test] = [trial["metrics"][of_test] for trial in trials]
    return scores


def _median_and_range(scores):
    if not scores:
        return "diverged"
    return f"{statistics.median(scores):.4f} ({min(scores):.4f} to {max(scores):.4f}, n={len(scores)})"
