"""A client of TensorFlow Serving's gRPC API, made of the protos of tensorflow-serving-api."""

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tools.serving_clients.client import ServingClient, ServingError, Version
from tools.serving_clients.signature import Signature, Tensor

_SIGNATURES = "signature_def"  # the one kind of metadata that the server has
_OPTIONS = [
    ("grpc.max_send_message_length", -1),  # else 4 MB, less than a batch of long texts with all their words
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
]


class GrpcClient(ServingClient):
    """Asks a model by gRPC; see `ServingClient`."""

    def __init__(self, address, model, version=None, timeout_seconds=10.0):
        super().__init__(address, model, version, timeout_seconds)
        self._channel = grpc.insecure_channel(address, _OPTIONS)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def close(self):
        """Closes the connection."""
        self._channel.close()

    def versions(self):
        """The versions of the model; see `ServingClient`."""
        request = get_model_status_pb2.GetModelStatusRequest()
        self._fill(request.model_spec)
        states = get_model_status_pb2.ModelVersionStatus.State
        return [
            Version(each.version, states.Name(each.state), each.status.error_message)
            for each in self._call(self._models.GetModelStatus, request).model_version_status
        ]

    def _read_signatures(self):
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=[_SIGNATURES])
        self._fill(request.model_spec)
        found = get_model_metadata_pb2.SignatureDefMap()
        if not self._call(self._predictions.GetModelMetadata, request).metadata[_SIGNATURES].Unpack(found):
            raise ServingError(f"{self.address} answered without the signatures of {self._of_model()}")
        return {
            name: Signature(_tensors(signature.inputs), _tensors(signature.outputs))
            for name, signature in found.signature_def.items()
        }

    def _ask(self, fitted, signature):
        request = predict_pb2.PredictRequest()
        self._fill(request.model_spec)
        request.model_spec.signature_name = signature
        for name, spec in self.signature(signature).inputs.items():
            dtype = tf.as_dtype(spec.dtype)
            try:
                array = np.array(fitted[name].items, dtype.as_numpy_dtype).reshape(fitted[name].shape)
            except OverflowError as error:
                raise ValueError(f"{name} must be {spec}: {error}") from None
            request.inputs[name].CopyFrom(tf.make_tensor_proto(array, dtype))
        outputs = self._call(self._predictions.Predict, request).outputs
        return {name: _nested_list(tf.make_ndarray(value)) for name, value in sorted(outputs.items())}

    def _fill(self, model_spec):
        model_spec.name = self.model
        if isinstance(self.version, int):
            model_spec.version.value = self.version
        elif self.version is not None:
            model_spec.version_label = self.version

    def _call(self, method, request):
        try:
            return method(request, timeout=self.timeout_seconds)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
        if code == grpc.StatusCode.UNAVAILABLE:
            reason = f"{self.address} is not available: {details}. Is it the port for gRPC (8500, if not changed)?"
        elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
            reason = f"{self.address} has not answered in {self.timeout_seconds:g} seconds ({details})"
        elif code == grpc.StatusCode.NOT_FOUND:
            reason = f"{self.address} does not serve {self._of_model()}: {details}"
        else:
            reason = f"{self.address} refused the request ({code.name}): {details}"
        raise ServingError(reason)


def _tensors(infos):
    tensors = {}
    for name, info in sorted(infos.items()):
        shape = info.tensor_shape
        sizes = None if shape.unknown_rank else tuple(each.size for each in shape.dim)
        tensors[name] = Tensor(types_pb2.DataType.Name(info.dtype).removeprefix("DT_").lower(), sizes)
    return tensors


def _nested_list(array):
    if array.dtype == object:
        return np.vectorize(lambda value: value.decode("utf-8", "replace"), otypes=[object])(array).tolist()
    if np.issubdtype(array.dtype, np.floating):
        # By way of the shortest decimal, as the server writes JSON: 0.1, not 0.10000000149011612.
        return array.astype(str).astype(float).tolist()
    return array.tolist()
