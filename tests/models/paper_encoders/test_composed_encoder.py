"""Behavior that all kinds of encoders share."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.freeze import freeze_layers, reinitialize_top_blocks
from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.models.span_labeler import BertSpanLabeler
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.step import TrainStep
from tests.models.composed import BILSTMS, COMPOSED, FEATURES, KINDS, make_encoder, random_inputs
from tests.tolerances import assert_close
from tests.toys import toy_encoder, toy_preprocessor, toy_reviews

ENCODERS = ("bidirectional", *KINDS)


def array(tensor):
    return np.array(tensor, "float32")


@pytest.mark.parametrize("kind", ENCODERS)
def test_padding_has_no_influence(kind):
    encoder, inputs = make_encoder(kind), random_inputs()
    real, outputs = inputs["padding_mask"] == 1, encoder(inputs)
    others = encoder({**inputs, "token_ids": np.where(real, inputs["token_ids"], 7)})
    np.testing.assert_array_equal(others["pooled_output"], outputs["pooled_output"])
    np.testing.assert_array_equal(array(others["sequence_output"])[real], array(outputs["sequence_output"])[real])
    padded = {name: np.pad(x, [(0, 0), (0, 3)], constant_values=name != "padding_mask") for name, x in inputs.items()}
    longer = encoder(padded)
    assert_close(longer["pooled_output"], outputs["pooled_output"], num_terms=64)
    found = array(longer["sequence_output"])[:, :10][real]
    assert_close(found, array(outputs["sequence_output"])[real], num_terms=64)
    for row, length in enumerate(inputs["padding_mask"].sum(axis=1)):
        alone = encoder({name: values[row : row + 1, :length] for name, values in inputs.items()})
        assert_close(alone["pooled_output"][0], outputs["pooled_output"][row], num_terms=64)


def changes(encoder, inputs, position, name):
    """The largest change of each row's outputs when the token at a position changes, without the last axis."""
    ids = inputs["token_ids"].copy()
    ids[:, position] = np.where(ids[:, position] == 6, 7, 6)
    difference = array(encoder({**inputs, "token_ids": ids})[name]) - array(encoder(inputs)[name])
    return np.abs(difference).max(axis=-1)


@pytest.mark.parametrize("kind", ENCODERS)
def test_the_pooled_output_depends_on_every_token_and_no_padding(kind):
    encoder, inputs = make_encoder(kind), random_inputs()
    depends = np.stack([changes(encoder, inputs, position, "pooled_output") for position in range(10)], axis=1) > 0
    np.testing.assert_array_equal(depends, inputs["padding_mask"] == 1)


