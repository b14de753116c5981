"""Where the batches of a training come from: this process, or the workers of a tf.data service."""

import contextlib
import secrets

import tensorflow as tf

from keras_bert.data.batching import BatchPlan, training_batches
from keras_bert.data.data_service import check_service, service_batches
from keras_bert.training.strategy import (
    broadcast_from_chief,
    get_num_local_replicas,
    get_num_workers,
    needs_static_shapes,
    worker_of,
)


def training_input(
    examples,
    plan,
    strategy,
    resumed_at,
    data_service,
    gradient_accumulation_steps,
    batch_size,
    token_budget,
    static_shapes,
    **_,
):
    """This worker's part of all batches, without end; all workers call it.

    Args:
        examples: `TokenizedExamples`.
        plan: the `BatchPlan` of the global batches.
        strategy: tf.distribute.Strategy.
        resumed_at: int or None. The update of the checkpoint that training goes on from.
        data_service: str, grpc://host:port of a tf.data service, or None. A new pass over the data begins there.
        gradient_accumulation_steps: int. Parts that each replica's share of a batch is cut into.
        batch_size, token_budget: int or None, as for `BatchPlan`, of all workers together.
        static_shapes: bool. Whether all batches have one shape, which divides by replicas and micro-batches.

    Returns:
        tf.data.Dataset of `(inputs, labels)`, and of `(inputs, labels, sample_weight)` with static shapes.

    Raises:
        ConnectionError: if the service does not answer.
        ValueError: if the service's address is malformed, or the batch does not divide by the workers.
    """
    if data_service is None:
        multiple = get_num_local_replicas(strategy) * gradient_accumulation_steps if static_shapes else None
        return training_batches(examples, plan, *worker_of(strategy), static_rows_multiple=multiple)
    part = BatchPlan(
        examples.lengths, *_parts(strategy, batch_size, token_budget), bucket_step=plan.bucket_step, seed=plan.seed
    )
    # The number is new for every attempt: the service would give the rest of a job whose name it knows.
    number, update = (int(value) for value in broadcast_from_chief(strategy, [secrets.randbits(52), resumed_at or 0]))
    first_epoch = -(-update // plan.batches_per_epoch)
    return service_batches(examples, part, data_service, f"training_{number:013x}_from_{update}", first_epoch)


def check_training_input(strategy, data_service, batch_size, token_budget, static_shapes):
    """Refuses what `training_input` would, and what the strategy would stumble over.

    Args:
        strategy, data_service, batch_size, token_budget, static_shapes: as for `training_input`.

    Raises:
        ConnectionError, ValueError: as `training_input`.
    """
    if needs_static_shapes(strategy) and not static_shapes:
        raise ValueError("on a TPU all batches must have one shape: leave --nostatic_shapes out")
    for name, value in (("token_budget", token_budget), ("data_service", data_service)):
        if static_shapes and value is not None:
            raise ValueError(
                f"--{name} makes batches of different shapes, and with --static_shapes (which a TPU needs) all have one"
            )
    if data_service is not None:
        _parts(strategy, batch_size, token_budget)
        check_service(data_service)


def describe_training_input(data_service, static_shapes, **_):
    """Where the batches come from, and their shape, as run_info for the log: dict of str to str."""
    if data_service is None:
        return {"shape of the batches": "one for all" if static_shapes else "that of the batch's longest bucket"}
    return {
        "input": f"tf.data service at {data_service}: each worker takes batches of its own size as they come",
        "order of the data": "by seed and epoch, as far as the service's workers keep step; not the same again",
    }


@contextlib.contextmanager
def errors_of_service(data_service):
    """Says what became of a tf.data service that has forgotten the training, as one does that is started anew.

    Args:
        data_service: str or None.

    Raises:
        ConnectionError: for TensorFlow's NotFoundError.
    """
    try:
        yield
    except tf.errors.NotFoundError as error:
        if data_service is None:
            raise
        raise ConnectionError(
            f"the tf.data service {data_service} does not know this training any more; was it started anew without "
            f"--work_dir? The same command goes on from the newest checkpoint ({error.message})"
        ) from error


def _parts(strategy, *sizes):
    """Each size, of all workers together, as that of one: a batch of the service goes to one of them whole."""
    workers = get_num_workers(strategy)
    for name, size in zip(("batch_size", "token_budget"), sizes, strict=True):
        if size is not None and size % workers:
            allowed = sorted({max(size // workers, 1) * workers, -(-size // workers) * workers})
            raise ValueError(
                f"with --data_service each of the {workers} workers takes batches of its own, and --{name}={size} does "
                f"not divide by {workers}; take {' or '.join(map(str, allowed))}"
            )
    return [None if size is None else size // workers for size in sizes]
