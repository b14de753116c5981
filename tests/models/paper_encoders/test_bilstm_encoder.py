import numpy as np
import pytest

from keras_bert.models.paper_encoders.bilstm_encoder import BiLstmEncoder
from tests.models.composed import make_encoder
from tests.tolerances import assert_close
from tests.toys import toy_encoder


def test_equals_the_recurrence_written_out():
    encoder, ids = make_encoder("left_to_right_bilstm"), np.array([[2, 6, 9, 8, 3]])
    hidden, outputs = np.array(encoder.encoder({"token_ids": ids})["sequence_output"])[0], encoder({"token_ids": ids})
    expected = []
    for lstm, order in ((encoder.bilstms[0].forward, range(5)), (encoder.bilstms[0].backward, range(4, -1, -1))):
        kernel, recurrent, bias = (np.array(weight) for weight in lstm.weights)
        state, memory, states = np.zeros(8), np.zeros(8), {}
        for position in order:
            in_, forget, new, out = np.split(hidden[position] @ kernel + state @ recurrent + bias, 4)
            memory = memory / (1 + np.exp(-forget)) + np.tanh(new) / (1 + np.exp(-in_))
            state = states[position] = np.tanh(memory) / (1 + np.exp(-out))
        expected.append(np.stack([states[position] for position in range(5)]))
    assert_close(outputs["sequence_output"][0], np.concatenate(expected, axis=1), num_terms=5 * 24)
    final = np.concatenate([expected[0][-1], expected[1][0]])
    kernel, bias = (np.array(weight) for weight in encoder.bilstm_pooler.weights)
    assert_close(outputs["pooled_output"][0], np.tanh(final @ kernel + bias), num_terms=5 * 24)


def test_initial_weights_differ_between_directions_and_repeat_with_the_seed():
    weights = [make_encoder("left_to_right_bilstm").bilstms[0].weights for _ in range(2)]
    for one, two in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, two)
    for one, two in zip(weights[0][:2], weights[0][3:5], strict=True):
        assert np.abs(np.array(one) - np.array(two)).max() > 0.1


def test_outputs_are_two_units_wide():
    encoder = BiLstmEncoder(toy_encoder(with_pooler=False), units=5)
    outputs = encoder({"token_ids": np.array([[2, 3]])})
    assert encoder.hidden_size == outputs["sequence_output"].shape[-1] == outputs["pooled_output"].shape[-1] == 10


def test_rejects_invalid_arguments():
    with pytest.raises(ValueError, match="with with_pooler=False"):
        BiLstmEncoder(toy_encoder())
    with pytest.raises(ValueError, match="encoder must be a BertEncoder, got <TwoDirectionEncoder"):
        BiLstmEncoder(make_encoder("two_directions", with_pooler=False))
    with pytest.raises(ValueError, match="units must be a positive integer, got 0"):
        BiLstmEncoder(toy_encoder(with_pooler=False), units=0)
    with pytest.raises(ValueError, match="without sequence_ids"):
        make_encoder("left_to_right_bilstm")({"token_ids": np.array([[2, 3]]), "sequence_ids": np.array([[0, 1]])})
