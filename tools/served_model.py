"""Runs the signatures of a SavedModel on the requests of TensorFlow Serving's REST API, without keras_bert.

Requests and responses are the values of their JSON. An invalid request raises ValueError.
"""

import base64
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the operations of the tokenizer)
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2

from tools.serving_signature import SIGNATURE, read_labels, to_python

_FORMATS = {"instances", "inputs"}  # rows and columns


class ServedModel:
    """A loaded SavedModel.

    Attributes:
        name: name of the model in addresses.
        version: name of its folder if that is a number, else "1".
        labels: names of the labels, or None.
    """

    def __init__(self, folder, name):
        folder = Path(folder)
        self.name = name
        self.version = folder.name if folder.name.isdigit() else "1"
        self.labels = read_labels(folder)
        self._definitions = _read_definitions(folder)
        self._model = tf.saved_model.load(str(folder))  # the signatures do not keep the variables alive

    def status(self):
        """Returns the response to a request for the status of the model."""
        status = {"error_code": "OK", "error_message": ""}
        return {"model_version_status": [{"version": self.version, "state": "AVAILABLE", "status": status}]}

    def metadata(self):
        """Returns the response to a request for the signatures."""
        return {
            "model_spec": {"name": self.name, "signature_name": "", "version": self.version},
            "metadata": {"signature_def": {"signature_def": self._definitions}},
        }

    def predict(self, request):
        """Runs a signature and returns the response, `{"predictions": …}` for rows and `{"outputs": …}` for columns."""
        if not isinstance(request, dict) or len(_FORMATS & request.keys()) != 1:
            raise ValueError('the request must be a JSON object with either "instances" (rows) or "inputs" (columns)')
        name = request.get("signature_name") or SIGNATURE
        signatures = self._model.signatures
        if not isinstance(name, str) or name not in signatures:
            raise ValueError(f"there is no signature {name!r}; the model has {sorted(signatures)}")
        _, specs = signatures[name].structured_input_signature
        is_row = "instances" in request
        columns = read_rows(request["instances"], specs) if is_row else read_columns(request["inputs"], specs)
        tensors = {name: to_tensor(name, columns[name], spec) for name, spec in specs.items()}
        try:
            outputs = signatures[name](**tensors)
        except tf.errors.OpError as error:
            raise ValueError(f"the model refuses the request: {_cause(error.message)}") from error
        arrays = {name: np.array(output.numpy(), output.dtype.as_numpy_dtype) for name, output in outputs.items()}
        return {"predictions": to_rows(arrays)} if is_row else {"outputs": to_columns(arrays)}


def _read_definitions(folder):
    """Returns the signatures as JSON, from the file."""
    model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
    definitions = model.meta_graphs[0].signature_def
    return {name: json_format.MessageToDict(definitions[name], **options) for name in sorted(definitions)}


def read_rows(instances, specs):
    """Returns {input name: list of its values} of a request by rows; of one input, a row may be the value itself."""
    if not isinstance(instances, list) or not instances:
        raise ValueError('"instances" must be a list of one row or more')
    if len(specs) == 1 and not any(_is_object(row) for row in instances):
        return {name: instances for name in specs}
    for number, row in enumerate(instances):
        if not _is_object(row) or row.keys() != specs.keys():
            raise ValueError(f"row {number} must be an object with the keys {sorted(specs)}")
    return {name: [row[name] for row in instances] for name in specs}


def read_columns(inputs, specs):
    """Returns {input name: its value} of a request by columns; of one input, it may be the value itself."""
    if len(specs) == 1 and not _is_object(inputs):
        return {name: inputs for name in specs}
    if not _is_object(inputs) or inputs.keys() != specs.keys():
        raise ValueError(f'"inputs" must be an object with the keys {sorted(specs)}')
    return inputs


def to_tensor(name, value, spec):
    """Converts a JSON value to a tensor of an input."""
    try:
        value = _decode_bytes(value)
        tensor = tf.constant(value, spec.dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"input {name!r} must be {_describe(spec)}: {_cause(str(error))}") from None
    if not spec.shape.is_compatible_with(tensor.shape):
        raise ValueError(f"input {name!r} must be {_describe(spec)}; its shape is {tensor.shape}")
    if spec.dtype.is_integer and tensor.numpy().tolist() != value:  # `tf.constant` wraps what does not fit
        raise ValueError(f"input {name!r} must be {_describe(spec)}: a number is out of range")
    return tensor


def to_rows(arrays):
    """Returns a JSON value per row: an object of all outputs, or the value of the only one."""
    counts = {name: len(array) if array.ndim else None for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or None in counts.values():
        raise ValueError(f'the outputs differ in their number of rows: {counts}; send "inputs" instead of "instances"')
    columns = {name: to_python(array) for name, array in arrays.items()}
    if len(columns) == 1:
        return next(iter(columns.values()))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def to_columns(arrays):
    """Returns an object with a JSON value per output, or the value of the only one."""
    columns = {name: to_python(array) for name, array in arrays.items()}
    return columns if len(columns) > 1 else next(iter(columns.values()))


def _is_bytes(value):
    return isinstance(value, dict) and value.keys() == {"b64"}


def _is_object(value):
    return isinstance(value, dict) and not _is_bytes(value)


def _decode_bytes(value):
    """Decodes every `{"b64": …}` in nested lists."""
    if isinstance(value, list):
        return [_decode_bytes(each) for each in value]
    return base64.b64decode(value["b64"], validate=True) if _is_bytes(value) else value


def _describe(spec):
    return f"{spec.dtype.name} of shape {spec.shape}"


def _cause(message):
    """Returns the line of an error of TensorFlow that says what is wrong, which precedes the nodes of the graph."""
    return message.split("[[{{")[0].split(" [Op:")[0].strip().split("\n")[-1]
