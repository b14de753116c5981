import numpy as np
import pytest

from keras_bert.models.paper_encoders.two_direction_encoder import TwoDirectionEncoder
from tests.models.composed import make_encoder, random_inputs
from tests.toys import toy_encoder


def test_outputs_are_concatenated():
    encoder, inputs = make_encoder("two_directions"), random_inputs()
    outputs = encoder(inputs, return_hidden_states=True)
    one, two = (part(inputs, return_hidden_states=True) for part in encoder.bert_encoders())
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_array_equal(outputs[name], np.concatenate([one[name], two[name]], axis=-1))
    for joined, *parts in zip(outputs["hidden_states"], one["hidden_states"], two["hidden_states"], strict=True):
        np.testing.assert_array_equal(joined, np.concatenate(parts, axis=-1))
    assert encoder.hidden_size == outputs["sequence_output"].shape[-1] == 32


def test_each_half_sees_its_side():
    encoder, ids = make_encoder("two_directions"), random_inputs()["token_ids"]
    changed = ids.copy()
    changed[:, 4] = np.where(ids[:, 4] == 6, 7, 6)
    before, after = (np.array(encoder({"token_ids": x})["sequence_output"]) for x in (ids, changed))
    differs = np.abs(before - after).reshape(4, 10, 2, 16).max(axis=(0, 3)) > 0
    np.testing.assert_array_equal(differs[:, 0], np.arange(10) >= 4)
    np.testing.assert_array_equal(differs[:, 1], np.arange(10) <= 4)


def test_rejects_encoders_that_do_not_match():
    left, right = (toy_encoder(attention_direction=name) for name in ("left_to_right", "right_to_left"))
    with pytest.raises(ValueError, match=r"left_to_right must be an encoder with .*, got 'right_to_left'"):
        TwoDirectionEncoder(right, left)
    with pytest.raises(ValueError, match=r"right_to_left must be an encoder with .*, got 'bidirectional'"):
        TwoDirectionEncoder(left, toy_encoder())
    for arguments in ({"num_hidden_layers": 1}, {"dtype": "bfloat16"}, {"with_pooler": False}):
        other = toy_encoder(attention_direction="right_to_left", **arguments)
        with pytest.raises(ValueError, match=f"these differ: {next(iter(arguments))}"):
            TwoDirectionEncoder(left, other)
