"""Several instances of pre-training in one row, so that hardly any of it is padding (arXiv 2107.02027)."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.data.python_operation import python_operation
from keras_bert.data.random_order import random_key, shuffled

# With these, rows of 512 tokens and at most 96 predictions are 99.6% full of sentence pairs, 99.8% of paragraphs and
# 97.8% of single sentences of 13 tokens on average. Larger ones add 0.3% at most.
WINDOW = 4096  # instances
TOKENS_PER_INSTANCE = 4  # for which a row has a place
_ROOM_FOR_PREDICTIONS = 1.25  # beyond what the masking rate asks for, so that rows become full

_TOKEN_NAMES = ("token_ids", "segment_ids", "padding_mask")
_PREDICTION_NAMES = ("masked_positions", "masked_labels", "masked_weights")
_INSTANCE_NAMES = (*_TOKEN_NAMES, *_PREDICTION_NAMES, "next_sentence_labels")
_FLOAT_NAMES = ("masked_weights", "next_sentence_weights")
# The purposes 0 and 1 are the orders of the files and records that instances may come from.
_ORDER_OF_ROWS = 2


def first_fit(lengths, capacity, most_instances=None, predictions=None, most_predictions=None):
    """Puts instances into rows: the longest first, each into the first row that has room for it.

    This is first-fit decreasing, computed on the histogram of lengths: those of one length are placed together. It is
    a sibling of the histogram packings of arXiv 2107.02027, which go through the lengths in the same order, but choose
    the emptiest row (SPFHP, worst fit) or the fullest in which there is room (LPFHP, best fit). On sentence pairs,
    paragraphs and single sentences the three need the same number of rows to 0.1%.

    Instances of one length are taken in the order of their predictions, the most first, and then of their numbers.
    After sorting it takes one pass over the rows for each pair of length and predictions that occurs: time linear in
    the number of instances for a given capacity.

    Args:
        lengths: int array [instances]. Tokens of each, from 1 to `capacity`.
        capacity: int. Tokens in a row.
        most_instances: int or None. The most instances in a row; None is without bound.
        predictions: int array [instances] or None. Masked tokens of each, from 0 to `most_predictions`.
        most_predictions: int or None. The most masked tokens in a row; None is without bound. It goes with
            `predictions`.

    Returns:
        A pair of int64 arrays [instances]: the row of each, and the number of tokens before it in this row. Rows are
        numbered from 0, and none is empty.

    Raises:
        ValueError: if an instance is longer than a row, has more predictions than a row may have, or has no token; if a
            bound is below 1; or if `predictions` and `lengths` differ in number.

    Example:

    >>> rows, offsets = first_fit([3, 6, 2, 5], capacity=8)
    >>> rows.tolist(), offsets.tolist()
    ([1, 0, 0, 1], [5, 0, 6, 0])
    """
    bounds = {"capacity": capacity, "most_instances": most_instances, "most_predictions": most_predictions}
    _check_bounds(**bounds)
    lengths = np.asarray(lengths, "int64")
    if (predictions is None) != (most_predictions is None):
        raise ValueError("predictions and most_predictions go together: give both or neither")
    predictions = np.zeros_like(lengths) if predictions is None else np.asarray(predictions, "int64")
    if lengths.ndim != 1 or lengths.shape != predictions.shape:
        raise ValueError(
            f"lengths and predictions must have the shape [instances], got {lengths.shape} and {predictions.shape}"
        )
    _check_range("tokens", lengths, 1, capacity, "truncate or split longer instances, or make longer rows")
    _check_range("predictions", predictions, 0, most_predictions, "raise most_predictions, or mask fewer tokens")

    order = np.lexsort((-predictions, -lengths))
    needs = np.stack([lengths, np.ones_like(lengths), predictions])[:, order]
    rows, used = _place_sorted(needs, [len(lengths) if bound is None else bound for bound in bounds.values()])
    placed = np.empty([2, len(lengths)], "int64")
    placed[:, order] = rows, used
    return placed[0], placed[1]


def _place_sorted(needs, bounds):
    """First fit in the order given.

    Args:
        needs: int64 array [3, instances]. What each takes of a row's tokens, places and predictions; equal ones stand
            together.
        bounds: list of 3 int. What a row has of each.

    Returns:
        A pair of int64 arrays [instances]: rows, and tokens before the instance in its row.
    """
    number = needs.shape[1]
    bounds = np.array(bounds, "int64")[:, None]
    left = np.repeat(bounds, number, axis=1)  # of every row that there could be
    opened = 0
    rows, offsets = np.empty([2, number], "int64")
    is_first = np.append(True, (needs[:, 1:] != needs[:, :-1]).any(axis=0))[:number]
    for start, end in itertools.pairwise([*np.flatnonzero(is_first), number]):
        need, count = needs[:, start : start + 1], end - start
        fitting = _how_many_fit(left[:, :opened], need)
        candidates = np.flatnonzero(fitting)
        fitting = fitting[candidates]
        missing = count - int(fitting.sum())
        if missing > 0:
            fitting_new = int(_how_many_fit(bounds, need)[0])
            new = -(-missing // fitting_new)
            candidates = np.append(candidates, np.arange(opened, opened + new))
            fitting = np.append(fitting, np.full(new, fitting_new))
            opened += new
        # Equal instances fill one row after another, as they would one at a time.
        taken = np.diff(np.minimum(np.cumsum(fitting), count), prepend=0)
        rows[start:end] = np.repeat(candidates, taken)
        before = np.arange(count) - np.repeat(np.cumsum(taken) - taken, taken)  # equal ones in the same row
        offsets[start:end] = np.repeat((bounds - left)[0, candidates], taken) + before * need[0]
        left[:, candidates] -= taken * need
    return rows, offsets


def _how_many_fit(left, need):
    """How many equal instances fit into each row: int64 array [rows]."""
    fitting = left[1].copy()  # an instance takes one place
    for of_rows, of_one in zip(left[[0, 2]], need[[0, 2], 0], strict=True):
        if of_one:
            np.minimum(fitting, of_rows // of_one, out=fitting)
    return fitting


def pack_instances(instances, sequence_length, most_instances, most_predictions):
    """Packs instances into as few rows as `first_fit` finds. Nothing of them is lost or cut.

    Args:
        instances: dict of arrays, instances of any length, padded to that of the longest or beyond:
            token_ids, segment_ids: int [instances, length].
            padding_mask: int [instances, length]. 1 on an instance's tokens, of which there is one at least, and 0
                after them.
            masked_positions, masked_labels: int [instances, predictions].
            masked_weights: float [instances, predictions]. What has weight 0 is padding.
            next_sentence_labels: int [instances].
        sequence_length: int. Tokens in a row.
        most_instances: int. The most instances in a row.
        most_predictions: int. The most masked tokens in a row.

    Returns:
        dict of arrays, float32 where said and int32 elsewhere; where there is nothing they are 0:
            token_ids, segment_ids, padding_mask: [rows, sequence_length].
            sequence_ids: [rows, sequence_length]. 1 on the tokens of a row's first instance, 2 on those of its second
                and so on, and 0, which is no instance's, on padding. An encoder that is given them and `padding_mask`
                lets a token see those of its instance only.
            position_ids: [rows, sequence_length]. 0 on the first token of every instance.
            masked_positions, masked_labels: [rows, most_predictions]. Positions in the row, ascending.
            masked_weights: float32 [rows, most_predictions].
            cls_positions, next_sentence_labels: [rows, most_instances]. Where each instance begins, ascending, and
                its label.
            next_sentence_weights: float32 [rows, most_instances]. 1 for every instance.

    Raises:
        ValueError: if arrays are missing, unknown, or do not fit together; or as `first_fit` does.

    Example:

    >>> rows = pack_instances(
    ...     {
    ...         "token_ids": np.array([[2, 9, 3], [2, 3, 0]]),
    ...         "segment_ids": np.array([[0, 0, 1], [0, 0, 0]]),
    ...         "padding_mask": np.array([[1, 1, 1], [1, 1, 0]]),
    ...         "masked_positions": np.array([[1], [0]]),
    ...         "masked_labels": np.array([[8], [0]]),
    ...         "masked_weights": np.array([[1.0], [0.0]]),
    ...         "next_sentence_labels": np.array([0, 1]),
    ...     },
    ...     sequence_length=6,
    ...     most_instances=2,
    ...     most_predictions=1,
    ... )
    >>> rows["token_ids"].tolist(), rows["sequence_ids"].tolist(), rows["position_ids"].tolist()
    ([[2, 9, 3, 2, 3, 0]], [[1, 1, 1, 2, 2, 0]], [[0, 1, 2, 0, 1, 0]])
    >>> rows["cls_positions"].tolist(), rows["next_sentence_labels"].tolist()
    ([[0, 3]], [[0, 1]])
    """
    _check_bounds(sequence_length=sequence_length, most_instances=most_instances, most_predictions=most_predictions)
    instances = _checked(instances)
    lengths = instances["padding_mask"].sum(axis=1, dtype="int64")
    is_predicted = instances["masked_weights"] != 0
    predictions = is_predicted.sum(axis=1, dtype="int64")
    places = _Places.from_first_fit(*first_fit(lengths, sequence_length, most_instances, predictions, most_predictions))
    return {
        **_packed_tokens(instances, lengths, places, sequence_length),
        **_packed_predictions(instances, is_predicted, places, most_predictions),
        **_packed_labels(instances, places, most_instances),
    }


class _Places(NamedTuple):
    """Where the instances go: int64 arrays [instances], and the number of rows."""

    rows: np.ndarray
    offsets: np.ndarray
    numbers: np.ndarray  # of each instance in its row
    num_rows: int

    @classmethod
    def from_first_fit(cls, rows, offsets):
        in_order = np.lexsort((offsets, rows))
        numbers = np.empty_like(rows)
        numbers[in_order] = _ranks(rows[in_order])
        return cls(rows, offsets, numbers, int(rows.max(initial=-1)) + 1)


def _packed_tokens(instances, lengths, places, sequence_length):
    is_token = instances["padding_mask"].astype(bool)
    positions = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    destinations = np.repeat(places.rows * sequence_length + places.offsets, lengths) + positions
    values = {
        "token_ids": instances["token_ids"][is_token],
        "segment_ids": instances["segment_ids"][is_token],
        "padding_mask": 1,
        "sequence_ids": np.repeat(places.numbers + 1, lengths),
        "position_ids": positions,
    }
    return _scattered(values, destinations, places.num_rows, sequence_length)


def _packed_predictions(instances, is_predicted, places, most_predictions):
    of_instance = np.nonzero(is_predicted)[0]
    positions = instances["masked_positions"][is_predicted] + places.offsets[of_instance]
    ascending = np.lexsort((positions, places.rows[of_instance]))
    rows = places.rows[of_instance][ascending]
    values = {
        "masked_positions": positions[ascending],
        "masked_labels": instances["masked_labels"][is_predicted][ascending],
        "masked_weights": instances["masked_weights"][is_predicted][ascending],
    }
    return _scattered(values, rows * most_predictions + _ranks(rows), places.num_rows, most_predictions)


def _packed_labels(instances, places, most_instances):
    values = {
        "cls_positions": places.offsets,
        "next_sentence_labels": instances["next_sentence_labels"],
        "next_sentence_weights": 1,
    }
    destinations = places.rows * most_instances + places.numbers
    return _scattered(values, destinations, places.num_rows, most_instances)


def _ranks(sorted_groups):
    """The number of each element among those of its group, from 0."""
    return np.arange(len(sorted_groups)) - np.searchsorted(sorted_groups, sorted_groups)


def _scattered(values, destinations, num_rows, width):
    """dict of arrays [rows, width], with values at these positions of the flat array, and 0 elsewhere."""
    packed = {}
    for name, value in values.items():
        packed[name] = np.zeros([num_rows, width], _dtype(name))
        packed[name].reshape(-1)[destinations] = value
    return packed


def _dtype(name):
    return "float32" if name in _FLOAT_NAMES else "int32"


def predictions_per_row(max_predictions):
    """How many masked tokens a packed row needs places for, so that they do not keep rows from becoming full.

    Args:
        max_predictions: int. The most masked tokens of an instance that fills a row.

    Returns:
        int.

    Example:

    >>> predictions_per_row(77)
    97
    """
    return math.ceil(_ROOM_FOR_PREDICTIONS * max_predictions)


@tf.autograph.experimental.do_not_convert  # nothing in it to rewrite: the first batch comes sooner
def packed(instances, sequence_length, most_predictions, most_instances=None, window=WINDOW, seed=None):
    """The rows into which `pack_instances` packs a stream of instances, a group of them at a time.

    It runs Python, so it must be in the process that trains: where a tf.data service makes the instances, pack what
    comes from it.

    Args:
        instances: tf.data.Dataset of batches of instances, dicts as `pack_instances` takes. Batches may differ in all
            sizes.
        sequence_length: int. Tokens in a row.
        most_predictions: int. The most masked tokens in a row; `predictions_per_row` says how many are enough.
        most_instances: int or None. The most instances in a row; None is one for every 4 tokens of it.
        window: int. Instances that are packed together. The more, the fuller the rows, and the more memory.
        seed: int or None. Rows come in an order that is a function of the seed and the group's number; the longest
            instances come first where it is None.

    Returns:
        tf.data.Dataset of single rows, dicts of tensors as `pack_instances` gives, of fully known shape. Its iterator
        can be checkpointed.

    Raises:
        ValueError: if the dataset's dicts have other names, or a number is below 1. Instances that fit into no row end
            the dataset with `tf.errors.InvalidArgumentError`.

    Example:

    >>> instances = tf.data.Dataset.from_tensors(
    ...     {
    ...         "token_ids": [[2, 9, 3], [2, 3, 0]],
    ...         "segment_ids": [[0, 0, 1], [0, 0, 0]],
    ...         "padding_mask": [[1, 1, 1], [1, 1, 0]],
    ...         "masked_positions": [[1], [0]],
    ...         "masked_labels": [[8], [0]],
    ...         "masked_weights": [[1.0], [0.0]],
    ...         "next_sentence_labels": [0, 1],
    ...     }
    ... )
    >>> [row["token_ids"].numpy().tolist() for row in packed(instances, sequence_length=6, most_predictions=2, seed=1)]
    [[2, 9, 3, 0, 0, 0], [2, 3, 0, 0, 0, 0]]
    """
    if most_instances is None:
        most_instances = max(sequence_length // TOKENS_PER_INSTANCE, 1)
    widths = {
        "sequence_length": sequence_length,
        "most_instances": most_instances,
        "most_predictions": most_predictions,
    }
    _check_bounds(**widths, window=window)
    _check_names(instances.element_spec)
    shapes = _row_shapes(**widths)

    def pack(*arrays):
        rows = pack_instances(dict(zip(_INSTANCE_NAMES, arrays, strict=True)), **widths)
        return [rows[name] for name in shapes]

    def pack_group(number, group):
        dtypes = [_dtype(name) for name in shapes]
        arrays = python_operation(pack, [group[name] for name in _INSTANCE_NAMES], dtypes)
        rows = {
            name: tf.ensure_shape(array, [None, width])
            for (name, width), array in zip(shapes.items(), arrays, strict=True)
        }
        if seed is None:
            return rows
        order = shuffled(tf.range(tf.shape(rows["token_ids"])[0]), random_key(seed, _ORDER_OF_ROWS, number))
        return {name: tf.gather(array, order) for name, array in rows.items()}

    # Not unbatch(): it ends the process where instances have no column for predictions (TensorFlow 2.21).
    groups = instances.flat_map(tf.data.Dataset.from_tensor_slices).padded_batch(window)
    return groups.enumerate().map(pack_group).prefetch(1).unbatch()


def _row_shapes(sequence_length, most_instances, most_predictions):
    of_tokens = (*_TOKEN_NAMES, "sequence_ids", "position_ids")
    of_instances = ("cls_positions", "next_sentence_labels", "next_sentence_weights")
    return {
        **dict.fromkeys(of_tokens, sequence_length),
        **dict.fromkeys(_PREDICTION_NAMES, most_predictions),
        **dict.fromkeys(of_instances, most_instances),
    }


def _checked(instances):
    """The instances as arrays that fit together."""
    _check_names(instances)
    instances = {name: np.asarray(instances[name]) for name in _INSTANCE_NAMES}
    shapes = {name: array.shape for name, array in instances.items()}
    number = shapes["next_sentence_labels"]
    for names in (_TOKEN_NAMES, _PREDICTION_NAMES):
        expected = (*number, *shapes[names[0]][1:])
        if len(number) != 1 or len(expected) != 2 or any(shapes[name] != expected for name in names):
            raise ValueError(
                f"{', '.join(names)} must have one shape, [instances, length], and next_sentence_labels [instances]; "
                f"got {shapes}"
            )
    mask = instances["padding_mask"]
    lengths = np.count_nonzero(mask, axis=1)
    if not np.array_equal(mask, np.arange(mask.shape[1]) < lengths[:, None]):
        raise ValueError("padding_mask must be 1 on the tokens of an instance and 0 after them, with no gap")
    outside = (instances["masked_positions"] < 0) | (instances["masked_positions"] >= lengths[:, None])
    wrong = np.argwhere(outside & (instances["masked_weights"] != 0))
    if len(wrong):
        instance, prediction = wrong[0]
        raise ValueError(
            f"instance {instance} has {lengths[instance]} tokens, but a masked token at position "
            f"{instances['masked_positions'][instance, prediction]}"
        )
    return instances


def _check_names(instances):
    names = sorted(instances) if isinstance(instances, dict) else type(instances).__name__
    if names != sorted(_INSTANCE_NAMES):
        raise ValueError(f"instances must be a dict of {sorted(_INSTANCE_NAMES)}, got {names}")


def _check_bounds(**bounds):
    for name, value in bounds.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def _check_range(what, numbers, least, most, advice):
    if not len(numbers) or (numbers.min() >= least and (most is None or numbers.max() <= most)):
        return
    wrong = int(np.argmin(numbers) if numbers.min() < least else np.argmax(numbers))
    raise ValueError(
        f"instance {wrong} has {numbers[wrong]} {what}, and a row takes instances of {least} to {most}; {advice}"
    )
