import numpy as np
import pytest
import tensorflow as tf

from keras_bert.export.serving_files import BATCHING_FILE, WARMUP_FILE
from keras_bert.models.labels import MULTI_LABEL
from keras_bert.models.zero_shot import ZeroShotClassifier
from tests.tolerances import assert_close
from tests.toys import toy_classifier, toy_preprocessor

NLI_LABELS = ("Contradiction", "NEUTRAL", "entailment")
TEXTS = [
    "a good film",
    "",
    "the plot was dull , and the film awful . a good plot was fine and the film was great",
    "bad",
]
LABELS = ["good", "bad and dull", "the plot"]
NUM_TERMS = 64


def toy_zero_shot(labels=NLI_LABELS, preprocessor=None, **arguments):
    """A zero-shot classifier on a small NLI classifier with random weights."""
    classifier = toy_classifier(labels, {"seed": 3}, preprocessor=preprocessor or toy_preprocessor(), seed=3)
    return ZeroShotClassifier(classifier, **{"template": "the film was {}, and good", **arguments})


def pair_logits(model, text, label):
    """Returns the NLI classifier's logits for a text and a label, by itself."""
    return model.classifier.predict([(text, f"the film was {label}, and good")], verbose=0)[0].astype("float64")


def expected_probabilities(model):
    """Computes the probabilities [texts, labels] pair by pair, as Hugging Face's zero-shot pipeline defines them."""
    logits = np.array([[pair_logits(model, text, label) for label in LABELS] for text in TEXTS])
    if model.multi_label:
        powers = np.exp(logits[..., [0, 2]])
        return powers[..., 1] / powers.sum(axis=-1)
    powers = np.exp(logits[..., 2])
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("multi_label", [False, True])
def test_probabilities_equal_those_of_single_pairs(multi_label):
    model = toy_zero_shot(multi_label=multi_label)
    expected = expected_probabilities(model)
    assert np.ptp(expected, axis=1).max() > 0.01  # the labels differ
    probabilities = model.predict_probabilities(TEXTS, LABELS, batch_size=5)
    assert_close(probabilities, expected, NUM_TERMS)
    assert probabilities.dtype == np.float32
    predicted = model.predict_labels(TEXTS, np.array(LABELS))
    if multi_label:
        assert predicted == [[name for name, p in zip(LABELS, row, strict=True) if p >= 0.5] for row in expected]
    else:
        assert predicted == [LABELS[i] for i in expected.argmax(axis=1)]


@pytest.mark.parametrize("long_texts", ["truncate", "windows"])
@pytest.mark.parametrize("multi_label", [False, True])
def test_the_exported_model_gives_the_same_answers(multi_label, long_texts, tmp_path):
    model = toy_zero_shot(preprocessor=toy_preprocessor(long_texts=long_texts), multi_label=multi_label)
    loaded = tf.saved_model.load(model.export(tmp_path / "1"))
    serve = loaded.signatures["serving_default"]
    assert list(loaded.signatures) == ["serving_default"]
    assert {name: spec.shape.as_list() for name, spec in serve.structured_outputs.items()} == {
        "probabilities": [None, None],
        "label": [None],
    }
    for labels in (LABELS, [*LABELS[::-1], "film"]):
        answer = serve(text=tf.constant(TEXTS), labels=tf.constant(labels))
        expected = model.predict_probabilities(TEXTS, labels)
        assert_close(answer["probabilities"].numpy(), expected, NUM_TERMS)
        assert answer["label"].numpy().tolist() == [labels[i].encode() for i in expected.argmax(axis=1)]
    assert not (tmp_path / "1" / BATCHING_FILE).exists()
    assert len(list(tf.data.TFRecordDataset(str(tmp_path / "1" / WARMUP_FILE)))) == 2
    vocabulary = (tmp_path / "1" / "assets" / "vocab.txt").read_text("utf-8")
    assert vocabulary.splitlines() == model.classifier.preprocessor.tokenizer.vocabulary


@pytest.mark.parametrize(("multi_label", "min_labels"), [(False, 2), (True, 1)])
def test_empty_requests(multi_label, min_labels, tmp_path):
    model = toy_zero_shot(multi_label=multi_label)
    labels, too_few = LABELS[:min_labels], LABELS[: min_labels - 1]
    loaded = tf.saved_model.load(model.export(tmp_path / "1"))
    serve = loaded.signatures["serving_default"]
    answer = serve(text=tf.constant([], tf.string), labels=tf.constant(labels))
    assert (answer["probabilities"].shape, answer["label"].shape) == ([0, min_labels], [0])
    assert model.predict_probabilities([], labels).shape == (0, min_labels)
    assert model.predict_labels([], labels) == []
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"at least {min_labels} labels"):
        serve(text=tf.constant(["a"]), labels=tf.constant(too_few, tf.string))
    with pytest.raises(ValueError, match=f"needs at least {min_labels} labels"):
        model.predict_probabilities(["a"], too_few)


