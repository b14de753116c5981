import base64

import numpy as np
import pytest
import tensorflow as tf

from tools.served_model import ServedModel, read_columns, read_rows, to_columns, to_rows, to_tensor

TEXT = {"text": tf.TensorSpec([None], tf.string)}
PAIR = {"choices": tf.TensorSpec([None, None], tf.string), "prompt": tf.TensorSpec([None], tf.string)}
IDS = {"ids": tf.TensorSpec([None, 2], tf.int32)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model with signatures of one and of two outputs, and one whose outputs have different lengths."""
    folder = tmp_path_factory.mktemp("models") / "reviews" / "7"

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def measure(text):
        length = tf.cast(tf.strings.length(text), tf.float32)
        return {"upper": tf.strings.upper(text), "tenths": tf.stack([length, -length], axis=1) / 10}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def copy(text):
        return {"copy": text}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text"), tf.TensorSpec([], tf.int32, "limit")])
    def check(text, limit):
        with tf.control_dependencies([tf.debugging.Assert(tf.size(text) <= limit, ["too many texts"])]):
            return {"rows": tf.size(text), "unique": tf.unique(text)[0]}

    signatures = {"serving_default": measure, "copy": copy, "check": check}
    tf.saved_model.save(tf.Module(), str(folder), signatures=signatures)
    return ServedModel(folder, "reviews")


def test_answers_by_rows_and_by_columns(model):
    expected = {"upper": ["A", "ÜB"], "tenths": [[0.1, -0.1], [0.3, -0.3]]}
    rows = [{"upper": "A", "tenths": [0.1, -0.1]}, {"upper": "ÜB", "tenths": [0.3, -0.3]}]
    assert model.predict({"instances": ["a", "Üb"]}) == {"predictions": rows}
    assert model.predict({"instances": [{"text": "a"}, {"text": "Üb"}]}) == {"predictions": rows}
    assert model.predict({"inputs": {"text": ["a", "Üb"]}}) == {"outputs": expected}
    assert model.predict({"inputs": ["a", "Üb"], "signature_name": "serving_default"}) == {"outputs": expected}
    assert model.predict({"inputs": {"text": []}}) == {"outputs": {"upper": [], "tenths": []}}


def test_a_single_output_has_no_name(model):
    encoded = {"b64": base64.b64encode(b"\xffdull").decode()}
    copy = {"signature_name": "copy"}
    assert model.predict({"instances": ["a", encoded], **copy}) == {"predictions": ["a", "\ufffddull"]}
    assert model.predict({"instances": [{"text": encoded}], **copy}) == {"predictions": ["\ufffddull"]}
    assert model.predict({"inputs": {"text": ["a"]}, **copy}) == {"outputs": ["a"]}


@pytest.mark.parametrize(
    "request_, message",
    [
        ([], r'must be a JSON object with either "instances" \(rows\) or "inputs" \(columns\)'),
        ({}, "either"),
        ({"instances": ["a"], "inputs": ["a"]}, "either"),
        ({"instances": ["a"], "signature_name": "x"}, r"no signature 'x'; the model has \['check', 'copy', 'serving_d"),
        ({"instances": ["a"], "signature_name": [1]}, r"no signature \[1\]"),
        ({"instances": []}, '"instances" must be a list of one row or more'),
        ({"instances": "a"}, '"instances" must be a list'),
        ({"instances": ["a", {"text": "b"}]}, r"row 0 must be an object with the keys \['text'\]"),
        ({"instances": [{"txt": "b"}]}, r"row 0 must be an object with the keys \['text'\]"),
        ({"inputs": {"txt": ["b"]}}, r'"inputs" must be an object with the keys \[\'text\'\]'),
        ({"inputs": {"text": "a"}}, r"'text' must be string of shape \(None,\); its shape is \(\)"),
        ({"inputs": {"text": [["a"]]}}, r"its shape is \(1, 1\)"),
        ({"inputs": {"text": [1]}}, "'text' must be string of shape"),
        ({"inputs": {"text": [None]}}, "'text' must be string of shape"),
        ({"inputs": {"text": ["a", ["b"]]}}, "'text' must be string of shape"),
        ({"inputs": {"text": [{"a": 1}]}}, "'text' must be string of shape"),
        ({"inputs": {"text": ["\ud800"]}}, "'text' must be string of shape"),
        ({"inputs": {"text": [{"b64": "a*"}]}}, "'text' must be string of shape"),
        ({"inputs": {"text": [{"b64": 3}]}}, "'text' must be string of shape"),
        (
            {"inputs": {"text": ["a", "b"], "limit": 1}, "signature_name": "check"},
            r"the model refuses the request: assertion failed: \[too many texts\]$",
        ),
        (
            {"instances": [{"text": "a", "limit": 1}], "signature_name": "check"},
            r"'limit' must be int32 of shape \(\); its shape is \(1,\)",
        ),
    ],
)
def test_rejects_invalid_requests(model, request_, message):
    with pytest.raises(ValueError, match=message):
        model.predict(request_)


def test_reads_several_inputs():
    rows = [{"prompt": "a", "choices": ["b", "c"]}, {"prompt": "d", "choices": ["e", ""]}]
    columns = {"prompt": ["a", "d"], "choices": [["b", "c"], ["e", ""]]}
    assert read_rows(rows, PAIR) == read_columns(columns, PAIR) == columns
    for instances in (["a"], [{"prompt": "a"}], [rows[0], ["d"]], [rows[0] | {"more": 1}]):
        with pytest.raises(ValueError, match=r"must be an object with the keys \['choices', 'prompt'\]"):
            read_rows(instances, PAIR)
    for inputs in (["a"], {"prompt": ["a"]}, {**columns, "more": 1}, {"b64": "YQ=="}):
        with pytest.raises(ValueError, match=r"must be an object with the keys \['choices', 'prompt'\]"):
            read_columns(inputs, PAIR)
    with pytest.raises(ValueError, match=r"'choices' must be string of shape \(None, None\): .*non-rectangular"):
        to_tensor("choices", [["a"], ["b", "c"]], PAIR["choices"])


def test_reads_numbers_of_the_inputs_type():
    tensor = to_tensor("ids", [[1, -2]], IDS["ids"])
    assert (tensor.dtype, tensor.numpy().tolist()) == (tf.int32, [[1, -2]])
    for value in ([[1, 2**40]], [[1, 2**70]], [[1, 1.5]], [["1", 2]], [[1]], [1, 2], [[1, 2, 3]]):
        with pytest.raises(ValueError, match=r"'ids' must be int32 of shape \(None, 2\)"):
            to_tensor("ids", value, IDS["ids"])
    assert to_tensor("x", [1, 0.5], tf.TensorSpec([None], tf.float32)).numpy().tolist() == [1, 0.5]


def test_writes_rows_and_columns():
    arrays = {"label": np.array([b"a", "ü".encode()], object), "share": np.array([0.1, 0.25], "float32")}
    assert to_rows(arrays) == [{"label": "a", "share": 0.1}, {"label": "ü", "share": 0.25}]
    assert to_columns(arrays) == {"label": ["a", "ü"], "share": [0.1, 0.25]}
    assert to_rows({"share": arrays["share"]}) == to_columns({"share": arrays["share"]}) == [0.1, 0.25]
    for other in (np.array(3), np.array([1, 2, 3])):
        with pytest.raises(ValueError, match=r'the outputs differ in their number of rows: .* send "inputs" instead'):
            to_rows({**arrays, "other": other})


def test_outputs_without_rows_need_columns(model):
    inputs = {"text": ["b", "b"], "limit": 2}
    outputs = model.predict({"inputs": inputs, "signature_name": "check"})["outputs"]
    assert outputs == {"rows": 2, "unique": ["b"]}


def test_describes_itself(model):
    state = {"version": "7", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert model.status() == {"model_version_status": [state]}
    metadata = model.metadata()
    assert metadata["model_spec"] == {"name": "reviews", "signature_name": "", "version": "7"}
    signatures = metadata["metadata"]["signature_def"]["signature_def"]
    assert {"check", "copy", "serving_default"} <= signatures.keys()
    text = signatures["serving_default"]["inputs"]["text"]
    assert (text["dtype"], text["tensor_shape"]["dim"]) == ("DT_STRING", [{"size": "-1", "name": ""}])
    assert text["tensor_shape"]["unknown_rank"] is False
    assert signatures["serving_default"]["method_name"] == "tensorflow/serving/predict"
    assert model.labels is None
