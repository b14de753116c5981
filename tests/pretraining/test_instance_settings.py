import json

import pytest

from keras_bert.pretraining.instance_settings import InstanceSettings


def test_the_defaults_are_those_of_the_original():
    expected = {"sequence_length": 128, "max_predictions": 20, "seed": 12345, "next_sentence": "nsp"}
    expected |= {"short_seq_prob": 0.1, "fill_to_length": True, "masked_lm_prob": 0.15, "do_whole_word_mask": False}
    expected |= {"mask_token_rate": 0.8, "random_token_rate": 0.1}
    assert json.loads(json.dumps(InstanceSettings().to_dict())) == expected


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"sequence_length": 4}, r"sequence_length must be at least 5, got 4"),
        ({"max_predictions": 0}, r"max_predictions must be at least 1, got 0"),
        ({"next_sentence": "next"}, r"next_sentence must be one of nsp, sop, none; got 'next'"),
        ({"short_seq_prob": 1.1}, r"short_seq_prob must be at most 1.0, got 1.1"),
        ({"short_seq_prob": float("nan")}, r"short_seq_prob .* got nan"),
        ({"masked_lm_prob": 0}, r"masked_lm_prob must be above 0 and at most 1, got 0"),
        ({"masked_lm_prob": 15}, r"masked_lm_prob must be above 0 and at most 1, got 15"),
        ({"mask_token_rate": 0.9, "random_token_rate": 0.2}, r"sum to at most 1, got 0.9 and 0.2"),
        ({"random_token_rate": -0.1}, r"random_token_rate must be at least 0.0, got -0.1"),
        ({"next_sentence": "none", "fill_to_length": False}, r"fill_to_length=False .* has no pairs"),
    ],
)
def test_invalid_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        InstanceSettings(**arguments)


def test_limits_of_the_ranges_are_allowed():
    least = {"sequence_length": 5, "max_predictions": 1, "short_seq_prob": 0, "mask_token_rate": 0}
    most = {"short_seq_prob": 1, "masked_lm_prob": 1, "mask_token_rate": 0.9, "random_token_rate": 0.1}
    for values in (least, most):
        assert values.items() <= InstanceSettings(**values).to_dict().items()


def test_special_tokens_are_subtracted_from_the_length():
    tasks = ("nsp", "sop", "none")
    found = [InstanceSettings(sequence_length=64, next_sentence=task).max_text_tokens for task in tasks]
    assert found == [61, 61, 62]
