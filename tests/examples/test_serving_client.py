"""The example client gets a model's own predictions from in-process servers of both protocols."""

import concurrent.futures
import json
import threading

import grpc
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the operations of the tokenizer)
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from examples import serving_client
from tests.tolerances import assert_close
from tests.toys import toy_classifier
from tools.serve import make_server
from tools.served_model import ServedModel

pytestmark = pytest.mark.slow
TEXTS = ["a good film", "", "bad \u00e9 [SEP]"]


class GrpcServer(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers `Predict` requests."""

    def __init__(self, signature):
        self.signature = signature

    def Predict(self, request, context):
        assert (request.model_spec.name, request.model_spec.signature_name) == ("reviews", "serving_default")
        try:
            outputs = self.signature(**{name: tf.make_ndarray(value) for name, value in request.inputs.items()})
        except TypeError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        response = predict_pb2.PredictResponse()
        for name, tensor in outputs.items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(tensor.numpy(), tensor.dtype))
        return response


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A classifier, and the folder of its export."""
    classifier = toy_classifier()
    return classifier, classifier.export(tmp_path_factory.mktemp("model") / "1")


@pytest.fixture(params=["http", "grpc"])
def address(model, request):
    _, folder = model
    if request.param == "http":
        server = make_server(ServedModel(folder, "reviews"), None, 0, 30)
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()
    else:
        loaded = tf.saved_model.load(folder)
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        servicer = GrpcServer(loaded.signatures["serving_default"])
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"grpc://127.0.0.1:{port}"
        server.stop(None).wait()


def test_prints_the_models_predictions(model, address, capsys):
    serving_client.main(address, "reviews", json.dumps({"text": TEXTS}))
    outputs = json.loads(capsys.readouterr().out)
    assert_close(outputs["probabilities"], model[0].predict_probabilities(TEXTS), num_terms=64)
    assert outputs["label"] == model[0].predict_labels(TEXTS)


def test_shows_the_servers_error(address):
    with pytest.raises((RuntimeError, grpc.RpcError), match=r"400|INVALID_ARGUMENT"):
        serving_client.main(address, "reviews", json.dumps({"words": TEXTS}))
