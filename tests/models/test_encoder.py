import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models.encoder import ENCODER_SIZES, BertEncoder

TINY = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 12,
    "seed": 1,
}


def random_inputs(batch=3, length=10):
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, length, batch)
    return {
        "token_ids": generator.integers(0, 50, [batch, length]).astype("int32"),
        "segment_ids": generator.integers(0, 2, [batch, length]).astype("int32"),
        "padding_mask": (np.arange(length) < lengths[:, None]).astype("int32"),
    }


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
def test_equals_hugging_face(shared, activation):
    folder = shared / "golden" / "hf_tiny"
    inputs, expected = (
        np.load(folder / "inputs.npz"),
        np.load(folder / activation / "sequence_classification" / "outputs.npz"),
    )
    encoder = BertEncoder.from_checkpoint(folder / activation / "sequence_classification")
    ids = {
        "token_ids": inputs["input_ids"],
        "segment_ids": inputs["token_type_ids"],
        "padding_mask": inputs["attention_mask"],
    }
    outputs = encoder(ids, return_hidden_states=True, return_attention_scores=True)
    for i in range(3):
        np.testing.assert_allclose(outputs["hidden_states"][i], expected[f"hidden_state_{i}"], atol=1e-5)
    for i in range(2):
        np.testing.assert_allclose(outputs["attention_scores"][i], expected[f"attention_{i}"], atol=1e-5)
    np.testing.assert_allclose(outputs["pooled_output"], expected["pooled"], atol=1e-5)


def test_equals_hugging_face_on_minilm(shared, minilm):
    folder = shared / "golden" / "minilm"
    inputs, expected = np.load(folder / "inputs.npz"), np.load(folder / "outputs.npz")
    encoder = BertEncoder.from_checkpoint(minilm)
    ids = {
        "token_ids": inputs["input_ids"],
        "segment_ids": inputs["token_type_ids"],
        "padding_mask": inputs["attention_mask"],
    }
    outputs = encoder(ids, return_hidden_states=True)
    for i in (0, 3, 6):
        np.testing.assert_allclose(outputs["hidden_states"][i], expected[f"hidden_state_{i}"], atol=1e-4)
    np.testing.assert_allclose(outputs["pooled_output"], expected["pooled"], atol=1e-4)


def test_mixed_bfloat16_is_near_on_minilm(shared, minilm):
    folder = shared / "golden" / "minilm"
    inputs, expected = np.load(folder / "inputs.npz"), np.load(folder / "outputs.npz")
    encoder = BertEncoder.from_checkpoint(minilm, dtype="mixed_bfloat16")
    ids = {
        "token_ids": inputs["input_ids"],
        "segment_ids": inputs["token_type_ids"],
        "padding_mask": inputs["attention_mask"],
    }
    difference = np.array(encoder(ids)["sequence_output"], "float32") - expected["hidden_state_6"]
    # Of values up to 6.3; docs/results.md states what was measured.
    assert np.abs(difference[ids["padding_mask"] == 1]).max() < 0.1


@pytest.mark.parametrize(
    "size, parameters", [("tiny", 4_385_920), pytest.param("large", 335_141_888, marks=pytest.mark.slow)]
)
def test_published_sizes(size, parameters):
    # All blocks of large would be 1.3 GB: counted are those of one block, and what a second adds.
    one, two = (BertEncoder.from_size(size, num_hidden_layers=blocks).count_params() for blocks in (1, 2))
    assert one + (ENCODER_SIZES[size]["num_hidden_layers"] - 1) * (two - one) == parameters


def test_unknown_size():
    with pytest.raises(ValueError, match=r"'huge'; allowed are \['tiny', 'mini'"):
        BertEncoder.from_size("huge")
    assert list(ENCODER_SIZES) == ["tiny", "mini", "small", "medium", "base", "large"]


