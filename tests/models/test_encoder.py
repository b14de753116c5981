import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models.encoder import ENCODER_SIZES, BertEncoder
from tests.models.composed import random_inputs
from tests.models.golden import read_ids
from tests.tolerances import GOLDEN_LIMIT, assert_close
from tests.toys import toy_encoder


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
def test_equals_hugging_face(shared, activation):
    golden = shared / "golden" / "hf_tiny"
    folder = golden / activation / "sequence_classification"
    encoder, expected = BertEncoder.from_checkpoint(folder), np.load(folder / "outputs.npz")
    outputs = encoder(read_ids(golden), return_hidden_states=True, return_attention_scores=True)
    assert_close(outputs["hidden_states"], [expected[f"hidden_state_{i}"] for i in range(3)], limit=GOLDEN_LIMIT)
    assert_close(outputs["attention_scores"], [expected[f"attention_{i}"] for i in range(2)], limit=GOLDEN_LIMIT)
    assert_close(outputs["pooled_output"], expected["pooled"], limit=GOLDEN_LIMIT)


def test_equals_hugging_face_on_minilm(shared, minilm):
    folder = shared / "golden" / "minilm"
    expected = np.load(folder / "outputs.npz")
    outputs = BertEncoder.from_checkpoint(minilm)(read_ids(folder), return_hidden_states=True)
    for i in (0, 3, 6):
        assert_close(outputs["hidden_states"][i], expected[f"hidden_state_{i}"], limit=10 * GOLDEN_LIMIT)  # up to 10
    assert_close(outputs["pooled_output"], expected["pooled"], limit=GOLDEN_LIMIT)


def test_mixed_bfloat16_is_close_on_minilm(shared, minilm):
    folder = shared / "golden" / "minilm"
    ids, expected = read_ids(folder), np.load(folder / "outputs.npz")["hidden_state_6"]
    outputs = BertEncoder.from_checkpoint(minilm, dtype="mixed_bfloat16")(ids)
    difference = np.array(outputs["sequence_output"], "float32") - expected
    # Of values up to 6.3; docs/results.md states what was measured.
    assert np.abs(difference[ids["padding_mask"] == 1]).max() < 0.1


@pytest.mark.parametrize(
    "size, parameters", [("tiny", 4_385_920), pytest.param("large", 335_141_888, marks=pytest.mark.slow)]
)
def test_published_sizes_have_the_published_number_of_parameters(size, parameters):
    # All blocks of large would be 1.3 GB: count those of one block, and what a second adds.
    one, two = (BertEncoder.from_size(size, num_hidden_layers=blocks).count_params() for blocks in (1, 2))
    assert one + (ENCODER_SIZES[size]["num_hidden_layers"] - 1) * (two - one) == parameters


def test_rejects_an_unknown_size():
    with pytest.raises(ValueError, match=r"'huge'; allowed are \['tiny', 'mini'"):
        BertEncoder.from_size("huge")
    assert list(ENCODER_SIZES) == ["tiny", "mini", "small", "medium", "base", "large"]


def test_packed_sequences_are_independent():
    encoder, generator = toy_encoder(), np.random.default_rng(0)
    a, b = generator.integers(0, 22, [1, 4]), generator.integers(0, 22, [1, 6])
    packed = encoder(
        {
            "token_ids": np.concatenate([a, b], 1),
            "position_ids": np.concatenate([np.arange(4), np.arange(6)])[None],
            "sequence_ids": np.repeat([0, 1], [4, 6])[None],
        }
    )["sequence_output"]
    assert_close(packed[:, :4], encoder({"token_ids": a})["sequence_output"], num_terms=64)
    assert_close(packed[:, 4:], encoder({"token_ids": b})["sequence_output"], num_terms=64)


def test_left_to_right_encoder_pools_the_last_token():
    encoder, inputs = toy_encoder(attention_direction="left_to_right"), random_inputs()
    outputs, last = encoder(inputs), inputs["padding_mask"].sum(axis=1) - 1
    last_states = np.array(outputs["sequence_output"])[np.arange(4), last]
    assert_close(outputs["pooled_output"], encoder.pooler(last_states[:, None]), num_terms=64)


