import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models.multiple_choice import BertMultipleChoice, serving_signatures
from tests.models.golden import read_ids
from tests.tolerances import GOLDEN_LIMIT, assert_close
from tests.toys import toy_encoder, toy_preprocessor

GOLDEN_HEAD = "multiple_choice"
QUESTIONS = {
    "prompt": ["the film was", "a plot", ""],
    "choices": [["good", "bad , and dull", "fine"], ["the film .", "", "lovely"], ["bad", "a good film", "poor"]],
}


def toy_model(**arguments):
    return BertMultipleChoice(toy_encoder(num_hidden_layers=1), toy_preprocessor(), **{"seed": 1, **arguments})


def test_logits_equal_hugging_face(shared, golden, folder):
    ids = read_ids(shared / "golden" / "hf_tiny", prefix="mc_")
    model = BertMultipleChoice.from_checkpoint(folder, sequence_length=32)
    assert_close(model(ids), np.load(golden / "outputs.npz")["logits"], limit=GOLDEN_LIMIT)
    assert not model.checkpoint_report.random
    assert not model.checkpoint_report.unused


def test_scores_each_choice_independently_of_their_number():
    model = toy_model()
    logits = model.predict(QUESTIONS)
    for row, (prompt, choices) in enumerate(zip(QUESTIONS["prompt"], QUESTIONS["choices"], strict=True)):
        pooled = model.encoder(model.preprocessor(([prompt] * 3, choices)))["pooled_output"]
        scores = pooled @ model.score.weights[0].value + model.score.weights[1].value
        assert_close(logits[row], scores[:, 0], num_terms=64)
    assert model.choose(QUESTIONS, batch_size=2) == logits.argmax(axis=1).tolist()
    two = {"prompt": QUESTIONS["prompt"], "choices": [choices[:2] for choices in QUESTIONS["choices"]]}
    assert_close(model.predict(two), logits[:, :2], num_terms=64)


def test_loss_equals_numpy():
    logits = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    labels, weights = np.array([0, 3, 1], "int32"), np.array([1.0, 2.0, 0.0], "float32")
    model = toy_model()
    total, weight = model.loss_terms(labels, logits, weights)["loss"]
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    assert_close(total, -(log_probabilities[np.arange(3), labels] * weights).sum(), num_terms=12)
    assert weight == model.loss_weights(labels, weights)["loss"] == 3


def test_saves_and_loads_as_keras_file(tmp_path):
    model = toy_model(dropout=0.3)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model.predict(QUESTIONS), again.predict(QUESTIONS))
    assert again.dropout.rate == 0.3


def test_exported_questions_may_have_empty_or_fewer_choices(tmp_path):
    loaded = tf.saved_model.load(str(toy_model().export(tmp_path / "1")))
    all_empty = loaded.signatures["serving_default"](prompt=tf.constant(["a"]), choices=tf.constant([["", ""]]))
    assert_close(all_empty["probabilities"], [[0.5, 0.5]], num_terms=64)
    examples = []
    for columns in (
        {"prompt": [b"the film was"], "choices": [b"good", b"bad", b"fine"]},
        {"prompt": [b"a plot"], "choices": [b"the film .", b"bad"]},
    ):
        features = {k: tf.train.Feature(bytes_list=tf.train.BytesList(value=texts)) for k, texts in columns.items()}
        examples.append(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    answers = loaded.signatures["examples"](examples=tf.constant(examples))
    assert (answers["probabilities"][0].numpy() > 0).all()
    assert answers["probabilities"][1, 2] == 0


def test_serves_empty_requests_but_no_questions_without_choices():
    signatures, message = serving_signatures(toy_model()), "each question needs a choice, and there is none"
    for questions in (0, 1):
        texts = {"prompt": tf.fill([questions], "a"), "choices": tf.zeros([questions, 0], tf.string)}
        ids = dict.fromkeys(("token_ids", "segment_ids", "padding_mask"), tf.zeros([questions, 0, 5], tf.int32))
        for name, inputs in (("serving_default", texts), ("tokens", ids)):
            if questions:
                with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                    signatures[name][0](inputs)
            else:
                assert signatures[name][0](inputs)["choice"].shape == [0]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ({"prompt": ["a", "b"], "choices": [["a", "b"], ["a"]]}, None, "question 1 has"),
        ({"prompt": ["a"], "choices": [["ab"]]}, None, "at least two"),
        ({"prompt": ["a"], "choices": ["ab"]}, None, r"choices\[0\] must be a list of texts, got a single one"),
        (
            {"prompt": "ab", "choices": [["a", "b"], ["a", "b"]]},
            None,
            r"prompt must be a list of texts, got a single one; pass \['ab'\]",
        ),
        (
            {"prompt": ["a", "b"], "choices": [["a", "b"], [None, "b"]]},
            None,
            r"choices\[1\]\[0\] must be a string, got None",
        ),
        *((QUESTIONS, [0, y, 1], f"from 0 to 2; label 1 is {y}") for y in (3, -1, 0.9, float("nan"))),
        *((QUESTIONS, labels, r"from 0 to 2; got \[") for labels in (["0", "1", "2"], [0, None, 1])),
        (QUESTIONS, [0, 1], "y has 2"),
        (["a text"], None, "prompt and choices"),
    ],
)
def test_rejects_invalid_questions(x, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        toy_model().tokenize(x, y)


def test_rejects_invalid_calls(tmp_path):
    model = toy_model()
    with pytest.raises(ValueError, match="pooler"):
        BertMultipleChoice(toy_encoder(with_pooler=False))
    with pytest.raises(ValueError, match="long_texts='windows'"):
        BertMultipleChoice(toy_encoder(), toy_preprocessor(long_texts="windows"))
    with pytest.raises(ValueError, match="questions, choices, length"):
        model({"token_ids": np.array([[2, 3]])})
    model.compile()
    with pytest.raises(ValueError, match="no labels"):
        model.fit(QUESTIONS)
    with pytest.raises(ValueError, match="has no preprocessor"):
        BertMultipleChoice(toy_encoder()).export(tmp_path / "1")
