"""The table of an experiment, from the results of its runs."""

import statistics

from keras_bert.io.atomic_write import atomic_text_file, write_json


def format_table(rows):
    """Formats rows, {column: cell}, as a Markdown table; missing cells are "-".

    >>> print(format_table([{"Pre-training": "BERT", "sst2": "0.9"}]), end="")
    | Pre-training | sst2 |
    |---|---|
    | BERT | 0.9 |
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row.get(column, "-")) for column in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def write_table(folder, rows, records):
    """Writes or updates the table of an experiment, `table.md`, and the records behind it, `table.json`."""
    with atomic_text_file(folder / "table.md", overwrite=True) as file:
        file.write(format_table(rows))
    write_json(folder / "table.json", records, overwrite=True)


def make_row(variant, pretraining, fine_tuning):
    """Returns {column: cell} of a variant, from the `results.json` of its pre-training, or None, and of its tasks."""
    row = dict(variant.row)
    if pretraining is not None:
        row |= {"updates": f"{pretraining['updates']:,}", "minutes": f"{pretraining['seconds'] / 60:.1f}"}
        if "eval/perplexity" in pretraining["metrics"]:
            row["LM perplexity"] = f"{pretraining['metrics']['eval/perplexity']:.4g}"
    for task, results in fine_tuning.items():
        for metric, scores in collect_scores(results).items():
            row[f"{task} ({metric})"] = _format_scores(scores)
    return row


def collect_scores(results):
    """Returns {metric: scores of all seeds} on dev, and on test if there is one, for the best learning rate.

    Trials that diverged are left out. Trials with other learning rates say nothing about the variant (paper, section
    4.1).
    """
    metric, rate = results["score"], results["best"]["learning_rate"]
    test_metric = f"test/{metric.partition('/')[2]}"
    trials = [trial for trial in results["trials"] if trial["learning_rate"] == rate and trial["score"] is not None]
    scores = {metric: [trial["score"] for trial in trials]}
    if any(test_metric in trial["metrics"] for trial in trials):
        scores[test_metric] = [trial["metrics"][test_metric] for trial in trials]
    return scores


def _format_scores(scores):
    if not scores:
        return "diverged"
    return f"{statistics.median(scores):.4f} ({min(scores):.4f} to {max(scores):.4f}, n={len(scores)})"