def test_finds_the_labels_of_the_classifier_by_name_or_argument():
    model = toy_zero_shot(multi_label=True)
    assert (model.entailment, model.contradiction) == ("entailment", "Contradiction")
    model = toy_zero_shot(("not_entailment", "Entailment"), multi_label=True)
    assert (model.entailment, model.contradiction) == ("Entailment", "not_entailment")
    model = toy_zero_shot(("no", "yes", "perhaps"), entailment="yes", contradiction="no", multi_label=True)
    assert (model.entailment, model.contradiction) == ("yes", "no")
    assert toy_zero_shot(("entailment", "neutral", "other")).contradiction is None


def test_bfloat16_halves_the_file_and_keeps_the_answers(tmp_path):
    classifier = toy_classifier(NLI_LABELS, {"hidden_size": 64})
    model = ZeroShotClassifier(classifier)
    sizes = {}
    for name, dtype in (("1", None), ("2", "bfloat16")):
        loaded = tf.saved_model.load(model.export(tmp_path / name, dtype))
        answer = loaded.signatures["serving_default"](text=tf.constant(TEXTS), labels=tf.constant(LABELS))
        expected = model.predict_probabilities(TEXTS, LABELS)
        assert_close(answer["probabilities"].numpy(), expected, NUM_TERMS, dtype or "float32")
        sizes[name] = (tmp_path / name / "variables" / "variables.data-00000-of-00001").stat().st_size
    assert 0.45 < sizes["2"] / sizes["1"] < 0.55


@pytest.mark.parametrize(
    ("labels", "arguments", "message"),
    [
        (("a", "b"), {}, r'no label for entailment: looked for one whose name begins with "entail".*\[\'a\', \'b\'\]'),
        (("a", "b"), {"entailment": "c"}, "looked for 'c' among"),
        (("entailment", "neutral", "other"), {"multi_label": True}, "no label for contradiction.*pass contradiction="),
        (("entails", "entailment"), {}, "no label for entailment"),
        (NLI_LABELS, {"contradiction": "entailment", "multi_label": True}, "must be two labels, got 'entailment'"),
        (NLI_LABELS, {"template": "about"}, "exactly one \"{}\" for the label, got 'about'"),
        (NLI_LABELS, {"template": "{} {}"}, "exactly one"),
    ],
)
def test_rejects_invalid_arguments(labels, arguments, message):
    with pytest.raises(ValueError, match=message):
        toy_zero_shot(labels, **arguments)


def test_rejects_invalid_classifiers_and_exports(tmp_path):
    with pytest.raises(TypeError, match="must be a BertClassifier, got a str"):
        ZeroShotClassifier("roberta-large-mnli")
    with pytest.raises(ValueError, match="must have a single label per pair"):
        ZeroShotClassifier(toy_classifier(NLI_LABELS, problem_type=MULTI_LABEL))
    with pytest.raises(ValueError, match="has no preprocessor"):
        ZeroShotClassifier(toy_classifier(NLI_LABELS, preprocessor=None))
    with pytest.raises(ValueError, match="unknown dtype 'float16'"):
        toy_zero_shot().export(tmp_path / "1", dtype="float16")
    (tmp_path / "2").mkdir()
    with pytest.raises(FileExistsError, match="is not overwritten"):
        toy_zero_shot().export(tmp_path / "2")


@pytest.mark.parametrize(
    ("texts", "labels", "error", "message"),
    [
        ("a text", LABELS, ValueError, "texts must be a list of texts"),
        ([1], LABELS, TypeError, r"texts\[0\] must be a string"),
        (["a"], "good", ValueError, "labels must be a list of texts"),
        (["a"], 3, ValueError, "labels must be one-dimensional"),
        (["a"], ["good", "good"], ValueError, "given more than once"),
        (["a"], ["good", ""], ValueError, "labels must be a list of names"),
    ],
)
def test_rejects_invalid_texts_and_labels(texts, labels, error, message):
    with pytest.raises(error, match=message):
        toy_zero_shot().predict_labels(texts, labels)
