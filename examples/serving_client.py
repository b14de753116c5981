"""Sends texts to a model on TensorFlow Serving by REST or gRPC, and prints its outputs as JSON.

    python -m examples.serving_client http://localhost:8501 reviews '{"text": ["a fine film", "dull"]}'
    python -m examples.serving_client grpc://localhost:8500 answers '{"question": ["Who?"], "context": ["Ada came."]}'

Each input is a list with one item per row. docs/serving.md lists the inputs and outputs of every model.
"""

import json
import sys
import urllib.error
import urllib.request


def predict_rest(address, model, inputs, signature="serving_default", timeout=10.0):
    """Returns {output name: nested list}; a model with one output returns its list without a name."""
    body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
    request = urllib.request.Request(f"http://{address}/v1/models/{model}:predict", body)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return json.load(response)["outputs"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"HTTP {error.code}: {error.read().decode(errors='replace')}") from error


def predict_grpc(address, model, inputs, signature="serving_default", timeout=10.0):
    """Returns {output name: NumPy array}. Strings are bytes."""
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = model, signature
    for name, values in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    # A reply with all words of long texts can exceed the default limit of 4 MB.
    with grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.Predict(request, timeout=timeout)
    return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}


def main(server, model, inputs):
    """Prints the outputs for `inputs`, a JSON object."""
    scheme, _, address = server.partition("://")
    predict = {"http": predict_rest, "grpc": predict_grpc}[scheme]
    outputs = predict(address, model, json.loads(inputs))
    if scheme == "grpc":
        outputs = {name: array.tolist() for name, array in outputs.items()}
    print(json.dumps(outputs, indent=2, default=lambda string: string.decode(errors="replace")))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python -m examples.serving_client http://HOST:PORT|grpc://HOST:PORT MODEL INPUTS")
    main(*sys.argv[1:])
