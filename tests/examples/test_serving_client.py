"""The example client gets a model's own predictions from in-process servers of both protocols."""

import concurrent.futures
import http.server
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

pytestmark = pytest.mark.slow
TEXTS = ["a good film", "", "bad \u00e9 [SEP]"]


class RestServer(http.server.BaseHTTPRequestHandler):
    """Answers column requests as TensorFlow Serving's REST API describes them."""

    signature = None

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            assert (self.path, request["signature_name"]) == ("/v1/models/reviews:predict", "serving_default")
            outputs = self.signature(**{name: tf.constant(values) for name, values in request["inputs"].items()})
            outputs = {name: tensor.numpy().tolist() for name, tensor in outputs.items()}
            status, answer = 200, {"outputs": outputs}
        except TypeError as error:
            status, answer = 400, {"error": str(error)}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer, default=bytes.decode).encode())


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
    """A classifier, and the signature of its export."""
    classifier = toy_classifier()
    loaded = tf.saved_model.load(classifier.export(tmp_path_factory.mktemp("model") / "1"))
    return classifier, loaded.signatures["serving_default"]


@pytest.fixture(params=["http", "grpc"])
def address(model, request):
    _, signature = model
    if request.param == "http":
        handler = type("Handler", (RestServer,), {"signature": staticmethod(signature)})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()
    else:
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(GrpcServer(signature), server)
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
