"""What all trainings have in common: how their workers begin and end, and what a resumed run may change."""

from keras_bert.training.cluster import watch_workers
from keras_bert.training.strategy import cluster_of, make_strategy, worker_barrier

# What may change when a run is resumed. (Other micro-batches draw other dropout.)
MAY_CHANGE = (
    "checkpoint_every",
    "log_every",
    "steps_per_execution",
    "progress",
    "gradient_accumulation_steps",
    "jit_compile",
)


def run_on_worker(work, strategy=None):
    """Does one worker's part of a training, while the other workers are watched.

    Args:
        work: function of the strategy.
        strategy: tf.distribute.Strategy; None is one device.

    Returns:
        What `work` gives.

    Raises:
        WorkerLostError: if another worker is lost; the message names it.
    """
    strategy = strategy or make_strategy("one_device")
    with watch_workers(cluster_of(strategy)):
        results = work(strategy)
        worker_barrier(strategy)()  # the end of one would look like a fault to those that are still there
    return results
