"""Requests that TensorFlow Serving replays before a model takes traffic."""

from pathlib import Path

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

WARMUP_FILE = Path("assets.extra") / "tf_serving_warmup_requests"
MOST_WARMUP_REQUESTS = 1000  # TensorFlow Serving refuses a model with more


def write_warmup_requests(path, requests):
    """Writes the warm-up file of a SavedModel.

    Args:
        path: str or Path. The folder of the SavedModel.
        requests: list of `(signature name, {input name: array})`.

    Raises:
        ValueError: if there are more requests than the server accepts.
    """
    if len(requests) > MOST_WARMUP_REQUESTS:
        raise ValueError(
            f"TensorFlow Serving takes at most {MOST_WARMUP_REQUESTS} warm-up requests, got {len(requests)}"
        )
    file = Path(path) / WARMUP_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature, inputs in requests:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = signature
            for name, value in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            writer.write(log.SerializeToString())