def test_a_frozen_encoder_stays_frozen(tmp_path):
    encoder = toy_encoder(trainable=False)
    assert not encoder.trainable_variables
    encoder.save(tmp_path / "encoder.keras")
    assert not keras.models.load_model(tmp_path / "encoder.keras").trainable_variables
    encoder.trainable = True
    assert len(encoder.trainable_variables) == len(encoder.weights) == 5 + 2 * 12 + 2


@pytest.mark.slow
def test_works_in_a_functional_model_and_trains():
    inputs = {name: keras.Input([None], dtype="int32", name=name) for name in random_inputs()}
    outputs = keras.layers.Dense(1)(toy_encoder()(inputs)["pooled_output"])
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(1e-2), "mse", run_eagerly=True)
    history = model.fit(random_inputs(), np.array([0.0, 1.0, 2.0, 3.0]), epochs=10, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0] / 2


def test_seed_determines_initial_weights():
    one, two, other = toy_encoder(), toy_encoder(), toy_encoder(seed=2)
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.abs(np.array(one.weights[0]) - np.array(other.weights[0])).max() > 0


def test_an_encoder_without_pooler_has_no_pooled_output():
    encoder = toy_encoder(with_pooler=False)
    assert set(encoder(random_inputs())) == {"sequence_output"}
    assert not any("pooler" in path for path in encoder.variables_by_path())


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_attention_heads": 3}, "multiple of num_attention_heads"),
        ({"hidden_size": 0}, "hidden_size must be a positive integer, got 0"),
        ({"hidden_act": "mish"}, "hidden_act='mish'; allowed"),
        ({"attention_direction": "up"}, "attention_direction 'up'"),
    ],
)
def test_rejects_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        toy_encoder(**arguments)


@pytest.mark.parametrize(
    "inputs, message",
    [
        (["a text"], "called on ids, a dict with token_ids .*; got list. A BertPreprocessor converts"),
        ({"input_ids": np.zeros([1, 3])}, r"called on ids.*got a dict with \['input_ids'\]"),
        ({"token_ids": np.array([["a"]])}, "got token_ids that are strings"),
        ({"token_ids": np.zeros([1, 3], "int32"), "mask": np.zeros([1, 3])}, r"unknown inputs \['mask'\]"),
        ({"token_ids": np.zeros([3], "int32")}, r"\[batch, length\], got \(3,\)"),
        ({"token_ids": np.zeros([1, 33], "int32")}, "33 tokens long, but the model has positions for 32"),
    ],
)
def test_rejects_invalid_inputs(inputs, message):
    with pytest.raises(ValueError, match=message):
        toy_encoder()(inputs)


@pytest.mark.parametrize(
    "name, values, message",
    [
        ("token_ids", [[2, -1, 3]], "token_ids must be from 0 to .*; received values from -1 to 3"),
        ("token_ids", [[2, 1000, 3]], "token_ids must be from 0 to .*; received values from 2 to 1000"),
        ("segment_ids", [[0, 9, 1]], "segment_ids must be from 0 to 1; received values from 0 to 9"),
        ("padding_mask", [[1, 7, 0]], "padding_mask must be from 0 to 1"),
        ("position_ids", [[0, 1, 32]], "position_ids must be from 0 to 31"),
    ],
)
def test_rejects_ids_out_of_range(name, values, message):
    inputs = {"token_ids": np.array([[2, 4, 3]]), name: np.array(values)}
    for convert in (np.asarray, keras.ops.convert_to_tensor, list):
        with pytest.raises(ValueError, match=message):
            toy_encoder()({key: convert(value) for key, value in inputs.items()})


@pytest.mark.parametrize("token_id", [-1, -5, 10**6])
def test_a_graph_rejects_token_ids_without_an_embedding(token_id):
    encoder = toy_encoder()
    encode = tf.function(lambda ids: encoder({"token_ids": ids})["pooled_output"], autograph=False)
    encode(tf.constant([[2, 4, 3]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        encode(tf.constant([[2, token_id, 3]]))
