"""How TensorFlow Serving joins requests to a model, in a file that the model brings along."""

from pathlib import Path

BATCHING_FILE = "batching_params.pbtxt"
MAX_BATCH_SIZE = 32  # rows per run, where each row is one input of the model
# No result of a measurement: a few milliseconds are little beside a BERT's own time, and what waits longer than a
# hundred runs is better refused than answered too late.
_TIMEOUT_MICROSECONDS = 2000
_ENQUEUED_BATCHES = 100


def write_batching_parameters(path, max_batch_size):
    """Writes the parameters that a server with `--enable_batching --enable_per_model_batching_parameters` reads.

    Source: TensorFlow Serving's BatchingParameters, as `bundle_factory_util.cc` reads them. The number of threads is
    not among them: it is the server's own, for all models together.

    Args:
        path: str or Path. The folder of the SavedModel.
        max_batch_size: int, most rows that the server joins.

    Returns:
        Path of the file.

    Example:

    >>> print(write_batching_parameters(tempfile.mkdtemp(), 8).read_text(), end="")
    max_batch_size { value: 8 }
    batch_timeout_micros { value: 2000 }
    max_enqueued_batches { value: 100 }
    """
    file = Path(path) / BATCHING_FILE
    file.write_text(
        f"max_batch_size {{ value: {max_batch_size} }}\n"
        f"batch_timeout_micros {{ value: {_TIMEOUT_MICROSECONDS} }}\n"
        f"max_enqueued_batches {{ value: {_ENQUEUED_BATCHES} }}\n",
        encoding="utf-8",
    )
    return file