@pytest.mark.parametrize("kind", ENCODERS)
def test_the_pooled_output_alone_has_the_same_values_and_gradients(kind):
    encoder = make_encoder(kind, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    results = []
    for pooled_only in (False, True):
        with tf.GradientTape() as tape:
            pooled = encoder(random_inputs(), training=True, pooled_only=pooled_only)["pooled_output"]
            loss = tf.reduce_sum(pooled**2)
        gradients = tape.gradient(loss, encoder.trainable_variables)
        results.append([pooled, *map(tf.convert_to_tensor, gradients)])
    assert_close(results[1], results[0], num_terms=4 * 10 * 16)


def test_the_pooled_output_alone_needs_one_position_of_the_highest_block(monkeypatch):
    encoder, shapes = toy_encoder(), []
    pool = encoder.pooler.call

    def record_shape(hidden, *arguments, **options):
        shapes.append(hidden.shape)
        return pool(hidden, *arguments, **options)

    monkeypatch.setattr(encoder.pooler, "call", record_shape)
    for options in ({}, {"pooled_only": True}, {"pooled_only": True, "return_hidden_states": True}):
        encoder(random_inputs(), **options)
    assert shapes == [(4, 10, 16), (4, 1, 16), (4, 10, 16)]


@pytest.mark.parametrize("kind", COMPOSED)
def test_every_token_sees_both_sides(kind):
    encoder, inputs = make_encoder(kind), {"token_ids": random_inputs()["token_ids"]}
    for position in (0, 5, 9):
        assert (changes(encoder, inputs, position, "sequence_output") > 0).all()


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16", "mixed_float16"])
def test_low_precision_is_close_and_a_row_of_padding_is_finite(kind, dtype):
    encoder, low = make_encoder(kind), make_encoder(kind, dtype=dtype)
    for one, two in zip(encoder.weights, low.weights, strict=True):
        two.assign(tf.cast(one, two.dtype))
    inputs = random_inputs()
    exact, outputs = encoder(inputs), low(inputs)
    real = inputs["padding_mask"] == 1
    for name, rows in {"pooled_output": ..., "sequence_output": real}.items():
        assert_close(array(outputs[name])[rows], array(exact[name])[rows], num_terms=4, dtype=low.compute_dtype)
    assert {keras.backend.standardize_dtype(output.dtype) for output in outputs.values()} == {low.compute_dtype}
    inputs["padding_mask"][1] = 0
    for values in (*encoder(inputs).values(), *low(inputs).values()):
        assert np.isfinite(array(values)).all()


@pytest.mark.parametrize("kind", COMPOSED)
def test_hidden_states_end_with_the_sequence_output(kind):
    outputs = make_encoder(kind)(random_inputs(), return_hidden_states=True)
    assert len(outputs["hidden_states"]) == 3 + BILSTMS.get(kind, 0)
    np.testing.assert_array_equal(outputs["hidden_states"][-1], outputs["sequence_output"])


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("with_pooler", [True, False])
def test_saves_and_loads_as_mixed_bfloat16_keras_file(tmp_path, kind, with_pooler):
    encoder, inputs = make_encoder(kind, with_pooler, dtype="mixed_bfloat16"), random_inputs()
    freeze_layers(encoder, "encoder")
    encoder(inputs, training=True)  # advances the states of the random numbers
    encoder.save(tmp_path / "encoder.keras")
    loaded = keras.models.load_model(tmp_path / "encoder.keras")
    assert loaded.get_config() == encoder.get_config()
    assert len(loaded.trainable_variables) == len(encoder.trainable_variables) < len(encoder.weights)
    for one, two in zip(encoder.variables, loaded.variables, strict=True):
        np.testing.assert_array_equal(one, two)
    for name, values in encoder(inputs).items():
        np.testing.assert_array_equal(array(loaded(inputs)[name]), array(values))
    assert ("pooled_output" in encoder(inputs)) == with_pooler


@pytest.mark.parametrize("kind", ENCODERS)
def test_tensorflow_checkpoints_keep_every_variable(tmp_path, kind):
    encoder, other = make_encoder(kind), make_encoder(kind)
    for variable in encoder.weights:
        variable.assign(variable + 1.0)
    encoder(random_inputs(), training=True)  # advances the states of the random numbers
    file = tf.train.Checkpoint(model=encoder).write(str(tmp_path / "checkpoint"))
    saved = [name for name, _ in tf.train.list_variables(file) if "VARIABLE_VALUE" in name]
    unused_seeds = 2 * BILSTMS.get(kind, 0)  # of LSTM cells, which have no dropout
    assert len(saved) == len(encoder.variables) - unused_seeds
    tf.train.Checkpoint(model=other).read(file).assert_consumed()
    for one, two in zip(encoder.variables, other.variables, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", COMPOSED)
def test_paths_are_unique(kind):
    encoder = make_encoder(kind)
    variables = encoder.variables_by_path("encoder/")
    assert {id(variable) for variable in variables.values()} == {id(weight) for weight in encoder.weights}
    assert len(variables) == len(encoder.weights)
    examples = {
        "two_directions": "encoder/right_to_left/pooler/bias",
        "left_to_right_bilstm": "encoder/bilstm_pooler/bias",
        FEATURES: "encoder/bilstm_1/forward/lstm_cell/bias",
    }
    assert examples[kind] in variables


@pytest.mark.parametrize("kind", COMPOSED)
def test_freezes_layers_of_every_part(kind):
    encoder = make_encoder(kind)
    freeze_layers(encoder, 1)
    for part in encoder.bert_encoders():
        trainable = [layer.trainable for layer in (part.embeddings, *part.transformer_blocks)]
        assert trainable == [False, False, kind != FEATURES]
    freeze_layers(encoder, "encoder")
    left = [path for path, variable in encoder.variables_by_path().items() if variable.trainable]
    assert all("bilstm" in path or "layer_pooling" in path for path in left)
    assert bool(left) == (kind in BILSTMS)
    with pytest.raises(ValueError, match="a number of blocks from 1 to 2; got 3"):
        freeze_layers(encoder, 3)
    encoder.trainable = False
    assert not encoder.trainable_variables
    encoder.trainable = True
    assert len(encoder.trainable_variables) == len(encoder.weights)


@pytest.mark.parametrize("kind", COMPOSED)
def test_reinitializes_top_blocks(kind):
    encoder = make_encoder(kind)
    if kind == FEATURES:
        with pytest.raises(ValueError, match="transformer_block_1 cannot be both frozen and re-initialized"):
            reinitialize_top_blocks(encoder, 1)
        return
    before = {path: array(variable) for path, variable in encoder.variables_by_path().items()}
    reinitialize_top_blocks(encoder, 1, seed=3)
    after = {path: array(variable) for path, variable in encoder.variables_by_path().items()}
    kernels = [path for path in before if path.endswith("/kernel") and "bilstm" not in path]
    changed = {path for path in kernels if not np.array_equal(before[path], after[path])}
    assert changed == {path for path in kernels if "transformer_block_1/" in path or "/pooler/" in path}
    if kind == "two_directions":
        path = "transformer_block_1/output/kernel"
        assert not np.array_equal(after[f"left_to_right/{path}"], after[f"right_to_left/{path}"])


@pytest.mark.parametrize("kind", COMPOSED)
def test_learning_rates_decay_by_layer(kind):
    encoder = make_encoder(kind)
    before = {path: array(variable) for path, variable in encoder.variables_by_path().items()}
    factors = encoder.learning_rate_factors(0.5)
    optimizer = BertAdamW(1.0, learning_rate_factors=factors, weight_decay=0.0, clip_norm=1e9)
    optimizer.build(encoder.trainable_variables)
    optimizer.apply([tf.ones(variable.shape) for variable in encoder.trainable_variables], encoder.trainable_variables)
    variables = {path: variable for path, variable in encoder.variables_by_path().items() if variable.trainable}
    steps = {path: before[path] - array(variable) for path, variable in variables.items()}
    full = next(step.ravel()[0] for path, step in steps.items() if "pooler/" in path)
    expected = {"embeddings/": 0.125, "transformer_block_0/": 0.25, "transformer_block_1/": 0.5}
    for path, step in steps.items():
        factor = next((factor for name, factor in expected.items() if name in path), 1.0)
        assert_close(step, factor * full, magnitude=full)


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMPOSED)
def test_a_classifier_learns_in_a_compiled_step_and_is_exported(tmp_path, kind):
    encoder = make_encoder(kind, num_hidden_layers=1)
    classifier = BertClassifier(encoder, ["negative", "positive"], toy_preprocessor(), seed=1)
    texts, labels = toy_reviews(64)
    batch = classifier.preprocessor(texts), classifier.encode_labels(labels)
    step = TrainStep(classifier, BertAdamW(3e-3), jit_compile=True, seed=1)
    batches = iter(tf.data.Dataset.from_tensors(batch).repeat())
    losses = [float(step.run(batches, first, 10)["last_loss_terms"]["loss"]) for first in (0, 10, 20)]
    assert losses[-1] < 0.5 * losses[0]
    expected = classifier.predict_probabilities(texts[:9])
    served = tf.saved_model.load(classifier.export(tmp_path / "1")).signatures["serving_default"]
    for number in (9, 1):
        answer = served(text=tf.constant(texts[:number]))
        assert_close(answer["probabilities"], expected[:number], num_terms=64)


@pytest.mark.parametrize("kind", COMPOSED)
def test_works_with_heads_and_rejects_texts(kind):
    inputs = random_inputs()
    spans = BertSpanLabeler(make_encoder(kind, with_pooler=False))(inputs)
    assert tuple(spans["start_logits"].shape) == (4, 10)
    questions = {name: values.reshape(2, 2, 10) for name, values in inputs.items()}
    assert tuple(BertMultipleChoice(make_encoder(kind))(questions).shape) == (2, 2)
    with pytest.raises(ValueError, match="with_pooler=True"):
        BertMultipleChoice(make_encoder(kind, with_pooler=False))
    with pytest.raises(ValueError, match="only a BertEncoder can be pre-trained"):
        BertPretrainer(make_encoder(kind))
    with pytest.raises(ValueError, match="a model is called on ids"):
        make_encoder(kind)(["a text"])
