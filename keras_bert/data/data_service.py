"""Batches that the workers of a tf.data service put together, for one or several processes that train on them."""

import tensorflow as tf

from keras_bert.io.addresses import speaks_grpc, split_address

_SCHEME = "grpc://"
_ANSWER_SECONDS = 5.0
# The data travel to the service in the graph of the pipeline, a protocol buffer, which cannot be larger than 2 GiB.
_MOST_BYTES = (1 << 31) - (1 << 24)


def service_batches(examples, plan, service, job_name, first_epoch=0, epochs=None):
    """Batches of ids and labels that a tf.data service's workers put together from examples that were tokenized.

    All processes that give the same `job_name` share the batches: each goes to one of them, whichever asks first, so
    that all of them together see every example once an epoch. The order of an epoch is that of the plan, as far as
    the workers keep step: batches that are under way when an epoch ends mix with the first of the next.

    The examples go to the service with the pipeline, once for a job; neither service nor consumers need any file.

    Args:
        examples: `TokenizedExamples` with labels; the same in all processes.
        plan: a `BatchPlan` of their lengths. Its batches are those of one process: of a global batch on N processes
            each takes N-th parts.
        service: str. The dispatcher's address, grpc://host:port, of the same TensorFlow version as this one.
        job_name: str. One that was never used with this service: one that is used again gives the rest of the job of
            that name, which is nothing if that has ended.
        first_epoch: int.
        epochs: int or None. How many; None is without end.

    Returns:
        tf.data.Dataset of `(inputs, labels)`, as of `training_batches`. Its iterator cannot be checkpointed. It waits
        where the service has no worker.

    Raises:
        ConnectionError: if there is no dispatcher at this address, or it refuses the pipeline.
        ValueError: if the address is malformed, there is no name, or the examples are too large.

    Example:

    >>> from keras_bert.data.batching import BatchPlan
    >>> from keras_bert.data.tokenized_examples import TokenizedExamples
    >>> servers = tf.data.experimental.service
    >>> dispatcher = servers.DispatchServer()
    >>> address = dispatcher.target.removeprefix("grpc://")
    >>> worker = servers.WorkerServer(servers.WorkerConfig(dispatcher_address=address))
    >>> examples = TokenizedExamples([2, 7, 3, 2, 3], [3, 2], [3, 2], labels=np.array([0, 1]))
    >>> plan = BatchPlan(examples.lengths, batch_size=2)
    >>> batches = service_batches(examples, plan, dispatcher.target, job_name="first", epochs=1)
    >>> [labels.numpy().tolist() for inputs, labels in batches]
    [[0, 1]]
    """
    if not job_name:
        raise ValueError("job_name is empty; give one that was never used with this service")
    _check_size(examples, plan)
    check_service(service)
    pipeline = _pipeline(examples, plan, first_epoch, epochs)
    try:
        # Under the job's name, so that the second process need not send the examples again.
        dataset_id = tf.data.experimental.service.register_dataset(service, pipeline, dataset_id=job_name)
    except tf.errors.OpError as error:
        raise ConnectionError(
            f"the tf.data service {service} did not take the data: {error.message}. Is this the address of its "
            f"dispatcher, and the service of TensorFlow {tf.__version__}, as this process is?"
        ) from error
    return tf.data.experimental.service.from_dataset_id(
        tf.data.experimental.service.ShardingPolicy.DYNAMIC, service, dataset_id, pipeline.element_spec, job_name
    )


def parse_service_address(service):
    """Takes the address of a tf.data service apart.

    Args:
        service: str.

    Returns:
        (str, int): host and port.

    Raises:
        ValueError: if it is not grpc://host:port.

    Example:

    >>> parse_service_address("grpc://data.example:5050")
    ('data.example', 5050)
    """
    address = split_address(service.removeprefix(_SCHEME)) if service.startswith(_SCHEME) else None
    if address is None:
        raise ValueError(
            f"the address of a tf.data service is grpc://host:port with a port from 1 to 65535, got {service!r}"
        )
    return address


def check_service(service):
    """Refuses the address of a tf.data service where no gRPC server answers: TensorFlow would wait without end.

    Args:
        service: str, grpc://host:port.

    Raises:
        ConnectionError: if nothing answers within 5 seconds.
        ValueError: if the address is malformed.
    """
    host, port = parse_service_address(service)
    try:
        is_server = speaks_grpc(host, port, _ANSWER_SECONDS)
    except OSError as error:
        raise ConnectionError(
            f"the tf.data service {service} does not answer: {error}. Start it (python -m tools.data_service), or give "
            "its dispatcher's address"
        ) from error
    if not is_server:
        raise ConnectionError(
            f"what answers at {service} is no tf.data service. Give the address of its dispatcher, as "
            "python -m tools.data_service prints it"
        )


def _check_size(examples, plan):
    tensors = [value for part in (examples, plan) for value in vars(part).values() if tf.is_tensor(value)]
    size = sum(tensor.dtype.size * tensor.shape.num_elements() for tensor in tensors)
    if size > _MOST_BYTES:
        raise ValueError(
            f"the {len(examples)} examples are {size:,} bytes of ids, lengths and labels, and only {_MOST_BYTES:,} can "
            "be sent to a tf.data service. Train without one, or on fewer examples"
        )


def _pipeline(examples, plan, first_epoch, epochs):
    """What the service's workers run. They share the numbers of the batches, one at a time, between them."""
    size = plan.batches_per_epoch
    end = tf.int64.max if epochs is None else (first_epoch + epochs) * size

    def batches_of(epoch):
        batches = plan.dataset(epoch).take(size).ragged_batch(size).get_single_element()
        return epoch, batches.values, batches.row_splits

    def indices(state, number):
        epoch, position = number // size, number % size
        # A worker's numbers ascend: it keeps the order of the examples of an epoch as long as that lasts.
        state = tf.cond(tf.equal(state[0], epoch), lambda: state, lambda: batches_of(epoch))
        _, values, splits = state
        return state, values[splits[position] : splits[position + 1]]

    def batch(numbers):
        return examples.batch(numbers, plan.bucket_step or 1)

    nothing = (tf.constant(-1, tf.int64), tf.zeros([0], tf.int64), tf.zeros([0], tf.int64))
    numbers = tf.data.Dataset.range(first_epoch * size, end)
    options = tf.data.Options()
    options.autotune.enabled = False  # nothing is to be tuned, and a worker's end would wait for it, up to a minute
    return numbers.scan(nothing, indices).map(batch, num_parallel_calls=1).prefetch(2).with_options(options)
