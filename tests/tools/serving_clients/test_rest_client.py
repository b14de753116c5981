"""What only REST has: answers without names, base64, and whatever else may answer at an address."""

import json

import pytest

from tests.tools.serving_clients.servers import http_server
from tools.serving_clients.client import ServingError
from tools.serving_clients.opening import open_client
from tools.serving_clients.signature import Tensor

TEXT = {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}}


def metadata(**outputs):
    signature = {"inputs": {"text": TEXT}, "outputs": outputs, "method_name": "tensorflow/serving/predict"}
    signatures = {"serving_default": signature, "__saved_model_init_op": {"inputs": {}, "outputs": {"__op": TEXT}}}
    return {"metadata": {"signature_def": {"signature_def": signatures}}}


def answering(answer, **outputs):
    """A server of one signature, whose answer to every request is the same."""

    def answers(method, path, body):
        content = metadata(**outputs) if method == "GET" else answer
        return 200, content if isinstance(content, bytes) else json.dumps(content).encode()

    return http_server(answers)


def test_the_name_of_a_single_output_is_left_out():
    with answering({"outputs": ["a", "b"]}, length=TEXT) as address, open_client(address, "m") as client:
        assert client.predict({"text": ["x", "y"]}) == {"length": ["a", "b"]}
        assert list(client.signatures()) == ["serving_default"]


def test_binary_outputs_come_in_base64():
    answer = {"outputs": {"image_bytes": [[{"b64": "Z29vZP8="}]], "size": [1]}}
    with answering(answer, image_bytes=TEXT, size=TEXT) as address, open_client(address, "m") as client:
        assert client.predict({"text": ["x"]}) == {"image_bytes": [["good\ufffd"]], "size": [1]}


def test_strings_of_any_bytes_and_numbers_that_are_none():
    with answering(b'{"outputs": ["good\xff", NaN]}', label=TEXT) as address, open_client(address, "m") as client:
        label, number = client.predict({"text": ["x", "y"]})["label"]
        assert label == "good\ufffd" and number != number


def test_shapes_that_are_not_known():
    unknown = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [], "unknown_rank": True}}
    with answering({}, scores=unknown) as address, open_client(address, "m") as client:
        outputs = client.signature().outputs
    assert outputs == {"scores": Tensor("float", None)} and str(outputs["scores"]) == "float [...]"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"predictions": ["a"]}, 'did not answer outputs, but {"predictions"'),
        ({"outputs": ["a"]}, 'did not answer outputs, but {"outputs"'),
        (b"<html>", "did not answer outputs, but .*<html>"),
        (b"", 'did not answer outputs, but ""'),
    ],
)
def test_answers_of_another_form(answer, message):
    with answering(answer, label=TEXT, score=TEXT) as address, pytest.raises(ServingError, match=message):
        open_client(address, "m").predict({"text": ["x"]})


@pytest.mark.parametrize("what", ["versions", "signatures"])
def test_something_else_answers(what):
    message = rf'did not answer the {what} of the model, but {{"status": "ok"}}'
    with (
        http_server(lambda *request: (200, b'{"status": "ok"}')) as address,
        pytest.raises(ServingError, match=message),
    ):
        getattr(open_client(address, "m"), what)()


def test_errors_that_are_no_json_are_shown():
    message = r"refused the request \(HTTP 502\): <h1> Bad Gateway</h1>"
    answer = 502, b"<h1>\nBad Gateway</h1>"
    with http_server(lambda *request: answer) as address, pytest.raises(ServingError, match=message):
        open_client(address, "m").versions()


def test_names_are_quoted():
    paths = []

    def answer(method, path, body):
        paths.append(path)
        return 200, json.dumps({"model_version_status": []}).encode()

    with http_server(answer) as address:
        for version in (None, 3, "a b"):
            with open_client(address, "a/b:c", version) as client:
                assert client.versions() == []
    assert paths == [f"/v1/models/a%2Fb%3Ac{rest}" for rest in ("", "/versions/3", "/labels/a%20b")]
