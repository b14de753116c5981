"""Models as a server of TensorFlow Serving has them: loaded into sessions, and asked by the names of their signatures.

The texts of errors are those of the server's source (tensorflow_serving/model_servers and servables, July 2026), as far
as they are the server's own.
"""

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the operations of the tokenizer)
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2

DEFAULT_SIGNATURE = "serving_default"


class StatusError(Exception):
    """An answer that is an error.

    Args:
        code: str, the name of gRPC's status code.
        message: str.
    """

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class ServedModels:
    """The versions of models.

    Args:
        folders: dict of model name to dict of version, int, to folder of a SavedModel.
        labels: dict of model name to dict of label to version.
    """

    def __init__(self, folders, labels=None):
        self.sessions = {
            name: {version: _load(folder) for version, folder in versions.items()} for name, versions in folders.items()
        }
        self.labels = labels or {}

    def close(self):
        """Ends the sessions."""
        for versions in self.sessions.values():
            for session, _ in versions.values():
                session.close()

    def predict(self, request):
        """The `PredictResponse` to a `PredictRequest`."""
        version, (session, signatures) = self._version(request.model_spec)
        name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        if name not in signatures:
            raise StatusError("FAILED_PRECONDITION", f'Serving signature key "{name}" not found.')
        signature = signatures[name]
        if set(request.inputs) != set(signature.inputs):
            extra, missing = set(request.inputs) - set(signature.inputs), set(signature.inputs) - set(request.inputs)
            raise StatusError(
                "INVALID_ARGUMENT",
                f"input size does not match signature. Sent extra: {extra}. Missing but required: {missing}.",
            )
        feeds = {signature.inputs[key].name: tf.make_ndarray(value) for key, value in request.inputs.items()}
        try:
            outputs = session.run({key: info.name for key, info in signature.outputs.items()}, feeds)
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            raise StatusError("INVALID_ARGUMENT", str(error)) from None
        response = predict_pb2.PredictResponse()
        response.model_spec.CopyFrom(request.model_spec)
        response.model_spec.version.value = version
        for key, value in outputs.items():
            dtype = tf.string if value.dtype == object else value.dtype
            response.outputs[key].CopyFrom(tf.make_tensor_proto(value, dtype))
        return response

    def metadata(self, request):
        """The `GetModelMetadataResponse` to a `GetModelMetadataRequest`."""
        if list(request.metadata_field) != ["signature_def"]:
            raise StatusError("INVALID_ARGUMENT", f"Metadata field {request.metadata_field} is not supported")
        version, (_, signatures) = self._version(request.model_spec)
        response, found = get_model_metadata_pb2.GetModelMetadataResponse(), get_model_metadata_pb2.SignatureDefMap()
        response.model_spec.name, response.model_spec.version.value = request.model_spec.name, version
        for name, signature in signatures.items():
            found.signature_def[name].CopyFrom(signature)
        response.metadata["signature_def"].Pack(found)
        return response

    def status(self, request):
        """The `GetModelStatusResponse` to a `GetModelStatusRequest`."""
        name = request.model_spec.name
        if name not in self.sessions:
            raise StatusError("NOT_FOUND", f"Could not find any versions of model {name}")
        asked = request.model_spec.WhichOneof("version_choice")
        versions = [self._version(request.model_spec)[0]] if asked else sorted(self.sessions[name], reverse=True)
        response = get_model_status_pb2.GetModelStatusResponse()
        for version in versions:
            state = get_model_status_pb2.ModelVersionStatus.AVAILABLE
            response.model_version_status.add(version=version, state=state)
        return response

    def _version(self, spec):
        """The number of the version that is meant, and its session and signatures."""
        versions, wanted = self.sessions.get(spec.name, {}), f"Latest({spec.name})"
        version = max(versions, default=None)
        if spec.HasField("version_label"):
            if spec.version_label not in self.labels.get(spec.name, {}):
                raise StatusError("INVALID_ARGUMENT", f"Unrecognized servable version label: {spec.version_label}")
            version = self.labels[spec.name][spec.version_label]
        elif spec.HasField("version"):
            version = spec.version.value
            wanted = f"Specific({spec.name}, {version})"
        if version not in versions:
            raise StatusError("NOT_FOUND", f"Servable not found for request: {wanted}")
        return version, versions[version]


def _load(folder):
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        meta_graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(folder))
    return session, meta_graph.signature_def


def shortest(value):
    """A number as the server writes it, with no more digits than tell it from others of its type."""
    return float(str(value)) if isinstance(value, np.floating) else value.item()