def test_padding_does_not_change_tokens():
    encoder, inputs = BertEncoder(**TINY), random_inputs()
    other = dict(inputs, token_ids=np.where(inputs["padding_mask"] == 1, inputs["token_ids"], 7))
    longer = {name: np.pad(values, [(0, 0), (0, 2)]) for name, values in inputs.items()}
    real = inputs["padding_mask"] == 1
    expected = np.array(encoder(inputs)["sequence_output"])[real]
    np.testing.assert_array_equal(np.array(encoder(other)["sequence_output"])[real], expected)
    np.testing.assert_allclose(np.array(encoder(longer)["sequence_output"])[:, :10][real], expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_row_of_padding_is_finite(dtype):
    inputs = random_inputs()
    inputs["padding_mask"][1] = 0
    outputs = BertEncoder(**TINY, dtype=dtype)(inputs)
    assert np.isfinite(np.array(outputs["sequence_output"], "float32")).all()
    assert np.isfinite(np.array(outputs["pooled_output"], "float32")).all()


def test_packed_sequences_are_independent():
    encoder, generator = BertEncoder(**TINY), np.random.default_rng(0)
    a, b = generator.integers(0, 50, [1, 4]), generator.integers(0, 50, [1, 6])
    packed = encoder(
        {
            "token_ids": np.concatenate([a, b], 1),
            "position_ids": np.concatenate([np.arange(4), np.arange(6)])[None],
            "sequence_ids": np.repeat([0, 1], [4, 6])[None],
        }
    )["sequence_output"]
    np.testing.assert_allclose(packed[:, :4], encoder({"token_ids": a})["sequence_output"], atol=1e-6)
    np.testing.assert_allclose(packed[:, 4:], encoder({"token_ids": b})["sequence_output"], atol=1e-6)


@pytest.mark.parametrize("direction, unchanged", [("left_to_right", slice(0, 4)), ("right_to_left", slice(5, None))])
def test_attention_direction(direction, unchanged):
    encoder = BertEncoder(**TINY, attention_direction=direction)
    ids = random_inputs()["token_ids"]
    changed = ids.copy()
    changed[:, 4] = (ids[:, 4] + 1) % 50
    before, after = (np.array(encoder({"token_ids": x})["sequence_output"]) for x in (ids, changed))
    np.testing.assert_array_equal(before[:, unchanged], after[:, unchanged])
    assert np.abs(before - after).max() > 1e-3


def seen_by_pooled_output(encoder, inputs):
    """bool [batch, length]: the tokens whose change changes the row's pooled output."""
    before, (batch, length) = np.array(encoder(inputs)["pooled_output"]), inputs["token_ids"].shape
    seen = np.zeros([batch, length], bool)
    for place in range(length):
        ids = inputs["token_ids"].copy()
        ids[:, place] = (ids[:, place] + 1) % 50
        after = np.array(encoder({**inputs, "token_ids": ids})["pooled_output"])
        seen[:, place] = np.abs(after - before).max(axis=1) > 0
    return seen


@pytest.mark.parametrize("direction", ["bidirectional", "left_to_right", "right_to_left"])
def test_the_pooled_output_sees_all_tokens_and_no_padding(direction):
    encoder, inputs = BertEncoder(**TINY, attention_direction=direction), random_inputs()
    np.testing.assert_array_equal(seen_by_pooled_output(encoder, inputs), inputs["padding_mask"] == 1)


def test_the_pooled_output_from_left_to_right_is_of_the_last_token():
    encoder, inputs = BertEncoder(**TINY, attention_direction="left_to_right"), random_inputs()
    outputs, last = encoder(inputs), inputs["padding_mask"].sum(axis=1) - 1
    of_last = np.array(outputs["sequence_output"])[np.arange(3), last]
    np.testing.assert_allclose(outputs["pooled_output"], encoder.pooler(of_last[:, None]), atol=1e-6)
    longer = {name: np.pad(values, [(0, 0), (0, 2)]) for name, values in inputs.items()}
    np.testing.assert_allclose(encoder(longer)["pooled_output"], outputs["pooled_output"], atol=1e-6)


def test_bfloat16():
    exact = BertEncoder(**TINY)(random_inputs())["sequence_output"]
    low = BertEncoder(**TINY, dtype="mixed_bfloat16")(random_inputs())["sequence_output"]
    assert low.dtype == "bfloat16"
    np.testing.assert_allclose(np.array(low, "float32"), exact, atol=0.1)


def test_keras_file_keeps_every_variable(tmp_path):
    encoder = BertEncoder(**TINY, dtype="mixed_bfloat16", name="mine")
    encoder({"token_ids": np.ones([1, 3], "int32")}, training=True)  # moves the states of the random numbers on
    encoder.save(tmp_path / "encoder.keras")
    loaded = keras.models.load_model(tmp_path / "encoder.keras")
    assert loaded.get_config() == encoder.get_config()
    assert len(loaded.weights) == len(encoder.weights) == 5 + 2 * 12 + 2
    assert len(loaded.variables) == len(encoder.variables) == len(encoder.weights) + 7
    for one, two in zip(encoder.variables, loaded.variables, strict=True):
        np.testing.assert_array_equal(one, two)


def test_tensorflow_checkpoint_keeps_every_variable(tmp_path):
    encoder, other = BertEncoder(**TINY), BertEncoder(**{**TINY, "seed": 2})
    file = tf.train.Checkpoint(model=encoder).write(str(tmp_path / "checkpoint"))
    saved = [name for name, _ in tf.train.list_variables(file) if "VARIABLE_VALUE" in name]
    assert len(saved) == len(encoder.variables)
    encoder({"token_ids": np.ones([1, 3], "int32")}, training=True)  # moves the states of the random numbers on
    file = tf.train.Checkpoint(model=encoder).write(file)
    tf.train.Checkpoint(model=other).read(file).assert_consumed()
    for one, two in zip(encoder.variables, other.variables, strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_frozen_encoder_stays_frozen(tmp_path):
    encoder = BertEncoder(**TINY, trainable=False)
    assert not encoder.trainable_variables
    encoder.save(tmp_path / "encoder.keras")
    assert not keras.models.load_model(tmp_path / "encoder.keras").trainable_variables
    encoder.trainable = True
    assert len(encoder.trainable_variables) == 31


@pytest.mark.slow
def test_works_in_a_functional_model_and_trains():
    inputs = {name: keras.Input([None], dtype="int32", name=name) for name in random_inputs()}
    outputs = keras.layers.Dense(1)(BertEncoder(**TINY)(inputs)["pooled_output"])
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    history = model.fit(random_inputs(), np.array([0.0, 1.0, 2.0]), epochs=10, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0] / 2


def test_seed_determines_initial_weights():
    one, two, other = BertEncoder(**TINY), BertEncoder(**TINY), BertEncoder(**{**TINY, "seed": 2})
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.abs(np.array(one.weights[0]) - np.array(other.weights[0])).max() > 0


def test_without_pooler():
    encoder = BertEncoder(**TINY, with_pooler=False)
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
        BertEncoder(**{**TINY, **arguments})


@pytest.mark.parametrize(
    "inputs, message",
    [
        (["a text"], "called on ids, a dict with token_ids .*; got list. A BertPreprocessor converts"),
        ({"input_ids": np.zeros([1, 3])}, r"called on ids.*got a dict with \['input_ids'\]"),
        ({"token_ids": np.array([["a"]])}, "got token_ids that are strings"),
        ({"token_ids": np.zeros([1, 3], "int32"), "mask": np.zeros([1, 3])}, r"unknown inputs \['mask'\]"),
        ({"token_ids": np.zeros([3], "int32")}, r"\[batch, length\], got \(3,\)"),
        ({"token_ids": np.zeros([1, 13], "int32")}, "13 tokens long, but the model has positions for 12"),
    ],
)
def test_rejects_invalid_inputs(inputs, message):
    with pytest.raises(ValueError, match=message):
        BertEncoder(**TINY)(inputs)
