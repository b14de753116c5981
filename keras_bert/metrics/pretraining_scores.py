"""Scores of pre-training from sums over batches."""

import math
from collections.abc import Mapping


def pretraining_metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Computes losses (in nats), accuracies and the perplexity of masked tokens from `BertPretrainer.metric_sums`.

    `sums` has for each loss term the weighted sums `<term>_loss` and `<term>_correct`, and `<term>_weight`, the sum of
    the weights. A term whose weights sum to 0 has NaN.
    """
    metrics = {}
    for term in (name.removesuffix("_weight") for name in sums if name.endswith("_weight")):
        weight = sums[f"{term}_weight"]
        metrics[f"{term}_loss"] = sums[f"{term}_loss"] / weight if weight else math.nan
        metrics[f"{term}_accuracy"] = sums[f"{term}_correct"] / weight if weight else math.nan
    try:
        metrics["perplexity"] = math.exp(metrics["masked_lm_loss"])
    except OverflowError:
        metrics["perplexity"] = math.inf
    return metrics
