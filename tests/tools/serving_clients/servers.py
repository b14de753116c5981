"""Servers of TensorFlow Serving's two APIs on this machine, in this process, for the tests of their clients.

The gRPC server implements the services of tensorflow-serving-api. The other one follows the REST API as
tensorflow_serving/g3doc/api_rest.md describes it, and where that is silent tensorflow_serving/util/json_tensor.cc and
model_servers/http_rest_api_util.cc (July 2026): paths, requests by rows and by columns, base64, what is refused.
"""

import base64
import concurrent.futures
import contextlib
import http.server
import json
import re
import threading
import urllib.parse

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.tools.serving_clients.served_models import DEFAULT_SIGNATURE, StatusError, shortest

_OF_MODEL = r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?"
_PREDICT, _ABOUT = re.compile(rf"(?i){_OF_MODEL}:predict"), re.compile(rf"(?i){_OF_MODEL}(/metadata)?")
_HTTP_STATUS = {"NOT_FOUND": 404, "INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400}


class _Predictions(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, models):
        self.models = models

    def Predict(self, request, context):
        return _or_abort(context, self.models.predict, request)

    def GetModelMetadata(self, request, context):
        return _or_abort(context, self.models.metadata, request)


class _Models(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, models):
        self.models = models

    def GetModelStatus(self, request, context):
        return _or_abort(context, self.models.status, request)


def _or_abort(context, method, request):
    try:
        return method(request)
    except StatusError as error:
        context.abort(grpc.StatusCode[error.code], str(error))


@contextlib.contextmanager
def grpc_server(models):
    """Serves models by gRPC; gives the address."""
    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(2),
        options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_Predictions(models), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(_Models(models), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def http_server(answer):
    """Serves a function of method, path and body that gives a status and the answer's bytes; gives the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, content = answer(self.command, self.path, self.rfile.read(int(self.headers["Content-Length"] or 0)))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *arguments):
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def rest_answers(models):
    """What a REST server of models answers, as a function for `http_server`."""

    def answer(method, path, body):
        try:
            content = json.dumps(_dispatch(models, method, path, body), ensure_ascii=False, indent=1)
            return 200, content.encode("utf-8", "surrogateescape")
        except StatusError as error:
            return _HTTP_STATUS[error.code], json.dumps({"error": str(error)}).encode()

    return answer


def _dispatch(models, method, path, body):
    found = (_PREDICT if method == "POST" else _ABOUT).fullmatch(path)
    if found is None:
        raise StatusError("INVALID_ARGUMENT", f"Malformed request: {method} {path}")
    spec = predict_pb2.PredictRequest().model_spec
    spec.name = urllib.parse.unquote(found[1])
    if found[2]:
        spec.version.value = int(found[2])
    if found[3]:
        spec.version_label = urllib.parse.unquote(found[3])
    if method == "POST":
        return _predict(models, spec, body)
    options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
    if not found[4]:
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
        return json_format.MessageToDict(models.status(request), **options)
    request = get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec, metadata_field=["signature_def"])
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response = models.metadata(request)
    response.metadata["signature_def"].Unpack(signatures)
    return {
        "model_spec": json_format.MessageToDict(response.model_spec, **options),
        "metadata": {"signature_def": json_format.MessageToDict(signatures, **options)},
    }


def _predict(models, spec, body):
    try:
        asked = json.loads(body)
    except ValueError as error:
        raise StatusError("INVALID_ARGUMENT", f"JSON Parse error: {error}") from None
    if not isinstance(asked, dict) or ("instances" in asked) == ("inputs" in asked):
        raise StatusError("INVALID_ARGUMENT", "Missing 'inputs' or 'instances' key")
    spec.signature_name = asked.get("signature_name", "")
    infos = _input_infos(models, spec)
    if "instances" in asked:
        columns = _columns_of(asked["instances"], infos)
    elif isinstance(asked["inputs"], dict) and list(asked["inputs"]) != ["b64"]:
        columns = asked["inputs"]
    else:
        columns = {min(infos): asked["inputs"]}
    request = predict_pb2.PredictRequest(model_spec=spec)
    for name, info in infos.items():
        if name not in columns:
            raise StatusError("INVALID_ARGUMENT", f"Missing named input: {name} in 'inputs' object.")
        request.inputs[name].CopyFrom(_tensor(columns[name], info))
    outputs = {name: _as_json(name, tf.make_ndarray(value)) for name, value in models.predict(request).outputs.items()}
    if "inputs" in asked:
        return {"outputs": outputs if len(outputs) > 1 else outputs.popitem()[1]}
    if len(outputs) == 1:
        return {"predictions": outputs.popitem()[1]}
    return {"predictions": [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]}


def _input_infos(models, spec):
    request = get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec, metadata_field=["signature_def"])
    signatures = get_model_metadata_pb2.SignatureDefMap()
    models.metadata(request).metadata["signature_def"].Unpack(signatures)
    name = spec.signature_name or DEFAULT_SIGNATURE
    if name not in signatures.signature_def:
        raise StatusError("INVALID_ARGUMENT", f'Serving signature name: "{name}" not found in signature def')
    return signatures.signature_def[name].inputs


def _columns_of(instances, infos):
    if not isinstance(instances, list) or not instances:
        raise StatusError("INVALID_ARGUMENT", "No values in 'instances' array")
    rows = [row if isinstance(row, dict) and list(row) != ["b64"] else {min(infos): row} for row in instances]
    for number, row in enumerate(rows):
        if set(row) != set(infos):
            message = f"Failed to process element: {number} of 'instances' list. keys must be equal to: {set(infos)}"
            raise StatusError("INVALID_ARGUMENT", message)
    return {name: [row[name] for row in rows] for name in infos}


def _tensor(values, info):
    """A tensor of nested lists, all of one length, as the server makes it; rows of no rows have but one dimension."""
    dtype, shape, level = tf.as_dtype(info.dtype), [], values
    while isinstance(level, list):
        shape.append(len(level))
        level = level[0] if level else None
    flat = []
    _flatten(values, shape, dtype, flat)
    array = np.empty(len(flat), dtype.as_numpy_dtype)
    array[:] = flat
    return tf.make_tensor_proto(array.reshape(shape), dtype)


def _flatten(values, shape, dtype, flat):
    if isinstance(values, list) != bool(shape) or (shape and len(values) != shape[0]):
        raise StatusError("INVALID_ARGUMENT", f"Encountered list at unexpected size or level: {values!r:.80}")
    if shape:
        for value in values:
            _flatten(value, shape[1:], dtype, flat)
        return
    if dtype == tf.string and isinstance(values, dict) and list(values) == ["b64"]:
        flat.append(base64.b64decode(values["b64"], validate=True))
    elif dtype == tf.string and isinstance(values, str):
        flat.append(values.encode())
    elif dtype.is_integer and isinstance(values, int) and not isinstance(values, bool):
        flat.append(values)
    else:
        message = f"JSON Value: {values!r:.80} Type: {type(values).__name__} is not of expected type: {dtype.name}"
        raise StatusError("INVALID_ARGUMENT", message)


def _as_json(name, value):
    if isinstance(value, np.ndarray):
        return [_as_json(name, within) for within in value] if value.ndim else _as_json(name, value[()])
    if not isinstance(value, bytes):
        return shortest(value)
    if name.endswith("_bytes"):
        return {"b64": base64.b64encode(value).decode()}
    return value.decode("utf-8", "surrogateescape")  # as it is: nothing looks whether it is UTF-8
