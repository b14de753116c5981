import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models.multiple_choice import BertMultipleChoice, serving_signatures
from tests.toys import GOOD_WORDS, OTHER_WORDS, toy_encoder, toy_preprocessor

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(195))]
QUESTIONS = {
    "prompt": ["the film was", "a plot", ""],
    "choices": [["good", "bad , and dull", "fine"], ["the film .", "", "lovely"], ["bad", "a good film", "poor"]],
}


@pytest.fixture(params=["gelu", "gelu_new"])
def golden(shared, request):
    return shared / "golden" / "hf_tiny" / request.param / "multiple_choice"


@pytest.fixture
def folder(golden, tmp_path):
    """A Hugging Face folder with a layer for choices and a vocabulary of 200 words."""
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(golden / name, tmp_path / name)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return tmp_path


def toy_model(**arguments):
    return BertMultipleChoice(toy_encoder(num_hidden_layers=1), toy_preprocessor(), **{"seed": 1, **arguments})


def test_logits_equal_hugging_face(shared, golden, folder):
    inputs = np.load(shared / "golden" / "hf_tiny" / "inputs.npz")
    model = BertMultipleChoice.from_checkpoint(folder, sequence_length=32)
    ids = {
        "token_ids": inputs["mc_input_ids"],
        "segment_ids": inputs["mc_token_type_ids"],
        "padding_mask": inputs["mc_attention_mask"],
    }
    np.testing.assert_allclose(model(ids), np.load(golden / "outputs.npz")["logits"], atol=1e-5)
    assert not model.checkpoint_report.random
    assert not model.checkpoint_report.unused


def test_a_checkpoint_comes_back(folder, tmp_path):
    model = BertMultipleChoice.from_checkpoint(folder, sequence_length=32, dropout=0.25)
    again = BertMultipleChoice.from_checkpoint(model.save_checkpoint(tmp_path / "again"), sequence_length=32)
    variables = again.variables_by_path()
    for path, variable in model.variables_by_path().items():
        np.testing.assert_array_equal(variable, variables[path])
    assert not again.checkpoint_report.random
    assert again.dropout.rate == 0.25


def test_each_choice_is_scored_by_itself():
    model = toy_model()
    logits = model.predict(QUESTIONS)
    for row, (prompt, choices) in enumerate(zip(QUESTIONS["prompt"], QUESTIONS["choices"], strict=True)):
        pairs = model.preprocessor(([prompt] * 3, choices))
        pooled = model.encoder(pairs)["pooled_output"]
        scores = pooled @ model.score.weights[0].value + model.score.weights[1].value
        np.testing.assert_allclose(logits[row], scores[:, 0], atol=1e-5)
    assert model.choose(QUESTIONS, batch_size=2) == logits.argmax(axis=1).tolist()


def test_any_number_of_choices():
    model = toy_model()
    two = {"prompt": QUESTIONS["prompt"], "choices": [choices[:2] for choices in QUESTIONS["choices"]]}
    np.testing.assert_allclose(model.predict(two), model.predict(QUESTIONS)[:, :2], atol=1e-5)


def test_the_loss_is_that_of_numpy():
    logits = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    labels, weights = np.array([0, 3, 1], "int32"), np.array([1.0, 2.0, 0.0], "float32")
    model = toy_model()
    total, weight = model.loss_terms(labels, logits, weights)["loss"]
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(total, -(log_probabilities[np.arange(3), labels] * weights).sum(), rtol=1e-6)
    assert weight == model.loss_weights(labels, weights)["loss"] == 3


def telling_questions(number, seed=0):
    """Questions of which the right choice is the one with a good word."""
    generator = np.random.default_rng(seed)
    prompts, choices, labels = [], [], []
    for _ in range(number):
        label = int(generator.integers(3))
        prompts.append(" ".join(generator.choice(OTHER_WORDS, generator.integers(1, 4))))
        words = [list(generator.choice(OTHER_WORDS, generator.integers(1, 4))) for _ in range(3)]
        words[label].append(str(generator.choice(GOOD_WORDS)))
        choices.append([" ".join(choice) for choice in words])
        labels.append(label)
    return {"prompt": prompts, "choices": choices}, labels


@pytest.mark.slow
def test_keras_fits_it():
    model = toy_model()
    model.compile(keras.optimizers.Adam(3e-3))
    history = model.fit(
        *telling_questions(64), epochs=12, verbose=0, batch_size=16, validation_data=telling_questions(9, 1)
    )
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]
    assert history.history["val_accuracy"][-1] > 0.8
    questions, labels = telling_questions(20, 2)
    assert np.mean(np.equal(model.choose(questions), labels)) > 0.8
    results = model.evaluate(questions, labels, batch_size=7, verbose=0, return_dict=True)
    assert results["accuracy"] == pytest.approx(np.mean(np.equal(model.choose(questions), labels)))


def test_a_saved_model_comes_back(tmp_path):
    model = toy_model(dropout=0.3)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model.predict(QUESTIONS), again.predict(QUESTIONS))
    assert again.dropout.rate == 0.3


