"""The contract of the signatures: answers and errors by both protocols, as clients get them.

The development server answers by REST, and `tests.prediction_service`, a test double, by gRPC.
"""

import json
import re
import threading
import urllib.request
from pathlib import Path

import grpc
import pytest
import tensorflow as tf
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc

from examples import serving_client
from tests.prediction_service import PredictionServiceDouble, running
from tests.tolerances import assert_close
from tests.toys import toy_classifier
from tools.serve import make_server
from tools.served_model import ServedModel

pytestmark = pytest.mark.slow
TEXTS = ["a good film", "", "bad \u00e9 [SEP]"]
IDS = {"token_ids": [[2, 5, 3]], "segment_ids": [[0, 0, 0]], "padding_mask": [[1, 1, 1]]}
GUIDE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text("utf-8")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two versions of a classifier, the folders of their exports, and loaded ones."""
    folder = tmp_path_factory.mktemp("model")
    classifiers = {1: toy_classifier(), 2: toy_classifier(["no", "yes"])}
    return classifiers, {version: model.export(folder / str(version)) for version, model in classifiers.items()}


@pytest.fixture(scope="module")
def rest(models):
    server = make_server(ServedModel(models[1][2], "reviews"), None, 0, 30)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture(scope="module")
def double(models):
    with running(PredictionServiceDouble("reviews", models[1], {"stable": 1})) as address:
        yield address


@pytest.fixture
def stub(double):
    with grpc.insecure_channel(double) as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture(params=["http", "grpc"])
def address(rest, double, request):
    return rest if request.param == "http" else f"grpc://{double}"


def predict_request(inputs, name="reviews", signature="", **version):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = name, signature
    if "number" in version:
        request.model_spec.version.value = version["number"]
    if "label" in version:
        request.model_spec.version_label = version["label"]
    for key, values in inputs.items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(values))
    return request


def test_prints_the_models_predictions(models, address, capsys):
    serving_client.main(address, "reviews", json.dumps({"text": TEXTS}))
    outputs = json.loads(capsys.readouterr().out)
    assert_close(outputs["probabilities"], models[0][2].predict_probabilities(TEXTS), num_terms=64)
    assert outputs["label"] == models[0][2].predict_labels(TEXTS)


def test_shows_the_servers_error(address):
    with pytest.raises((RuntimeError, grpc.RpcError), match=r"400|INVALID_ARGUMENT"):
        serving_client.main(address, "reviews", json.dumps({"words": TEXTS}))


def test_all_signatures_give_one_answer_by_either_protocol(rest, double):
    example = tf.train.Example()
    example.features.feature["text"].bytes_list.value.append(b"good")
    by_rest = {"text": ["good"]}, {"examples": [{"b64": "ChIKEAoEdGV4dBIICgYKBGdvb2Q="}]}
    by_grpc = {"text": [b"good"]}, {"examples": [example.SerializeToString()]}
    for signature, first, second in zip(("serving_default", "examples"), by_rest, by_grpc, strict=True):
        found = serving_client.predict_rest(rest.removeprefix("http://"), "reviews", first, signature)
        expected = serving_client.predict_grpc(double, "reviews", second, signature)
        assert_close(found["probabilities"], expected["probabilities"], num_terms=1)
        assert found["label"] == [label.decode() for label in expected["label"]]
    found = serving_client.predict_rest(rest.removeprefix("http://"), "reviews", IDS, "tokens")
    tensors = {name: tf.constant(values, tf.int32) for name, values in IDS.items()}
    expected = serving_client.predict_grpc(double, "reviews", tensors, "tokens")
    assert_close(found["probabilities"], expected["probabilities"], num_terms=1)


def test_grpc_selects_versions_labels_and_outputs(stub):
    request = predict_request({"text": ["good"]})
    request.output_filter.append("label")
    assert {*stub.Predict(request).outputs} == {"label"}
    for selected, version, labels in (
        ({}, 2, {b"no", b"yes"}),
        ({"number": 1}, 1, {b"negative", b"positive"}),
        ({"label": "stable"}, 1, {b"negative", b"positive"}),
    ):
        response = stub.Predict(predict_request({"text": ["good"]}, **selected))
        assert response.model_spec.version.value == version
        assert tf.make_ndarray(response.outputs["label"])[0] in labels


@pytest.mark.parametrize(
    "request_, code",
    [
        (predict_request({"text": ["a"]}, name="others"), "NOT_FOUND"),
        (predict_request({"text": ["a"]}, number=3), "NOT_FOUND"),
        (predict_request({"text": ["a"]}, label="none"), "INVALID_ARGUMENT"),
        (predict_request({"text": ["a"]}, signature="words"), "FAILED_PRECONDITION"),
        (predict_request({}), "INVALID_ARGUMENT"),
        (predict_request({"text": ["a"], "more": ["a"]}), "INVALID_ARGUMENT"),
        (predict_request({"text": [1]}), "INVALID_ARGUMENT"),
        (predict_request({"examples": ["no tf.Example"]}, signature="examples"), "INVALID_ARGUMENT"),
        (
            predict_request({**IDS, "token_ids": tf.constant([[2, 5000, 3]])}, signature="tokens"),
            "INVALID_ARGUMENT",
        ),
    ],
)
def test_grpc_errors_have_the_codes_of_the_server(stub, request_, code):
    with pytest.raises(grpc.RpcError) as error:
        stub.Predict(request_)
    assert error.value.code().name == code
    assert error.value.details()


def test_metadata_are_the_same_by_either_protocol(rest, stub):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "reviews"
    response = stub.GetModelMetadata(request)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    with urllib.request.urlopen(f"{rest}/v1/models/reviews/metadata") as answer:
        found = json.load(answer)["metadata"]["signature_def"]["signature_def"]
    assert found.keys() == signatures.signature_def.keys() >= {"serving_default", "tokens", "examples"}
    options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
    for name, definition in signatures.signature_def.items():
        assert found[name] == json_format.MessageToDict(definition, **options)


def test_the_documented_grpc_code_works(double, capsys):
    (code,) = re.findall(r"```python\n(import grpc\n.*?)```", GUIDE, re.DOTALL)
    exec(code.replace("localhost:8500", double), {})
    assert re.match(r"\[b'(no|yes)', b'(no|yes)'\]\n\[\[", capsys.readouterr().out)
