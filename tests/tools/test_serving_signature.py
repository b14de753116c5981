"""A signature's answers become the columns of a table; what is no table is refused."""

import pytest
import tensorflow as tf

from tools.serving_signature import ServingSignature, answer_columns


@pytest.fixture
def plain_model(tmp_path):
    """Writes a SavedModel with one signature of a function, or none."""

    def write(function=None, name="serving_default", dtype=tf.string, inputs=("text",)):
        module = tf.Module()
        signatures = {}
        if function is not None:
            specs = {key: tf.TensorSpec([None], dtype, name=key) for key in inputs}
            signatures[name] = tf.function(lambda **texts: function(**texts)).get_concrete_function(**specs)
        tf.saved_model.save(module, tmp_path / "plain", signatures=signatures)
        return tmp_path / "plain"

    return write


def test_columns_of_several_labels_bear_the_exact_names():
    strings, matrix = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, 2])
    outputs = {
        "score_very_good": tf.TensorSpec([None]),
        "score_very_good_2": tf.TensorSpec([None]),
        "probabilities": matrix,
        "labels": tf.TensorSpec([None, 2], tf.string),
        "label": strings,
    }
    assert answer_columns(outputs, ["very good", "very-good"]) == {
        "label": ("label", None),
        "labels": ("labels", None),
        "probability_very good": ("probabilities", 0),
        "probability_very-good": ("probabilities", 1),
    }
    assert list(answer_columns({"probabilities": matrix})) == ["probability_0", "probability_1"]


def test_columns_of_a_regression_are_its_outputs():
    outputs = {"length": tf.TensorSpec([None]), "values": tf.TensorSpec([None, 1])}
    assert answer_columns(outputs, ["length"]) == {"length": ("values", 0)}


def test_other_outputs_of_one_value_a_row_are_columns():
    assert answer_columns({"answer": tf.TensorSpec([None], tf.string)}) == {"answer": ("answer", None)}


def test_outputs_that_are_no_columns_are_refused():
    with pytest.raises(ValueError, match=r"'sequence_output' has the shape \(None, None, 8\)"):
        answer_columns({"sequence_output": tf.TensorSpec([None, None, 8])})
    with pytest.raises(ValueError, match=r"expected \[batch, 3\]"):
        answer_columns({"probabilities": tf.TensorSpec([None, 2])}, ["a", "b", "c"])


def test_models_without_the_signature_are_refused(plain_model):
    folder = plain_model(lambda text: {"label": text}, name="other")
    with pytest.raises(ValueError, match=r"has no signature 'serving_default'; it has \['other'\]"):
        ServingSignature(folder)


def test_models_that_take_something_else_are_refused(plain_model):
    folder = plain_model(lambda text: {"label": text}, dtype=tf.float32)
    with pytest.raises(ValueError, match=r"takes \{'text': 'float32 \(None,\)'\}; it must take raw texts"):
        ServingSignature(folder)


def test_models_of_others_are_served(plain_model):
    signature = ServingSignature(
        plain_model(lambda text: {"size": tf.strings.length(text), "upper": tf.strings.upper(text)})
    )
    assert signature.columns == ["size", "upper"]
    assert signature({"text": ["a", "film"]}) == [[1, "A"], [4, "FILM"]]
