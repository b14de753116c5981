"""Batches that the workers of a tf.data service form, for one or several training processes."""

import tensorflow as tf

from keras_bert.data.batching import BatchPlan
from keras_bert.data.tokenized_examples import TokenizedExamples
from keras_bert.io.addresses import speaks_grpc, split_address

_SCHEME = "grpc://"
_TIMEOUT_SECONDS = 5.0
# The examples are sent in the graph of the pipeline, a protocol buffer, which cannot be larger than 2 GiB.
_MAX_BYTES = (1 << 31) - (1 << 24)


def service_batches(
    examples: TokenizedExamples,
    plan: BatchPlan,
    service: str,
    job_name: str,
    first_epoch: int = 0,
    epochs: int | None = None,
) -> tf.data.Dataset:
    """Reads batches of ids and labels that the workers of a tf.data service form from tokenized examples.

    All processes that give the same `job_name` share the batches: each batch goes to the process that asks first, so
    that all of them together see every example once per epoch. Batches come in the order of the plan, as far as the
    workers keep pace: the last batches of an epoch mix with the first of the next.

    The examples are sent with the pipeline, once per job; neither the service nor its clients need files.

    The examples are the same in all processes. The plan describes the batches of one process: with N processes, each
    batch is an N-th of a global batch. `service` is the address of the dispatcher, grpc://host:port, which runs the
    same version of TensorFlow. The name of the job must be new to the service: with a used one, only the rest of that
    job is read, possibly nothing.

    Returns `(inputs, labels)`, like `training_batches`. The iterator cannot be checkpointed, and waits if the service
    has no workers. Raises ConnectionError if there is no dispatcher at this address, or it refuses the pipeline, and
    ValueError if the examples are too large.
    """
    if not job_name:
        raise ValueError("job_name is empty; give one that was never used with this service")
    _check_size(examples, plan)
    check_service(service)
    pipeline = _make_pipeline(examples, plan, first_epoch, epochs)
    try:
        # Registered under the job's name, so that the second process does not send the examples again.
        dataset_id = tf.data.experimental.service.register_dataset(service, pipeline, dataset_id=job_name)
    except tf.errors.OpError as error:
        raise ConnectionError(
            f"the tf.data service {service} refused the data: {error.message}. Check that this is the address of its "
            f"dispatcher, and that it runs TensorFlow {tf.__version__}, as this process does"
        ) from error
    return tf.data.experimental.service.from_dataset_id(
        tf.data.experimental.service.ShardingPolicy.DYNAMIC, service, dataset_id, pipeline.element_spec, job_name
    )


def parse_service_address(service: str) -> tuple[str, int]:
    """Splits the address of a tf.data service into host and port; raises ValueError if it is malformed."""
    address = split_address(service.removeprefix(_SCHEME)) if service.startswith(_SCHEME) else None
    if address is None:
        raise ValueError(
            f"the address of a tf.data service is grpc://host:port with a port from 1 to 65535, got {service!r}"
        )
    return address


def check_service(service: str) -> None:
    """Raises ConnectionError unless a gRPC server answers within 5 seconds; TensorFlow would wait forever."""
    host, port = parse_service_address(service)
    try:
        is_server = speaks_grpc(host, port, _TIMEOUT_SECONDS)
    except OSError as error:
        raise ConnectionError(
            f"the tf.data service {service} does not answer: {error}. Start it (python -m tools.data_service), or give "
            "the address of its dispatcher"
        ) from error
    if not is_server:
        raise ConnectionError(
            f"the server at {service} is not a tf.data service. Give the address of the dispatcher, which "
            "python -m tools.data_service prints"
        )


def _check_size(examples: TokenizedExamples, plan: BatchPlan) -> None:
    tensors = [value for part in (examples, plan) for value in vars(part).values() if tf.is_tensor(value)]
    size = sum(tensor.dtype.size * tensor.shape.num_elements() for tensor in tensors)
    if size > _MAX_BYTES:
        raise ValueError(
            f"the {len(examples)} examples have {size:,} bytes of ids, lengths and labels, and at most {_MAX_BYTES:,} "
            "can be sent to a tf.data service. Train without a service, or on fewer examples"
        )


def _make_pipeline(
    examples: TokenizedExamples, plan: BatchPlan, first_epoch: int, epochs: int | None
) -> tf.data.Dataset:
    """Returns the pipeline of the service's workers, which take the indices of the batches one at a time."""
    size = plan.batches_per_epoch
    end = tf.int64.max if epochs is None else (first_epoch + epochs) * size

    def plan_epoch(epoch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        batches = plan.dataset(epoch).take(size).ragged_batch(size).get_single_element()
        return epoch, batches.values, batches.row_splits

    def batch_indices(state: tuple[tf.Tensor, tf.Tensor, tf.Tensor], number: tf.Tensor) -> tuple:
        epoch, position = number // size, number % size
        # The indices of one worker are ascending: it keeps the plan of an epoch until the next.
        state = tf.cond(tf.equal(state[0], epoch), lambda: state, lambda: plan_epoch(epoch))
        _, values, splits = state
        return state, values[splits[position] : splits[position + 1]]

    initial_state = (tf.constant(-1, tf.int64), tf.zeros([0], tf.int64), tf.zeros([0], tf.int64))
    options = tf.data.Options()
    options.autotune.enabled = False  # there is nothing to tune, and a worker would wait up to a minute for it at exit
    indices = tf.data.Dataset.range(first_epoch * size, end).scan(initial_state, batch_indices)
    batches = indices.map(lambda rows: examples.batch(rows, plan.bucket_step or 1), num_parallel_calls=1)
    return batches.prefetch(2).with_options(options)
