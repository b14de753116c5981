"""Signatures, files and errors of exports, on a classifier; test_exports.py has the answers of every head."""

import itertools
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
from tests.tolerances import assert_close
from tests.toys import toy_classifier, toy_preprocessor, toy_reviews

TEXTS, LABELS = toy_reviews(64)


@pytest.fixture(scope="module")
def classifier():
    """A compiled and trained classifier."""
    # Wide enough that the weights, and not their names, determine the size of the variables file.
    classifier = toy_classifier(encoder_arguments={"hidden_size": 64, "num_hidden_layers": 2})
    classifier.compile(keras_bert.BertAdamW(1e-3))
    classifier.fit(TEXTS, LABELS, verbose=0)
    return classifier


@pytest.fixture(scope="module")
def folder(classifier, tmp_path_factory):
    return classifier.export(tmp_path_factory.mktemp("models") / "2")


@pytest.fixture(scope="module")
def signatures(folder):
    return loaded(folder)


def loaded(folder):
    """Returns the signatures of a SavedModel, and the model, which they do not keep alive."""
    model = tf.saved_model.load(folder)
    return {**model.signatures, "model": model}


def shapes_and_types(specs):
    return {name: (spec.shape.as_list(), spec.dtype) for name, spec in specs.items()}


def test_names_shapes_and_types_of_inputs_and_outputs(signatures):
    inputs = {name: signatures[name].structured_input_signature[1] for name in signatures if name != "model"}
    strings, floats, ids = ([None], tf.string), ([None], tf.float32), ([None, None], tf.int32)
    assert {name: shapes_and_types(specs) for name, specs in inputs.items()} == {
        "serving_default": {"text": strings},
        "tokens": {"token_ids": ids, "segment_ids": ids, "padding_mask": ids},
        "examples": {"examples": strings},
    }
    outputs = {"label": strings, "score_negative": floats, "score_positive": floats}
    outputs["probabilities"] = ([None, 2], tf.float32)
    for name in inputs:
        assert shapes_and_types(signatures[name].structured_outputs) == outputs


def test_ids_may_be_padded_to_any_length(classifier, signatures):
    ids = classifier.preprocessor(TEXTS[:4])
    expected = signatures["tokens"](**ids)["probabilities"]
    wide = {name: tf.pad(values, [[0, 0], [0, 32 - values.shape[1]]]) for name, values in ids.items()}
    assert wide["token_ids"].shape == [4, 32]  # all positions of the model
    assert_close(signatures["tokens"](**wide)["probabilities"], expected, num_terms=2 * 256)


def test_the_signature_of_examples_rejects_others(signatures):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Feature: text .* is required but could not be found"):
        signatures["examples"](examples=tf.constant([tf.train.Example().SerializeToString()]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse example"):
        signatures["examples"](examples=tf.constant(["no tf.Example"]))


def test_multi_label_threshold_is_a_probability_of_one_half():
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
        (
            ["very good", "very-good", "schlecht ä", "中文", "very_good_2"],
            ["score_very_good", "score_very_good_2", "score_schlecht__", "score___", "score_very_good_2_2"],
        ),
    ],
)
def test_output_names_are_distinct(labels, expected):
    assert output_names(labels, SINGLE_LABEL) == expected
    assert output_names(["values", "values_2"], REGRESSION) == ["values_2", "values_2_2"]


@pytest.mark.parametrize("problem_type", [SINGLE_LABEL, REGRESSION])
def test_output_names_of_many_labels_equal_those_of_a_search_from_2(problem_type):
    generator = np.random.default_rng(0)
    words = ["a", "a_2", "a 2", "a_2_2", "好", "坏", "values", "truncated", "num_windows", "", "_", "__2"]
    prefix = "" if problem_type == REGRESSION else "score_"
    for _ in range(50):
        labels = generator.choice(words, 30).tolist()
        expected = []
        for label in labels:
            wanted = prefix + re.sub("[^0-9A-Za-z_]", "_", label)
            names = itertools.chain([wanted], (f"{wanted}_{number}" for number in itertools.count(2)))
            taken = {*expected, "values", "num_windows", "truncated"}
            expected.append(next(name for name in names if name not in taken))
        assert output_names(labels, problem_type) == expected
    labels = [chr(0x4E00 + number) for number in range(20_000)]  # all want one name
    assert output_names(labels, problem_type)[-1] == f"{prefix}__20000"


def test_every_weight_is_stored_once_and_nothing_of_the_optimizer(classifier, folder):
    file = folder / "variables" / "variables"
    names = tf.train.load_checkpoint(str(file)).get_variable_to_dtype_map().keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    assert len(names) == len(classifier.weights) == 33
    size = sum(np.asarray(weight).nbytes for weight in classifier.weights)
    assert size < Path(f"{file}.data-00000-of-00001").stat().st_size < 1.03 * size