def test_the_export_chooses_alike(tmp_path):
    model = toy_model()
    loaded = tf.saved_model.load(str(model.export(tmp_path / "1")))
    prompts, choices = tf.constant(QUESTIONS["prompt"]), tf.constant(QUESTIONS["choices"])
    served = loaded.signatures["serving_default"](prompt=prompts, choices=choices)
    logits = model.predict(QUESTIONS)
    logits[1, 1] = -np.inf  # an empty choice beside others that are not
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(served["probabilities"], expected, atol=1e-5)
    assert served["choice"].numpy().tolist() == expected.argmax(axis=1).tolist()
    texts = [choices[row][choice].numpy() for row, choice in enumerate(served["choice"].numpy())]
    assert served["text"].numpy().tolist() == texts
    all_empty = loaded.signatures["serving_default"](prompt=prompts[:1], choices=tf.constant([["", ""]]))
    np.testing.assert_allclose(all_empty["probabilities"], [[0.5, 0.5]], atol=1e-5)

    batch = model.tokenize(QUESTIONS).batch(tf.range(3))
    of_ids = loaded.signatures["tokens"](**batch)
    np.testing.assert_allclose(of_ids["probabilities"][0], served["probabilities"][0], atol=1e-5)

    def example(prompt, choices):
        features = {
            "prompt": tf.train.Feature(bytes_list=tf.train.BytesList(value=[prompt.encode()])),
            "choices": tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode() for text in choices])),
        }
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    # The second question has one choice less than the first one.
    examples = [example("the film was", QUESTIONS["choices"][0]), example("a plot", ["the film .", "bad"])]
    of_examples = loaded.signatures["examples"](examples=tf.constant(examples))
    np.testing.assert_allclose(of_examples["probabilities"][0], served["probabilities"][0], atol=1e-5)
    assert of_examples["probabilities"][1, 2] == 0


def test_no_questions_are_answered_but_not_questions_without_choices():
    signatures = serving_signatures(toy_model())
    answers = signatures["examples"][0]({"examples": tf.constant([], tf.string)})
    assert {name: len(values) for name, values in answers.items()} == {"choice": 0, "probabilities": 0, "text": 0}

    def asked(questions):
        texts = {"prompt": tf.fill([questions], "a"), "choices": tf.zeros([questions, 0], tf.string)}
        ids = dict.fromkeys(("token_ids", "segment_ids", "padding_mask"), tf.zeros([questions, 0, 5], tf.int32))
        return [("serving_default", texts), ("tokens", ids)]

    for name, inputs in asked(0):
        assert signatures[name][0](inputs)["choice"].shape == [0]
    for name, inputs in asked(1):
        with pytest.raises(tf.errors.InvalidArgumentError, match="each question needs a choice, and there is none"):
            signatures[name][0](inputs)


def test_what_cannot_be_is_refused(tmp_path):
    model = toy_model()
    with pytest.raises(ValueError, match="pooler"):
        BertMultipleChoice(toy_encoder(with_pooler=False))
    with pytest.raises(ValueError, match="long_texts='windows'"):
        BertMultipleChoice(toy_encoder(), toy_preprocessor(long_texts="windows"))
    with pytest.raises(ValueError, match="question 1 has"):
        model.tokenize({"prompt": ["a", "b"], "choices": [["a", "b"], ["a"]]})
    with pytest.raises(ValueError, match="at least two"):
        model.tokenize({"prompt": ["a"], "choices": [["ab"]]})
    with pytest.raises(ValueError, match=r"choices\[0\] must be a list of texts, got a single one"):
        model.tokenize({"prompt": ["a"], "choices": ["ab"]})
    with pytest.raises(ValueError, match=r"prompt must be a list of texts, got a single one; pass \['ab'\]"):
        model.choose({"prompt": "ab", "choices": [["a", "b"], ["a", "b"]]})
    with pytest.raises(TypeError, match=r"choices\[1\]\[0\] must be a string, got None"):
        model.choose({"prompt": ["a", "b"], "choices": [["a", "b"], [None, "b"]]})
    for label in (3, -1, 0.9, float("nan")):
        with pytest.raises(ValueError, match=f"from 0 to 2; label 1 is {label}"):
            model.tokenize(QUESTIONS, [0, label, 1])
    for labels in (["0", "1", "2"], [0, None, 1]):
        with pytest.raises(ValueError, match=r"from 0 to 2; got \["):
            model.tokenize(QUESTIONS, labels)
    with pytest.raises(ValueError, match="y has 2"):
        model.tokenize(QUESTIONS, [0, 1])
    with pytest.raises(ValueError, match="prompt and choices"):
        model.tokenize(["a text"])
    with pytest.raises(ValueError, match="questions, choices, length"):
        model({"token_ids": np.array([[2, 3]])})
    with pytest.raises(ValueError, match="no labels"):
        model.compile()
        model.fit(QUESTIONS)
    with pytest.raises(ValueError, match="has no preprocessor"):
        BertMultipleChoice(toy_encoder()).export(tmp_path / "1")
