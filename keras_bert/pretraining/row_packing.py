"""Packing of several pre-training instances into one row, almost without padding (arXiv 2107.02027)."""

import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.data.python_operation import python_operation
from keras_bert.data.random_order import random_key, shuffled
from keras_bert.data.worker_records import check_positive

# With these, rows of 512 tokens and at most 96 predictions are 99.6% full of sentence pairs, 99.8% of paragraphs and
# 97.8% of single sentences of 13 tokens on average. Larger values add 0.3% at most.
WINDOW = 4096  # instances
TOKENS_PER_INSTANCE = 4  # determines the maximum number of instances per row
_PREDICTION_SLACK = 1.25  # relative to the masking rate, so that predictions do not keep rows from becoming full

_TOKEN_NAMES = ("token_ids", "segment_ids", "padding_mask")
_PREDICTION_NAMES = ("masked_positions", "masked_labels", "masked_weights")
_INSTANCE_NAMES = (*_TOKEN_NAMES, *_PREDICTION_NAMES, "next_sentence_labels")
_FLOAT_NAMES = ("masked_weights", "next_sentence_weights")
_ROW_ORDER = 2  # purpose of the random key; 0 and 1 are the orders of files and records

Arrays = dict[str, np.ndarray]


def first_fit(
    lengths: np.ndarray, predictions: np.ndarray, capacity: int, max_instances: int, max_predictions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Assigns instances to rows by first-fit decreasing, computed on the histogram of lengths (cf. arXiv 2107.02027).

    A row takes `capacity` tokens, `max_instances` instances and `max_predictions` masked tokens. Returns the row of
    each instance and its offset in that row, int64 `[instances]`.
    """
    lengths, predictions = np.asarray(lengths, "int64"), np.asarray(predictions, "int64")
    _check_range("tokens", lengths, 1, capacity, "truncate or split longer instances, or use longer rows")
    _check_range("predictions", predictions, 0, max_predictions, "raise max_predictions, or mask fewer tokens")

    order = np.lexsort((-predictions, -lengths))
    needs = np.stack([lengths, np.ones_like(lengths), predictions])[:, order]
    rows, used = _place_sorted(needs, [capacity, max_instances, max_predictions])
    placed = np.empty([2, len(lengths)], "int64")
    placed[:, order] = rows, used
    return placed[0], placed[1]


def _place_sorted(needs: np.ndarray, bounds: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Applies first fit in order. `needs` are the tokens, 1, and predictions of each instance, `[3, instances]`."""
    num_instances = needs.shape[1]
    capacities = np.array(bounds, "int64")[:, None]
    left = np.repeat(capacities, num_instances, axis=1)  # free capacity of every possible row
    num_rows = 0
    rows, offsets = np.empty([2, num_instances], "int64")
    is_first = np.append(True, (needs[:, 1:] != needs[:, :-1]).any(axis=0))[:num_instances]
    for start, end in itertools.pairwise([*np.flatnonzero(is_first), num_instances]):  # runs of equal instances
        need, count = needs[:, start : start + 1], end - start
        fitting = _count_fitting(left[:, :num_rows], need)
        candidates = np.flatnonzero(fitting)
        fitting = fitting[candidates]
        missing = count - int(fitting.sum())
        if missing > 0:
            fitting_new = int(_count_fitting(capacities, need)[0])
            num_new = -(-missing // fitting_new)
            candidates = np.append(candidates, np.arange(num_rows, num_rows + num_new))
            fitting = np.append(fitting, np.full(num_new, fitting_new))
            num_rows += num_new
        # Equal instances fill one row after another, as they would one at a time.
        taken = np.diff(np.minimum(np.cumsum(fitting), count), prepend=0)
        rows[start:end] = np.repeat(candidates, taken)
        before = np.arange(count) - np.repeat(np.cumsum(taken) - taken, taken)  # equal instances in the same row
        offsets[start:end] = np.repeat((capacities - left)[0, candidates], taken) + before * need[0]
        left[:, candidates] -= taken * need
    return rows, offsets


def _count_fitting(left: np.ndarray, need: np.ndarray) -> np.ndarray:
    """Returns how many equal instances fit into each row, int64 `[rows]`."""
    fitting = left[1].copy()
    for room, needed in zip(left[[0, 2]], need[[0, 2], 0], strict=True):
        if needed:
            np.minimum(fitting, room // needed, out=fitting)
    return fitting


def pack_instances(
    instances: Mapping[str, np.ndarray], sequence_length: int, max_instances: int, max_predictions: int
) -> Arrays:
    """Packs a dict of padded arrays of instances into as few rows as `first_fit` finds, as `pack_dataset` does.

    `sequence_ids` number the instances of a row from 1; a token attends only to its own instance. `position_ids`
    restart in each, and `cls_positions` are their starts. Padding is 0.
    """
    check_positive(sequence_length=sequence_length, max_instances=max_instances, max_predictions=max_predictions)
    arrays = _check_instances(instances)
    lengths = arrays["padding_mask"].sum(axis=1, dtype="int64")
    is_predicted = arrays["masked_weights"] != 0
    predictions = is_predicted.sum(axis=1, dtype="int64")
    rows, offsets = first_fit(lengths, predictions, sequence_length, max_instances, max_predictions)
    placement = _Placement.from_first_fit(rows, offsets)
    return {
        **_pack_tokens(arrays, lengths, placement, sequence_length),
        **_pack_predictions(arrays, is_predicted, placement, max_predictions),
        **_pack_labels(arrays, placement, max_instances),
    }


class _Placement(NamedTuple):
    """Row, offset in the row, and number in the row of each instance, and the number of rows."""

    rows: np.ndarray
    offsets: np.ndarray
    numbers: np.ndarray
    num_rows: int

    @classmethod
    def from_first_fit(cls, rows: np.ndarray, offsets: np.ndarray) -> "_Placement":
        in_order = np.lexsort((offsets, rows))
        numbers = np.empty_like(rows)
        numbers[in_order] = _rank_in_group(rows[in_order])
        return cls(rows, offsets, numbers, int(rows.max(initial=-1)) + 1)


def _pack_tokens(arrays: Arrays, lengths: np.ndarray, placement: _Placement, sequence_length: int) -> Arrays:
    is_token = arrays["padding_mask"].astype(bool)
    positions = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    destinations = np.repeat(placement.rows * sequence_length + placement.offsets, lengths) + positions
    values = {
        "token_ids": arrays["token_ids"][is_token],
        "segment_ids": arrays["segment_ids"][is_token],
        "padding_mask": 1,
        "sequence_ids": np.repeat(placement.numbers + 1, lengths),
        "position_ids": positions,
    }
    return _scatter(values, destinations, placement.num_rows, sequence_length)


def _pack_predictions(arrays: Arrays, is_predicted: np.ndarray, placement: _Placement, max_predictions: int) -> Arrays:
    instances = np.nonzero(is_predicted)[0]
    positions = arrays["masked_positions"][is_predicted] + placement.offsets[instances]
    ascending = np.lexsort((positions, placement.rows[instances]))
    rows = placement.rows[instances][ascending]
    values = {
        "masked_positions": positions[ascending],
        "masked_labels": arrays["masked_labels"][is_predicted][ascending],
        "masked_weights": arrays["masked_weights"][is_predicted][ascending],
    }
    return _scatter(values, rows * max_predictions + _rank_in_group(rows), placement.num_rows, max_predictions)


def _pack_labels(arrays: Arrays, placement: _Placement, max_instances: int) -> Arrays:
    values = {
        "cls_positions": placement.offsets,
        "next_sentence_labels": arrays["next_sentence_labels"],
        "next_sentence_weights": 1,
    }
    destinations = placement.rows * max_instances + placement.numbers
    return _scatter(values, destinations, placement.num_rows, max_instances)


def _rank_in_group(sorted_groups: np.ndarray) -> np.ndarray:
    """Returns the number of each element within its group, from 0."""
    return np.arange(len(sorted_groups)) - np.searchsorted(sorted_groups, sorted_groups)


def _scatter(values: Mapping[str, Any], destinations: np.ndarray, num_rows: int, width: int) -> Arrays:
    """Returns arrays `[num_rows, width]` with the values at flat positions, and 0 elsewhere."""
    packed = {}
    for name, value in values.items():
        packed[name] = np.zeros([num_rows, width], _dtype(name))
        packed[name].reshape(-1)[destinations] = value
    return packed


def _dtype(name: str) -> str:
    return "float32" if name in _FLOAT_NAMES else "int32"


def predictions_per_row(max_predictions: int) -> int:
    """Returns the maximum number of masked tokens per packed row, from that of an instance that fills the row."""
    return math.ceil(_PREDICTION_SLACK * max_predictions)


@tf.autograph.experimental.do_not_convert  # there is nothing to convert: the first batch is ready sooner
def pack_dataset(
    instances: tf.data.Dataset,
    sequence_length: int,
    max_predictions: int,
    max_instances: int | None = None,
    window: int = WINDOW,
    seed: int | None = None,
) -> tf.data.Dataset:
    """Packs a stream of instances into rows, one window of instances at a time.

    It runs Python, so it must run in the process that trains: pack the output of a tf.data service, not its input.

    Args:
        instances: Dataset of batches of instances, such as those of `text_batches` or `shard_batches`. Sizes may
        differ.
        sequence_length: Tokens per row.
        max_predictions: Maximum number of masked tokens per row.
        max_instances: Maximum number of instances per row. Defaults to one per 4 tokens.
        window: Number of instances that are packed together. More instances fill rows better and need more memory.
        seed: The order of rows is a function of the seed and the window. None puts the longest instances first.

    Returns:
        A dataset of single rows of static shape, dicts of tensors: `token_ids`, `segment_ids`, `padding_mask`,
        `sequence_ids`, `position_ids` `[sequence_length]`; `masked_positions`, `masked_labels`, `masked_weights`
        `[max_predictions]`; `cls_positions`, `next_sentence_labels`, `next_sentence_weights` `[max_instances]`. Its
        iterator can be checkpointed.

    Raises:
        ValueError: If the dataset has other names, or a number is below 1. Instances that fit into no row raise
            `tf.errors.InvalidArgumentError` when they are read.
    """
    if max_instances is None:
        max_instances = max(sequence_length // TOKENS_PER_INSTANCE, 1)
    widths = {"sequence_length": sequence_length, "max_instances": max_instances, "max_predictions": max_predictions}
    check_positive(**widths, window=window)
    _check_names(instances.element_spec)
    shapes = {
        **dict.fromkeys((*_TOKEN_NAMES, "sequence_ids", "position_ids"), sequence_length),
        **dict.fromkeys(_PREDICTION_NAMES, max_predictions),
        **dict.fromkeys(("cls_positions", "next_sentence_labels", "next_sentence_weights"), max_instances),
    }

    def pack(*arrays: np.ndarray) -> list[np.ndarray]:
        rows = pack_instances(dict(zip(_INSTANCE_NAMES, arrays, strict=True)), **widths)
        return [rows[name] for name in shapes]

    def pack_window(number: tf.Tensor, group: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        dtypes = [_dtype(name) for name in shapes]
        arrays = python_operation(pack, [group[name] for name in _INSTANCE_NAMES], dtypes)
        rows = {
            name: tf.ensure_shape(array, [None, width])
            for (name, width), array in zip(shapes.items(), arrays, strict=True)
        }
        if seed is None:
            return rows
        order = shuffled(tf.range(tf.shape(rows["token_ids"])[0]), random_key(seed, _ROW_ORDER, number))
        return {name: tf.gather(array, order) for name, array in rows.items()}

    # Not unbatch(), which ends the process if instances have no column for predictions (TensorFlow 2.21).
    groups = instances.flat_map(tf.data.Dataset.from_tensor_slices).padded_batch(window)
    return groups.enumerate().map(pack_window).prefetch(1).unbatch()


def _check_instances(instances: Mapping[str, np.ndarray]) -> Arrays:
    """Returns the instances as arrays whose shapes and values are consistent."""
    _check_names(instances)
    arrays = {name: np.asarray(instances[name]) for name in _INSTANCE_NAMES}
    shapes = {name: array.shape for name, array in arrays.items()}
    batch_shape = shapes["next_sentence_labels"]
    for names in (_TOKEN_NAMES, _PREDICTION_NAMES):
        expected = (*batch_shape, *shapes[names[0]][1:])
        if len(batch_shape) != 1 or len(expected) != 2 or any(shapes[name] != expected for name in names):
            raise ValueError(
                f"{', '.join(names)} must have one shape, [instances, length], and next_sentence_labels [instances]; "
                f"got {shapes}"
            )
    mask = arrays["padding_mask"]
    lengths = np.count_nonzero(mask, axis=1)
    if not np.array_equal(mask, np.arange(mask.shape[1]) < lengths[:, None]):
        raise ValueError("padding_mask must be 1 on the tokens of an instance and 0 after them")
    is_outside = (arrays["masked_positions"] < 0) | (arrays["masked_positions"] >= lengths[:, None])
    wrong = np.argwhere(is_outside & (arrays["masked_weights"] != 0))
    if len(wrong):
        instance, prediction = wrong[0]
        raise ValueError(
            f"instance {instance} has {lengths[instance]} tokens, but a masked token at position "
            f"{arrays['masked_positions'][instance, prediction]}"
        )
    return arrays


def _check_names(instances: Any) -> None:
    names = sorted(instances) if isinstance(instances, Mapping) else type(instances).__name__
    if names != sorted(_INSTANCE_NAMES):
        raise ValueError(f"instances must be a dict of {sorted(_INSTANCE_NAMES)}, got {names}")


def _check_range(name: str, values: np.ndarray, minimum: int, maximum: int, advice: str) -> None:
    if not len(values) or (minimum <= values.min() and values.max() <= maximum):
        return
    wrong = int(np.argmin(values) if values.min() < minimum else np.argmax(values))
    raise ValueError(
        f"instance {wrong} has {values[wrong]} {name}, but a row takes instances of {minimum} to {maximum}; {advice}"
    )
