"""What pipelines of several workers have in common: which worker, which epochs, and iterators that can be saved."""

import tensorflow as tf


def check_numbers(worker_index, num_workers, first_epoch=0, epochs=None, **numbers):
    """Raises if a number is out of range.

    Args:
        worker_index, num_workers: int.
        first_epoch: int.
        epochs: int or None.
        **numbers: int or None, others by name, which must be at least 1.

    Raises:
        ValueError: if there is no such worker, or a number is too small.

    Example:

    >>> check_numbers(worker_index=2, num_workers=2)
    Traceback (most recent call last):
    ValueError: worker_index must be from 0 to 1, got 2
    """
    least = {name: (value, 1) for name, value in {"num_workers": num_workers, **numbers, "epochs": epochs}.items()}
    for name, (value, smallest) in {**least, "first_epoch": (first_epoch, 0)}.items():
        if value is not None and value < smallest:
            raise ValueError(f"{name} must be at least {smallest}, got {value}")
    if not 0 <= worker_index < num_workers:
        raise ValueError(f"worker_index must be from 0 to {num_workers - 1}, got {worker_index}")


def resumable_options():
    """Options of a dataset that is one worker's own, in one order, and whose place is saved instead of its buffers.

    Returns:
        tf.data.Options.

    Example:

    >>> tf.data.Dataset.range(3).with_options(resumable_options()).options().experimental_symbolic_checkpoint
    True
    """
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_symbolic_checkpoint = True
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options
