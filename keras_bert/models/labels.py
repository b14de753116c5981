"""Label names of classifiers, and their encoding as numbers."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert.data.label_values import MULTI_LABEL, PROBLEM_TYPES, REGRESSION, SINGLE_LABEL


def label_names(labels: Sequence[str] | np.ndarray | int | None, problem_type: str) -> list[str]:
    """Returns the names of a classifier's outputs, from names or from their number ("0", "1", ...).

    None means a single output, for regression only. Raises ValueError unless names are distinct, printable strings.

    >>> label_names(3, MULTI_LABEL)
    ['0', '1', '2']
    """
    if problem_type not in PROBLEM_TYPES:
        raise ValueError(f"unknown problem_type {problem_type!r}; allowed are {PROBLEM_TYPES}")
    if labels is None and problem_type == REGRESSION:
        labels = ["value"]
    if isinstance(labels, np.ndarray) and labels.ndim == 1:
        labels = labels.tolist()
    if isinstance(labels, (int, np.integer)) and not isinstance(labels, bool):
        labels = [str(i) for i in range(labels)]
    if not isinstance(labels, (list, tuple)) or not all(isinstance(name, str) and name for name in labels):
        raise ValueError(f"labels must be a list of names, or their number; got {labels!r}")
    unprintable = [name for name in labels if not name.isprintable()]
    if unprintable:
        raise ValueError(f"labels must be printable, without line ends or tabs; got {_shorten(unprintable)}")
    repeated = sorted(name for name, count in Counter(labels).items() if count > 1)
    if repeated:
        raise ValueError(f"labels must be distinct; these are given more than once: {_shorten(repeated)}")
    min_labels = 2 if problem_type == SINGLE_LABEL else 1
    if len(labels) < min_labels:
        raise ValueError(f"{problem_type} needs at least {min_labels} labels, got {labels!r}")
    return list(labels)


def encode_labels(values: Any, names: Sequence[str], problem_type: str) -> np.ndarray:
    """Encodes labels as the numbers that the loss takes; ValueError for the first invalid one.

    Single labels are names or numbers [examples], encoded as int32 [examples]. Multiple labels are lists of names, or
    zeros and ones [examples, labels], encoded as float32 [examples, labels]. Regression targets are numbers [examples]
    or [examples, outputs], encoded as float32 [examples, outputs].

    >>> encode_labels(["positive", "negative"], ["negative", "positive"], SINGLE_LABEL).tolist()
    [1, 0]
    >>> encode_labels([["b"], [], ["a", "b"]], ["a", "b"], MULTI_LABEL).tolist()
    [[0.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    """
    if problem_type == SINGLE_LABEL:
        return _encode_single(values, names)
    if problem_type == MULTI_LABEL:
        return _encode_multiple(values, names)
    array = _numbers(values, "regression targets").astype("float32")
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != len(names):
        raise ValueError(f"regression targets must have the shape [examples, {len(names)}], got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"regression targets must be finite; target {int(np.argmin(np.isfinite(array).all(1)))} is not"
        )
    return array


def _encode_single(values: Any, names: Sequence[str]) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(
            f"single labels must have the shape [examples], got {array.shape}; "
            f"for several labels at once use problem_type={MULTI_LABEL!r}"
        )
    if array.dtype.kind == "O" and all(isinstance(value, (int, float, np.number)) for value in array):
        array = array.astype("float64")
    if array.dtype.kind in "USO":
        indices = {name: i for i, name in enumerate(names)}
        return np.array([_find_index(value, indices, i) for i, value in enumerate(array)], "int32")
    array = _numbers(array, "labels")
    misleading = [name for i, name in enumerate(names) if name.isdecimal() and name != str(i)]
    if misleading:
        raise ValueError(
            f"the label names {_shorten(misleading)} look like numbers, so that "
            f"{array[0] if len(array) else 0} may be a name or a position; pass the labels as strings"
        )
    wrong = (array < 0) | (array >= len(names)) | (array != np.floor(array))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"labels must be integers from 0 to {len(names) - 1} (there are {len(names)} labels); "
            f"label {i} is {array[i]}"
        )
    return array.astype("int32")


def _encode_multiple(values: Any, names: Sequence[str]) -> np.ndarray:
    if getattr(values, "ndim", 0) == 1:  # an array or a pandas Series of lists
        values = list(values)
    if not hasattr(values, "dtype") and any(_is_name_list(row) for row in values):
        indices = {name: i for i, name in enumerate(names)}
        encoded = np.zeros([len(values), len(names)], "float32")
        for i, row in enumerate(values):
            if not _is_name_list(row):
                raise ValueError(f"multiple labels must be a list of names per example; row {i} is {row!r}")
            for value in row:
                encoded[i, _find_index(value, indices, i)] = 1.0
        return encoded
    array = _numbers(values, "labels")
    if array.ndim != 2 or array.shape[1] != len(names):
        raise ValueError(
            f"multiple labels must be lists of names, or zeros and ones of the shape [examples, {len(names)}]; "
            f"got the shape {array.shape}"
        )
    if not np.isin(array, (0, 1)).all():
        raise ValueError(
            f"multiple labels must be zeros and ones; row {int(np.argmin(np.isin(array, (0, 1)).all(1)))} is not"
        )
    return array.astype("float32")


def _is_name_list(row: Any) -> bool:
    return isinstance(row, (list, tuple, set)) and (len(row) == 0 or isinstance(next(iter(row)), (str, bytes)))


def _find_index(value: Any, indices: Mapping[str, int], position: int) -> int:
    name = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    if name not in indices:
        raise ValueError(f"label {position} is {name!r}, which is not among the model's labels {_shorten(indices)}")
    return indices[name]


def _numbers(values: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{what} must be an array of numbers, got rows of different lengths") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what} must be numbers, got {_shorten(array.flat)}")
    return array


def _shorten(items: Iterable[Any], max_items: int = 20) -> str:
    items = list(items)
    shown = ", ".join(repr(item) for item in items[:max_items])
    return f"[{shown}{', ...' if len(items) > max_items else ''}]"


def class_weight_list(
    class_weights: Mapping[str | int, float] | Sequence[float] | None, names: Sequence[str]
) -> list[float] | None:
    """Returns the weight of each label, from a list or from a dict by name or number; 1 for labels not in the dict.

    >>> class_weight_list({"rare": 5}, ["common", "rare"])
    [1.0, 5.0]
    """
    if class_weights is None:
        return None
    if isinstance(class_weights, Mapping):
        weights, indices = [1.0] * len(names), {name: i for i, name in enumerate(names)}
        for label, weight in class_weights.items():
            if isinstance(label, (int, np.integer)) and 0 <= label < len(names):
                weights[int(label)] = weight
            elif label in indices:
                weights[indices[label]] = weight
            else:
                raise ValueError(f"class weights name the label {label!r}, which is not among {_shorten(names)}")
    else:
        weights = list(class_weights)
        if len(weights) != len(names):
            raise ValueError(f"class weights must be {len(names)}, one for each label; got {len(weights)}")
    for name, weight in zip(names, weights, strict=True):
        if not isinstance(weight, (int, float, np.number)) or not np.isfinite(weight) or weight < 0:
            raise ValueError(f"a class weight must be a finite number of at least 0; that of {name!r} is {weight}")
    return [float(weight) for weight in weights]
