"""Training batches, from this process or from the workers of a tf.data service."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator

import tensorflow as tf

from keras_bert.data.batching import BatchPlan, training_batches
from keras_bert.data.data_service import check_service, service_batches
from keras_bert.data.tokenized_examples import TokenizedExamples
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.runtime import FineTuningRuntime
from keras_bert.training.strategy import (
    broadcast_from_chief,
    get_num_local_replicas,
    get_num_workers,
    get_worker,
    needs_static_shapes,
)


def training_input(
    examples: TokenizedExamples,
    plan: BatchPlan,
    strategy: tf.distribute.Strategy,
    resumed_at: int | None,
    recipe: FineTuningRecipe,
    runtime: FineTuningRuntime,
) -> tf.data.Dataset:
    """Returns endless batches `(inputs, labels)` of this worker; all workers call it.

    With a service, a resumed training (at step `resumed_at`) begins a new pass over the data. With static shapes
    elements have a `sample_weight`, and their rows divide by replicas and accumulation steps.
    """
    if runtime.data_service is None:
        multiple = get_num_local_replicas(strategy) * runtime.gradient_accumulation_steps
        static_rows = multiple if recipe.static_shapes else None
        return training_batches(examples, plan, *get_worker(strategy), static_rows_multiple=static_rows)
    batch_size, token_budget = _sizes_per_worker(strategy, recipe)
    part = BatchPlan(examples.lengths, batch_size, token_budget, plan.bucket_step, plan.seed)
    # The number is new for every attempt: for a known name, the service would continue the old job.
    number, step = (int(value) for value in broadcast_from_chief(strategy, [secrets.randbits(52), resumed_at or 0]))
    first_epoch = -(-step // plan.batches_per_epoch)
    name = f"training_{number:013x}_from_{step}"
    return service_batches(examples, part, runtime.data_service, name, first_epoch)


def check_training_input(strategy: tf.distribute.Strategy, recipe: FineTuningRecipe, data_service: str | None) -> None:
    """Raises ValueError or ConnectionError for settings that `training_input` or the strategy would fail on."""
    if needs_static_shapes(strategy) and not recipe.static_shapes:
        raise ValueError("on a TPU all batches must have one shape: leave static_shapes=False out")
    for name, value in (("token_budget", recipe.token_budget), ("data_service", data_service)):
        if recipe.static_shapes and value is not None:
            raise ValueError(
                f"{name} makes batches of different shapes, and with static_shapes (which a TPU needs) all have one"
            )
    if data_service is not None:
        _sizes_per_worker(strategy, recipe)
        check_service(data_service)


def describe_training_input(recipe: FineTuningRecipe, data_service: str | None) -> dict[str, str]:
    """Describes the source of the batches, and their shape, for the log."""
    if data_service is None:
        return {"batch shape": "one for all batches" if recipe.static_shapes else "by the longest bucket of the batch"}
    return {
        "input": f"tf.data service at {data_service}: each worker takes batches of its own size as they come",
        "data order": "by seed and epoch, as far as the service's workers keep step; not reproducible",
    }


@contextlib.contextmanager
def explain_service_errors(data_service: str | None) -> Iterator[None]:
    """Raises ConnectionError where a restarted tf.data service has forgotten the training."""
    try:
        yield
    except tf.errors.NotFoundError as error:
        if data_service is None:
            raise
        raise ConnectionError(
            f"the tf.data service {data_service} does not know this training any more; was it restarted without "
            f"--work_dir? Re-run the same command to resume from the newest checkpoint ({error.message})"
        ) from error


def _sizes_per_worker(strategy: tf.distribute.Strategy, recipe: FineTuningRecipe) -> list[int | None]:
    """Returns `batch_size` and `token_budget` of one worker: the service gives each batch to a single worker."""
    workers = get_num_workers(strategy)
    sizes = {"batch_size": recipe.batch_size, "token_budget": recipe.token_budget}
    for name, size in sizes.items():
        if size is not None and size % workers:
            allowed = sorted({max(size // workers, 1) * workers, -(-size // workers) * workers})
            raise ValueError(
                f"with data_service each of the {workers} workers takes batches of its own, and {name}={size} does "
                f"not divide by {workers}; take {' or '.join(map(str, allowed))}"
            )
    return [None if size is None else size // workers for size in sizes.values()]
