"""Files that TensorFlow Serving reads with a model: warm-up requests and batching parameters."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_bert.typing import PathLike

WARMUP_FILE = Path("assets.extra") / "tf_serving_warmup_requests"
MAX_WARMUP_REQUESTS = 1000  # TensorFlow Serving refuses a model with more
BATCHING_FILE = "batching_params.pbtxt"
MAX_BATCH_SIZE = 32  # rows per run, where each row is one input of the model
_MAX_BATCH_TOKENS = 8192  # per run: longer rows are joined in smaller numbers
# Not measured: a few milliseconds are little compared with a BERT's own time, and a request that would wait for more
# than a hundred runs is better refused.
BATCH_TIMEOUT_MICROSECONDS = 2000
_MAX_ENQUEUED_BATCHES = 100


def write_warmup_requests(path: PathLike, requests: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Writes the requests (signature name, inputs) that the server replays before a model takes traffic."""
    if len(requests) > MAX_WARMUP_REQUESTS:
        raise ValueError(
            f"TensorFlow Serving takes at most {MAX_WARMUP_REQUESTS} warm-up requests, got {len(requests)}"
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


def max_batch_size(sequence_length: int, inputs_per_row: int = 1) -> int:
    """Returns the maximum number of rows that a server joins, for rows of up to `inputs_per_row` long inputs.

    >>> max_batch_size(128), max_batch_size(512), max_batch_size(384, inputs_per_row=4)
    (32, 16, 5)
    """
    return max(1, min(MAX_BATCH_SIZE, _MAX_BATCH_TOKENS // sequence_length) // inputs_per_row)


def allowed_batch_sizes(largest: int) -> list[int]:
    """Returns sizes that a server fills batches up to: few shapes for a GPU, and less than a fifth of copied rows.

    >>> allowed_batch_sizes(32)
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32]
    """
    sizes, size = [], 1
    while size < largest:
        sizes.append(size)
        size += 2 ** max(0, size.bit_length() - 3)  # four sizes per doubling
    return [*sizes, largest]


def write_batching_parameters(path: PathLike, max_batch_size: int) -> Path:
    """Writes the parameters for a server with `--enable_batching --enable_per_model_batching_parameters`.

    Source: TensorFlow Serving's BatchingParameters, as `bundle_factory_util.cc` reads them. The number of threads is a
    setting of the server, shared by all models.

    >>> print(write_batching_parameters(tempfile.mkdtemp(), 3).read_text(), end="")
    max_batch_size { value: 3 }
    batch_timeout_micros { value: 2000 }
    max_enqueued_batches { value: 100 }
    allowed_batch_sizes: [1, 2, 3]
    """
    file = Path(path) / BATCHING_FILE
    file.write_text(
        f"max_batch_size {{ value: {max_batch_size} }}\n"
        f"batch_timeout_micros {{ value: {BATCH_TIMEOUT_MICROSECONDS} }}\n"
        f"max_enqueued_batches {{ value: {_MAX_ENQUEUED_BATCHES} }}\n"
        f"allowed_batch_sizes: {allowed_batch_sizes(max_batch_size)}\n",
        encoding="utf-8",
    )
    return file
