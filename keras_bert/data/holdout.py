"""Some of the examples held out, to choose the best model by."""

import functools

import numpy as np

from keras_bert.data.example_stream import ExampleStream


def hold_out(examples, share, seed):
    """Parts examples into those to train on and those held out, by a draw for each that its number and a seed fix.

    Args:
        examples: iterable that can be read again.
        share: float between 0 and 1. The probability of an example to be held out.
        seed: int.

    Returns:
        Two `ExampleStream`s: the rest, and the examples held out. Together they have every example once.

    Raises:
        ValueError: if the share is not between 0 and 1, or one of the two would be empty.

    Example:

    >>> rest, held_out = hold_out([{"text": str(number)} for number in range(100)], share=0.2, seed=1)
    >>> len(list(rest)), len(list(held_out))
    (81, 19)
    """
    if not 0 < share < 1:
        raise ValueError(f"the share that is held out must lie between 0 and 1, got {share}")

    def read(wanted):
        generator = np.random.default_rng(seed)
        return (example for example in examples if (generator.random() < share) is wanted)

    number = sum(1 for _ in examples)
    draws = np.random.default_rng(seed).random(number)
    if not 0 < (draws < share).sum() < number:
        raise ValueError(
            f"holding out a share of {share} with seed {seed} leaves one of the two parts of {number} examples empty; "
            "give another share or seed, or a file of examples to evaluate on"
        )
    return tuple(
        ExampleStream(functools.partial(read, wanted), f"{examples!r}, {what} by {share} with seed {seed}")
        for wanted, what in ((False, "the rest of a hold-out"), (True, "held out"))
    )
