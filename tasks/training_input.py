"""Where the batches of a training come from: this process, or the workers of a tf.data service."""

import secrets

from keras_bert.data.batching import BatchPlan, training_batches
from keras_bert.data.data_service import check_service, service_batches
from keras_bert.training.strategy import from_chief, number_of_workers, worker_of


def training_input(examples, plan, strategy, resumed_at, data_service, batch_size, token_budget, **_):
    """This worker's part of all batches, without end; all workers call it.

    Args:
        examples: `TokenizedExamples`.
        plan: the `BatchPlan` of the global batches.
        strategy: tf.distribute.Strategy.
        resumed_at: int or None. The update of the checkpoint that training goes on from.
        data_service: str, grpc://host:port of a tf.data service, or None. A new pass over the data begins there.
        batch_size, token_budget: int or None, as for `BatchPlan`, of all workers together.

    Returns:
        tf.data.Dataset of `(inputs, labels)`.

    Raises:
        ConnectionError: if the service does not answer.
        ValueError: if the service's address is malformed, or the batch does not divide by the workers.
    """
    if data_service is None:
        return training_batches(examples, plan, *worker_of(strategy))
    part = BatchPlan(
        examples.lengths, *_parts(strategy, batch_size, token_budget), bucket_step=plan.bucket_step, seed=plan.seed
    )
    # The number is new for every attempt: the service would give the rest of a job whose name it knows.
    number, update = (int(value) for value in from_chief(strategy, [secrets.randbits(52), resumed_at or 0]))
    first_epoch = -(-update // plan.batches_per_epoch)
    return service_batches(examples, part, data_service, f"training_{number:013x}_from_{update}", first_epoch)


def check_training_input(strategy, data_service, batch_size, token_budget):
    """Refuses what `training_input` would.

    Args:
        strategy, data_service, batch_size, token_budget: as for `training_input`.

    Raises:
        ConnectionError, ValueError: as `training_input`.
    """
    if data_service is not None:
        _parts(strategy, batch_size, token_budget)
        check_service(data_service)


def describe_training_input(data_service):
    """Where the batches come from, as facts for the log: dict of str to str."""
    if data_service is None:
        return {}
    return {
        "input": f"tf.data service at {data_service}: each worker takes batches of its own size as they come",
        "order of the data": "by seed and epoch, as far as the service's workers keep step; not the same again",
    }


def _parts(strategy, *sizes):
    """Each size, of all workers together, as that of one: a batch of the service goes to one of them whole."""
    workers = number_of_workers(strategy)
    for name, size in zip(("batch_size", "token_budget"), sizes, strict=True):
        if size is not None and size % workers:
            allowed = sorted({max(size // workers, 1) * workers, -(-size // workers) * workers})
            raise ValueError(
                f"with --data_service each of the {workers} workers takes batches of its own, and --{name}={size} does "
                f"not divide by {workers}; take {' or '.join(map(str, allowed))}"
            )
    return [None if size is None else size // workers for size in sizes]
