"""Scores of pre-training, from sums over batches."""

import math

_PERPLEXITY_OF = "masked_lm"


def pretraining_metrics(sums):
    """Losses, accuracies and perplexity of pre-training.

    Args:
        sums: dict of name to float, added up over batches, as `BertPretrainer.metric_sums` gives them: of each loss
            term `<term>_loss` and `<term>_correct`, weighted sums over predictions, and `<term>_weight`, the sum of
            the weights.

    Returns:
        dict of name to float: of each term `<term>_loss`, in nats, and `<term>_accuracy`; and `perplexity`, e to the
        power of the masked words' loss. NaN where the weights sum to 0.

    Example:

    >>> pretraining_metrics({"masked_lm_loss": 4.0, "masked_lm_correct": 1.0, "masked_lm_weight": 2.0})
    {'masked_lm_loss': 2.0, 'masked_lm_accuracy': 0.5, 'perplexity': 7.38905609893065}
    """
    metrics = {}
    for term in (name.removesuffix("_weight") for name in sums if name.endswith("_weight")):
        weight = sums[f"{term}_weight"]
        metrics[f"{term}_loss"] = sums[f"{term}_loss"] / weight if weight else math.nan
        metrics[f"{term}_accuracy"] = sums[f"{term}_correct"] / weight if weight else math.nan
    try:
        metrics["perplexity"] = math.exp(metrics[f"{_PERPLEXITY_OF}_loss"])
    except OverflowError:
        metrics["perplexity"] = math.inf
    return metrics