def test_a_mixed_bfloat16_model_is_exported_unchanged_or_in_float32(tmp_path):
    mixed = toy_classifier(encoder_arguments={"dtype": "mixed_bfloat16"})
    expected = toy_classifier().predict_probabilities(TEXTS)

    def served(name, **arguments):
        signatures = loaded(mixed.export(tmp_path / name, **arguments))
        return signatures["serving_default"](text=tf.constant(TEXTS))["probabilities"]

    as_it_is = served("mixed")
    assert 1e-5 < np.abs(as_it_is - expected).max() < 0.01
    assert_close(as_it_is, mixed.predict_probabilities(TEXTS), dtype="bfloat16")
    assert_close(served("float32", dtype="float32"), expected, num_terms=64)


def test_a_failed_export_writes_nothing(tmp_path, monkeypatch):
    classifier = toy_classifier()
    for dtype in ("float16", "bf16", 16):
        with pytest.raises(ValueError, match=f"unknown dtype {dtype!r}; allowed are .None, 'float32', 'bfloat16'"):
            classifier.export(tmp_path / "1", dtype=dtype)
    with pytest.raises(ValueError, match="has no preprocessor"):
        toy_classifier(preprocessor=None).export(tmp_path / "1")
    message = "`export` needs TensorFlow, but the Keras backend is jax"
    with monkeypatch.context() as patch, pytest.raises(ValueError, match=message):
        patch.setattr(keras.backend, "backend", lambda: "jax")
        classifier.export(tmp_path / "1")

    def broken(inputs, training=False, pooled_only=False):
        raise RuntimeError("no graph of this can be made")

    monkeypatch.setattr(classifier.encoder, "call", broken)
    with pytest.raises(RuntimeError, match="no graph of this can be made"):
        classifier.export(tmp_path / "1")
    assert list(tmp_path.iterdir()) == []


def test_a_version_is_not_overwritten(classifier, folder):
    before = (folder / "saved_model.pb").read_bytes()
    with pytest.raises(FileExistsError, match="2 exists and is not overwritten"):
        classifier.export(folder)
    assert (folder / "saved_model.pb").read_bytes() == before


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
    signatures = loaded(classifier.export(tmp_path / "1", pairs=True))
    texts = ["good " * 60, "bad", "", "the film was awful . " * 9]
    columns = {"text_a": ["a plot"] * 4, "text_b": texts}
    served = signatures["serving_default"](**{name: tf.constant(values) for name, values in columns.items()})
    assert_close(served["probabilities"], classifier.predict_probabilities(columns), num_terms=64)


@pytest.mark.slow
def test_a_served_model_reads_no_more_windows_than_the_maximum(tmp_path):
    classifier = toy_classifier(preprocessor=toy_preprocessor(long_texts="windows", window_stride=5))
    texts = ["good " * 1_000_000, "bad", "", "the film was awful . " * 9]  # the first one has 5 MB
    for maximum in (9, 3):
        classifier.preprocessor.max_windows = maximum
        served = loaded(classifier.export(tmp_path / str(maximum)))["serving_default"](tf.constant(texts))
        assert served["num_windows"].numpy().tolist() == [maximum, 1, 1, min(8, maximum)]
        assert served["truncated"].numpy().tolist() == [True, False, False, maximum < 8]
    assert_close(served["probabilities"], classifier.predict_probabilities(texts), num_terms=64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids": [[2, -1, 3]]}, "token_ids must be from 0 to 21; the lowest and highest are"),
        ({"token_ids": [[2, 22, 3]]}, "token_ids must be from 0 to 21"),
        ({"segment_ids": [[0, 9, 0]]}, "segment_ids must be from 0 to 1"),
        ({"padding_mask": [[1, 7, 1]]}, "padding_mask must be from 0 to 1"),
        ({"padding_mask": [[1, -1, 1]]}, "padding_mask must be from 0 to 1"),
        ({"segment_ids": [[0]]}, "segment_ids must have the shape of token_ids"),
        ({"padding_mask": [[1, 1, 1]] * 2}, "padding_mask must have the shape of token_ids"),
        ({name: [[1] * 33] for name in ("token_ids", "segment_ids", "padding_mask")}, "longer than the 32 positions"),
    ],
)
def test_the_signature_of_ids_rejects_others(signatures, changes, message):
    answer = signatures["tokens"]
    ids = {"token_ids": [[2, 5, 3]], "segment_ids": [[0, 0, 0]], "padding_mask": [[1, 1, 1]]}
    answer(**{name: tf.constant(values) for name, values in ids.items()})
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        answer(**{name: tf.constant(values) for name, values in {**ids, **changes}.items()})
