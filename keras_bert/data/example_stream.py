"""Examples that can be read any number of times without holding them in memory, and splits of them."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

T = TypeVar("T")

# `text`, or `text_a` and `text_b` (str); `label` (str, a float for regression, a list of str for multi-label data);
# `index` or `line` (int), where the source has them.
Example = dict[str, Any]


class ExampleStream(Generic[T]):
    """Examples that `read` yields again in each pass; `name` identifies their source in messages."""

    def __init__(self, read: Callable[[], Iterator[T]], name: str) -> None:
        self._read = read
        self.name = name

    def __iter__(self) -> Iterator[T]:
        is_empty = True
        for example in self._read():
            is_empty = False
            yield example
        if is_empty:
            raise ValueError(f"{self.name} has no usable row; the log shows the first rows that were skipped")

    def __repr__(self) -> str:
        return f"ExampleStream({self.name})"


def hold_out(examples: Iterable[T], fraction: float, seed: int) -> tuple[ExampleStream[T], ExampleStream[T]]:
    """Splits examples into a training set and a held-out set; each example is drawn by its index and the seed alone.

    Raises ValueError if `fraction` is not between 0 and 1, or one of the two sets would be empty.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"the fraction of examples to hold out must be between 0 and 1, got {fraction}")
    num_examples = sum(1 for _ in examples)
    is_held_out = np.random.default_rng(seed).random(num_examples) < fraction
    if not 0 < is_held_out.sum() < num_examples:
        raise ValueError(
            f"holding out a fraction of {fraction} of {num_examples} examples with seed {seed} leaves one of the two "
            "sets empty; give another fraction or seed, or a file of examples to evaluate on"
        )
    train, held_out = (
        _subset(examples, is_held_out == wanted, f"{set_name} at {fraction}, seed {seed}")
        for wanted, set_name in ((False, "not held out"), (True, "held out"))
    )
    return train, held_out


def cross_validation_fold(
    examples: Iterable[T], fold: int, seed: int, num_folds: int = 5
) -> tuple[ExampleStream[T], ExampleStream[T], ExampleStream[T]]:
    """Splits examples into training, development and test sets for one fold of a cross-validation.

    The examples are shuffled and cut into `num_folds` parts, at least 3. A fold is tested on the part with its index,
    the best model is chosen on the next part (the first one for the last fold), and the others are trained on. CODAH is
    evaluated this way (arXiv 1904.04365): its own folds, files in `data/cv_split` of Websail-NU/CODAH, are drawn
    regardless of categories too, and have the same sizes but other questions. Each set keeps the order of `examples`,
    which must be the same in each pass.
    """
    if num_folds < 3:
        raise ValueError(f"num_folds must be at least 3, for train, dev and test; got {num_folds}")
    if not 0 <= fold < num_folds:
        raise ValueError(f"fold must be from 0 to {num_folds - 1}, got {fold}")
    num_examples = sum(1 for _ in examples)
    if num_examples < num_folds:
        raise ValueError(f"{num_examples} examples cannot be split into {num_folds} non-empty parts")
    parts = np.empty(num_examples, int)
    for part, indices in enumerate(np.array_split(np.random.default_rng(seed).permutation(num_examples), num_folds)):
        parts[indices] = part
    is_test, is_dev = parts == fold, parts == (fold + 1) % num_folds
    train, dev, test = (
        _subset(examples, is_selected, f"{set_name} of fold {fold} of {num_folds}, seed {seed}")
        for set_name, is_selected in (("train", ~(is_test | is_dev)), ("dev", is_dev), ("test", is_test))
    )
    return train, dev, test


def _subset(examples: Iterable[T], is_selected: np.ndarray, name: str) -> ExampleStream[T]:
    return ExampleStream(partial(_select, examples, is_selected), f"{examples!r}, {name}")


def _select(examples: Iterable[T], is_selected: np.ndarray) -> Iterator[T]:
    return (example for example, selected in zip(examples, is_selected, strict=True) if selected)
