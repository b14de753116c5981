"""Label names, and the numbers that a classifier computes with."""

from collections.abc import Mapping

import numpy as np

from keras_bert.data.label_values import MULTI_LABEL, PROBLEM_TYPES, REGRESSION, SINGLE_LABEL


def label_names(labels, problem_type):
    """The names of a classifier's outputs.

    Args:
        labels: int (their number), or a list of distinct names. None means one output, for regression only.
        problem_type: str. One of `PROBLEM_TYPES`.

    Returns:
        list of str; numbers become "0", "1", ...

    Raises:
        ValueError: on an unknown problem type, too few labels, or names that are not distinct strings.

    Example:

    >>> label_names(["negative", "positive"], SINGLE_LABEL)
    ['negative', 'positive']
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
        raise ValueError(f"labels must be printable, without line ends or tabs; got {unprintable}")
    repeated = sorted({name for name in labels if labels.count(name) > 1})
    if repeated:
        raise ValueError(f"labels must be distinct; these are given more than once: {repeated}")
    fewest = 2 if problem_type == SINGLE_LABEL else 1
    if len(labels) < fewest:
        raise ValueError(f"{problem_type} needs at least {fewest} labels, got {labels!r}")
    return list(labels)


def encode_labels(values, names, problem_type):
    """Labels as a user writes them, as the numbers that the loss takes.

    Args:
        values: for single labels: names or numbers [examples]. For several labels: a list of lists of names, or zeros
            and ones [examples, labels]. For regression: numbers [examples] or [examples, outputs].
        names: list of str. The classifier's labels.
        problem_type: str. One of `PROBLEM_TYPES`.

    Returns:
        NumPy array: int32 [examples], float32 [examples, labels], or float32 [examples, outputs].

    Raises:
        ValueError: on an unknown label, a number out of range, or a shape that does not fit; it names the first
            offender.

    Example:

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


def _encode_single(values, names):
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
        return np.array([_index(value, names, i) for i, value in enumerate(array)], "int32")
    array = _numbers(array, "labels")
    misleading = [name for i, name in enumerate(names) if name.isdecimal() and name != str(i)]
    if misleading:
        raise ValueError(
            f"the labels {_shortened(misleading)} are names that look like numbers, so it is not clear whether "
            f"{array[0] if len(array) else 0} is a name or a position; give the labels as strings"
        )
    wrong = (array < 0) | (array >= len(names)) | (array != np.floor(array))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"labels must be whole numbers from 0 to {len(names) - 1} (there are {len(names)} labels); "
            f"label {i} is {array[i]}"
        )
    return array.astype("int32")


def _encode_multiple(values, names):
    if not hasattr(values, "dtype") and any(_is_name_list(row) for row in values):
        encoded = np.zeros([len(values), len(names)], "float32")
        for i, row in enumerate(values):
            if not _is_name_list(row):
                raise ValueError(f"several labels at once are a list of names for each example; row {i} is {row!r}")
            for value in row:
                encoded[i, _index(value, names, i)] = 1.0
        return encoded
    array = _numbers(values, "labels")
    if array.ndim != 2 or array.shape[1] != len(names):
        raise ValueError(
            f"several labels at once are lists of names, or zeros and ones of the shape [examples, {len(names)}]; "
            f"got the shape {array.shape}"
        )
    if not np.isin(array, (0, 1)).all():
        raise ValueError(
            f"several labels at once are zeros and ones; row {int(np.argmin(np.isin(array, (0, 1)).all(1)))} is not"
        )
    return array.astype("float32")


def _is_name_list(row):
    return isinstance(row, (list, tuple, set)) and (len(row) == 0 or isinstance(next(iter(row)), (str, bytes)))


def _index(value, names, position):
    name = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    if name not in names:
        raise ValueError(f"label {position} is {name!r}, which is not among the model's labels {_shortened(names)}")
    return names.index(name)


def _numbers(values, what):
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{what} must be an array of numbers, got rows of different lengths") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what} must be numbers, got {_shortened(list(array.flat))}")
    return array


def _shortened(items, most=20):
    shown = ", ".join(repr(item) for item in items[:most])
    return f"[{shown}{', ...' if len(items) > most else ''}]"


def class_weight_list(class_weights, names):
    """Weights by label name or number, as a list in the order of the labels.

    Args:
        class_weights: None, a list with a weight for every label, or a dict of label name (or number) to weight; labels
            that are not in the dict weigh 1.
        names: list of str. The classifier's labels.

    Returns:
        list of float, or None.

    Raises:
        ValueError: on an unknown label, a missing weight, or a weight that is not a finite number of at least 0.

    Example:

    >>> class_weight_list({"rare": 5}, ["common", "rare"])
    [1.0, 5.0]
    """
    if class_weights is None:
        return None
    if isinstance(class_weights, Mapping):
        weights = [1.0] * len(names)
        for label, weight in class_weights.items():
            if isinstance(label, (int, np.integer)) and 0 <= label < len(names):
                weights[int(label)] = weight
            elif label in names:
                weights[names.index(label)] = weight
            else:
                raise ValueError(f"class weights name the label {label!r}, which is not among {_shortened(names)}")
    else:
        weights = list(class_weights)
        if len(weights) != len(names):
            raise ValueError(f"class weights must be {len(names)}, one for each label; got {len(weights)}")
    for name, weight in zip(names, weights, strict=True):
        if not isinstance(weight, (int, float, np.number)) or not np.isfinite(weight) or weight < 0:
            raise ValueError(f"a class weight must be a finite number of at least 0; that of {name!r} is {weight}")
    return [float(weight) for weight in weights]
