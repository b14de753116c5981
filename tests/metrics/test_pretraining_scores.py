import math

import pytest

from keras_bert.metrics.pretraining_scores import pretraining_metrics

MASKED_LM = {"masked_lm_loss": 6.0, "masked_lm_correct": 1.0, "masked_lm_weight": 4.0}
NEXT_SENTENCE = {"next_sentence_loss": 1.0, "next_sentence_correct": 3.0, "next_sentence_weight": 5.0}


def test_losses_and_accuracies_are_weighted_means():
    assert pretraining_metrics({**MASKED_LM, **NEXT_SENTENCE}) == {
        "masked_lm_loss": 1.5,
        "masked_lm_accuracy": 0.25,
        "next_sentence_loss": 0.2,
        "next_sentence_accuracy": 0.6,
        "perplexity": pytest.approx(math.exp(1.5)),
    }
    assert set(pretraining_metrics(MASKED_LM)) == {"masked_lm_loss", "masked_lm_accuracy", "perplexity"}


def test_no_predictions_give_nan_and_a_large_loss_infinite_perplexity():
    found = pretraining_metrics({**dict.fromkeys(MASKED_LM, 0.0), **NEXT_SENTENCE})
    assert all(math.isnan(found[name]) for name in ("masked_lm_loss", "masked_lm_accuracy", "perplexity"))
    assert found["next_sentence_loss"] == 0.2
    for loss in (1e4, math.inf):
        assert pretraining_metrics({**MASKED_LM, "masked_lm_loss": 4 * loss})["perplexity"] == math.inf
