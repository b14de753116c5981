"""Scores of pre-training are means by weight, and say where there is nothing to score."""

import math

import pytest

from keras_bert.metrics.pretraining_scores import pretraining_metrics

MASKED = {"masked_lm_loss": 6.0, "masked_lm_correct": 1.0, "masked_lm_weight": 4.0}
NEXT = {"next_sentence_loss": 1.0, "next_sentence_correct": 3.0, "next_sentence_weight": 5.0}


def test_both_terms():
    assert pretraining_metrics({**MASKED, **NEXT}) == {
        "masked_lm_loss": 1.5,
        "masked_lm_accuracy": 0.25,
        "next_sentence_loss": 0.2,
        "next_sentence_accuracy": 0.6,
        "perplexity": pytest.approx(math.exp(1.5)),
    }


def test_masked_words_alone():
    assert set(pretraining_metrics(MASKED)) == {"masked_lm_loss", "masked_lm_accuracy", "perplexity"}


def test_nothing_was_predicted():
    found = pretraining_metrics({**dict.fromkeys(MASKED, 0.0), **NEXT})
    assert all(math.isnan(found[name]) for name in ("masked_lm_loss", "masked_lm_accuracy", "perplexity"))
    assert found["next_sentence_loss"] == 0.2


@pytest.mark.parametrize("loss", [1e4, math.inf])
def test_a_loss_beyond_any_perplexity(loss):
    assert pretraining_metrics({**MASKED, "masked_lm_loss": 4 * loss})["perplexity"] == math.inf
