"""Some of the examples held out, to choose the best model by, or to test it on."""

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


def cross_validation_fold(examples, fold, seed, num_folds=5):
    """Parts examples into those to train on, to choose the best model by, and to test it on, for one of several folds.

    The examples are shuffled and cut into as many parts as there are folds. A fold tests on the part of its number,
    chooses by the next one (the last fold by the first part), and trains on the rest. CODAH is evaluated so (arXiv
    1904.04365): its own folds, files in `data/cv_split` of Websail-NU/CODAH, are drawn without regard to categories,
    too, and have parts of the same sizes, but of other questions.

    Args:
        examples: iterable that can be read again, and gives the same examples each time.
        fold: int from 0 to `num_folds` - 1.
        seed: int. All folds of a cross-validation have the same one.
        num_folds: int, at least 3.

    Returns:
        Three `ExampleStream`s: train, dev and test, each in the order of `examples`. Together they have every example
        once, and the test parts of all folds have, too.

    Raises:
        ValueError: if there is no such fold, or there are fewer examples than folds.

    Example:

    >>> train, dev, test = cross_validation_fold([{"text": letter} for letter in "abcdefghij"], fold=0, seed=1)
    >>> [len(list(part)) for part in (train, dev, test)]
    [6, 2, 2]
    """
    if num_folds < 3:
        raise ValueError(f"num_folds must be at least 3, for train, dev and test; got {num_folds}")
    if not 0 <= fold < num_folds:
        raise ValueError(f"fold must be from 0 to {num_folds - 1}, got {fold}")
    number = sum(1 for _ in examples)
    if number < num_folds:
        raise ValueError(f"{number} examples cannot be cut into {num_folds} parts of at least one")
    places = np.random.default_rng(seed).permutation(number)
    part_of_place = np.empty(number, int)
    for part, its_places in enumerate(np.array_split(places, num_folds)):
        part_of_place[its_places] = part
    split_of_part = np.full(num_folds, "train", object)
    split_of_part[fold], split_of_part[(fold + 1) % num_folds] = "test", "dev"
    splits = split_of_part[part_of_place]

    def read(wanted):
        return (example for example, split in zip(examples, splits, strict=True) if split == wanted)

    return tuple(
        ExampleStream(
            functools.partial(read, wanted),
            f"{examples!r}, {wanted} of fold {fold} of {num_folds} with seed {seed}",
        )
        for wanted in ("train", "dev", "test")
    )
