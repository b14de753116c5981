"""Signatures, files and errors of exports, on a classifier; test_exports.py has the answers of every head."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

import keras_bert
from keras_bert.models.classifier import _serving_answers, output_names
from keras_bert.models.labels import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from tests.toys import VOCABULARY, toy_classifier, toy_preprocessor, toy_reviews

TEXTS, LABELS = toy_reviews(64)
OTHER_LABELS = ["very good", "very-good", "schlecht ä", "中文", "very_good_2"]
OTHER_SCORES = ["score_very_good", "score_very_good_2", "score_schlecht__", "score___", "score_very_good_2_2"]
# Wide enough that the weights, and not the names beside them, make the size of the variables file.
WIDE = {"hidden_size": 64, "num_hidden_layers": 2}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A trained classifier, whose vocabulary came from a file that is gone."""
    file = tmp_path_factory.mktemp("source") / "vocab.txt"
    file.write_text("\n".join(VOCABULARY) + "\n")
    tokenizer = keras_bert.BertTokenizer(file, lower_case=True)
    preprocessor = keras_bert.BertPreprocessor(tokenizer, sequence_length=16)
    classifier = toy_classifier(preprocessor=preprocessor, encoder_arguments=WIDE)
    classifier.compile(keras_bert.BertAdamW(1e-3))
    classifier.fit(TEXTS, LABELS, verbose=0)
    file.unlink()
    return classifier


@pytest.fixture(scope="module")
def folder(classifier, tmp_path_factory):
    """Its export, moved."""
    parent = tmp_path_factory.mktemp("models")
    classifier.export(parent / "1")
    (parent / "moved").mkdir()
    return (parent / "1").rename(parent / "moved" / "2")


@pytest.fixture(scope="module")
def signatures(folder):
    return loaded(folder)


def loaded(folder):
    """The signatures of a SavedModel; they do not keep the model alive by themselves."""
    model = tf.saved_model.load(folder)
    signatures = dict(model.signatures)
    signatures["model"] = model
    return signatures


def exported(tmp_path, classifier, **arguments):
    return loaded(classifier.export(tmp_path / "1", **arguments))


def examples(**columns):
    """Serialized tf.Examples with the columns as bytes features."""
    rows = []
    for values in zip(*columns.values(), strict=True):
        features = {
            name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[as_bytes(value)]))
            for name, value in zip(columns, values, strict=True)
        }
        rows.append(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return tf.constant(rows, tf.string)


def as_bytes(text):
    return text if isinstance(text, bytes) else text.encode()


def shapes_and_types(specs):
    return {name: (spec.shape.as_list(), spec.dtype) for name, spec in specs.items()}


def tensor_types(folder):
    """The data type of every tensor in the variables file."""
    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    types = reader.get_variable_to_dtype_map()
    return [dtype for name, dtype in types.items() if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]


def variables_size(folder):
    return (folder / "variables" / "variables.data-00000-of-00001").stat().st_size


def test_inputs_and_outputs_have_these_names_and_types(signatures):
    inputs = {name: signatures[name].structured_input_signature[1] for name in signatures if name != "model"}
    strings, ids = ([None], tf.string), ([None, None], tf.int32)
    assert {name: shapes_and_types(specs) for name, specs in inputs.items()} == {
        "serving_default": {"text": strings},
        "tokens": {"token_ids": ids, "segment_ids": ids, "padding_mask": ids},
        "examples": {"examples": strings},
    }
    for name in inputs:
        assert shapes_and_types(signatures[name].structured_outputs) == {
            "probabilities": ([None, 2], tf.float32),
            "label": ([None], tf.string),
            "score_negative": ([None], tf.float32),
            "score_positive": ([None], tf.float32),
        }


def test_ids_may_be_padded_to_any_length(classifier, signatures):
    ids = classifier.preprocessor(TEXTS[:4])
    expected = signatures["tokens"](**ids)["probabilities"]
    wide = {name: tf.pad(values, [[0, 0], [0, 32 - values.shape[1]]]) for name, values in ids.items()}
    assert wide["token_ids"].shape == [4, 32]  # all positions that there are
    np.testing.assert_allclose(signatures["tokens"](**wide)["probabilities"], expected, atol=1e-6)


def test_ids_longer_than_the_positions_are_refused(signatures):
    ids = {name: tf.ones([1, 33], tf.int32) for name in ("token_ids", "segment_ids", "padding_mask")}
    with pytest.raises(tf.errors.InvalidArgumentError, match="the ids are longer than the 32 positions of the model"):
        signatures["tokens"](**ids)


def test_ids_beyond_the_vocabulary_are_refused(signatures):
    ids = {name: tf.ones([1, 3], tf.int32) for name in ("token_ids", "segment_ids", "padding_mask")}
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"= {len(VOCABULARY)} is not in \[0, {len(VOCABULARY)}\)"
    ):
        signatures["tokens"](**{**ids, "token_ids": tf.fill([1, 3], len(VOCABULARY))})


def test_examples_without_the_feature_are_refused(signatures):
    for request in (examples(txet=["good"]), tf.constant([tf.train.Example().SerializeToString()])):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"Feature: text .* is required but could not be found"
        ):
            signatures["examples"](examples=request)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse example"):
        signatures["examples"](examples=tf.constant(["no tf.Example"]))


