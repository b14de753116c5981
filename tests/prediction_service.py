"""A test double of TensorFlow Serving's gRPC server: its real protos, with SavedModels loaded in Python.

The server itself is not run. The codes of errors are those of its source: `predict_util.cc`,
`get_model_metadata_impl.cc` and `server_core.cc` of version 2.20.
"""

import concurrent.futures
import contextlib

import grpc
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the operations of the tokenizer)
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc

_CODES = {code.value[0]: code for code in grpc.StatusCode}
INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


class PredictionServiceDouble(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers `Predict` and `GetModelMetadata` for one model.

    Args:
        name: name of the model.
        folders: folder of a SavedModel by its version.
        labels: version by label.
    """

    def __init__(self, name, folders, labels=None):
        self._name = name
        self._labels = labels or {}
        self._folders = folders
        self._models = {version: tf.saved_model.load(str(folder)) for version, folder in folders.items()}

    def Predict(self, request, context):
        version = self._find_version(request.model_spec, context)
        name = request.model_spec.signature_name or "serving_default"
        signature = self._models[version].signatures.get(name)
        if signature is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
        if request.inputs.keys() != signature.structured_input_signature[1].keys():
            context.abort(INVALID, f"input size does not match signature: {sorted(request.inputs)}")
        if unknown := set(request.output_filter) - signature.structured_outputs.keys():
            context.abort(INVALID, f"output tensor alias not found in signature: {unknown}")
        try:
            inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
            outputs = signature(**{key: tf.constant(value) for key, value in inputs.items()})
        except tf.errors.OpError as error:
            context.abort(_CODES[error.error_code], error.message)
        except (TypeError, ValueError) as error:  # another type or shape
            context.abort(INVALID, str(error))
        response = predict_pb2.PredictResponse(model_spec=request.model_spec)
        response.model_spec.version.value = version
        for key in request.output_filter or outputs:
            response.outputs[key].CopyFrom(tf.make_tensor_proto(outputs[key].numpy(), outputs[key].dtype))
        return response

    def GetModelMetadata(self, request, context):
        if list(request.metadata_field) != ["signature_def"]:
            context.abort(INVALID, f"Metadata field {list(request.metadata_field)} is not supported")
        version = self._find_version(request.model_spec, context)
        model = saved_model_pb2.SavedModel.FromString((self._folders[version] / "saved_model.pb").read_bytes())
        signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=model.meta_graphs[0].signature_def)
        response = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=request.model_spec)
        response.model_spec.version.value = version
        response.metadata["signature_def"].Pack(signatures)
        return response

    def _find_version(self, spec, context):
        """Returns the version that a request asks for; by default the newest."""
        version = max(self._models)
        if spec.HasField("version"):
            version = spec.version.value
        elif spec.version_label:
            if spec.version_label not in self._labels:
                context.abort(INVALID, f"Unrecognized servable version label: {spec.version_label}")
            version = self._labels[spec.version_label]
        if spec.name != self._name or version not in self._models:
            context.abort(NOT_FOUND, f"Servable not found for request: {spec.name}, {version}")
        return version


@contextlib.contextmanager
def running(service):
    """Runs a service in threads; the value is its address."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