def test_a_label_holds_from_a_probability_of_one_half():
    classifier = toy_classifier(["at half", "a little below"], problem_type=MULTI_LABEL)
    classifier.logits.kernel.assign(np.zeros([16, 2]))
    classifier.logits.bias.assign([0.0, -1e-9])  # whose sigmoid is 1/2 in float32
    answer = _serving_answers(classifier, classifier(classifier.preprocessor(["good"])))
    assert answer["labels"].numpy().tolist() == [[b"at half", b""]]
    assert classifier.predict_labels(["good"]) == [["at half"]]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["a b", "a_b", "a-b"], ["score_a_b", "score_a_b_2", "score_a_b_3"]),
        (["a_b_2", "a b", "a_b"], ["score_a_b_2", "score_a_b", "score_a_b_3"]),
        (["好", "坏", ""], ["score__", "score___2", "score_"]),
        (["values", "label"], ["score_values", "score_label"]),
        (OTHER_LABELS, OTHER_SCORES),
    ],
)
def test_scores_of_different_labels_have_different_names(labels, expected):
    assert output_names(labels, SINGLE_LABEL) == expected


def test_values_of_a_regression_do_not_hide_one_another():
    assert output_names(["values", "values_2"], REGRESSION) == ["values_2", "values_2_2"]


def test_every_weight_is_stored_once_and_nothing_of_the_optimizer(classifier, folder):
    assert len(tensor_types(folder)) == len(classifier.weights) == 33
    weights = sum(np.asarray(weight).nbytes for weight in classifier.weights)
    assert weights < variables_size(folder) < 1.03 * weights


def test_dtype_of_a_model_that_computes_in_mixed_precision(tmp_path):
    mixed = toy_classifier(encoder_arguments={"dtype": "mixed_bfloat16"})
    plain = toy_classifier()
    expected = plain.predict_probabilities(TEXTS)
    as_it_is = exported(tmp_path / "mixed", mixed)["serving_default"](text=tf.constant(TEXTS))["probabilities"]
    assert 1e-5 < np.abs(as_it_is - expected).max() < 0.01
    np.testing.assert_allclose(as_it_is, mixed.predict_probabilities(TEXTS), atol=0.01)
    signature = exported(tmp_path / "float32", mixed, dtype="float32")["serving_default"]
    np.testing.assert_allclose(signature(text=tf.constant(TEXTS))["probabilities"], expected, atol=1e-6)


def test_unknown_dtypes_are_refused_before_anything_is_written(classifier, tmp_path):
    for dtype in ("float16", "bf16", 16):
        with pytest.raises(ValueError, match=f"unknown dtype {dtype!r}; allowed are None and .*float32.*bfloat16"):
            classifier.export(tmp_path / "1", dtype=dtype)
    assert list(tmp_path.iterdir()) == []


def test_a_version_is_not_overwritten(classifier, folder):
    before = (folder / "saved_model.pb").read_bytes()
    with pytest.raises(FileExistsError, match="2 exists and is not overwritten"):
        classifier.export(folder)
    assert (folder / "saved_model.pb").read_bytes() == before


def test_a_failed_export_leaves_nothing_behind(tmp_path, monkeypatch):
    classifier = toy_classifier()

    def broken(inputs, training=False):
        raise RuntimeError("no graph of this can be made")

    monkeypatch.setattr(classifier.encoder, "call", broken)
    with pytest.raises(RuntimeError, match="no graph of this can be made"):
        classifier.export(tmp_path / "1")
    assert list(tmp_path.iterdir()) == []


def test_a_classifier_of_ids_alone_cannot_be_exported(tmp_path):
    with pytest.raises(ValueError, match="has no preprocessor"):
        toy_classifier(preprocessor=None).export(tmp_path / "1")
    assert list(tmp_path.iterdir()) == []


def test_the_documented_configuration_and_python_code_work(folder, capsys):
    guide = Path(__file__).parents[2].joinpath("docs", "serving.md").read_text("utf-8")
    (configuration,) = re.findall(r"```\n(model_config_list.*?)```", guide, re.DOTALL)
    config = text_format.Parse(configuration, model_server_config_pb2.ModelServerConfig()).model_config_list.config[0]
    assert list(config.model_version_policy.specific.versions) == [1, 2]
    assert dict(config.version_labels) == {"stable": 1, "canary": 2}
    (code,) = re.findall(r"```python\n(import[^`]*?saved_model\.load.*?)```", guide, re.DOTALL)
    exec(code.replace("models/reviews/1", str(folder)), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] in ("negative", "positive") for line in lines] == [True, True]


def test_windows_are_averaged_in_the_graph(tmp_path):
    classifier = toy_classifier(preprocessor=toy_preprocessor(long_texts="windows", window_stride=5))
    signatures = exported(tmp_path, classifier, pairs=True)
    texts = ["good " * 60, "bad", "", "the film was awful . " * 9]
    columns = {"text_a": ["a plot"] * 4, "text_b": texts}
    served = signatures["serving_default"](**{name: tf.constant(values) for name, values in columns.items()})
    np.testing.assert_allclose(served["probabilities"], classifier.predict_probabilities(columns), atol=1e-6)


def test_export_names_tensorflow_on_another_backend(tmp_path, monkeypatch):
    classifier = toy_classifier()
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="`export` needs TensorFlow, but the Keras backend is jax"):
        classifier.export(tmp_path / "1")
