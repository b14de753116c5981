"""Scores of predicted classes, as scikit-learn computes them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_SCORES = ("precision", "recall", "f1")
_AVERAGES = ("macro", "micro", "weighted")


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """The share of examples whose class is predicted (GLUE, arXiv 1804.07461, table 1).

    Args:
        labels: ints [examples], the true classes, from 0.
        predictions: ints [examples], the predicted classes.

    Returns:
        A float from 0 to 1.

    Raises:
        ValueError: if there are no examples, their numbers differ, or a class is no whole number from 0.

    Example:

    >>> accuracy([0, 1, 1, 0], [0, 1, 0, 0])
    0.75
    """
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(*_classes(labels, predictions)))


def f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """F1 of class 1 of two: MRPC's and QQP's score (GLUE, arXiv 1804.07461, table 1).

    Args:
        labels: ints [examples], 0 or 1.
        predictions: ints [examples], 0 or 1.

    Returns:
        A float from 0 to 1; 0 where class 1 is neither true nor predicted.

    Raises:
        ValueError: as for `accuracy`, or if there is a class other than 0 and 1.

    Example:

    >>> f1([0, 1, 1, 0], [0, 1, 0, 0])
    0.6666666666666666
    """
    from sklearn.metrics import f1_score

    return float(f1_score(*_classes(labels, predictions, num_classes=2), zero_division=0.0))


def macro_f1(labels: ArrayLike, predictions: ArrayLike, num_classes: int) -> float:
    """The mean of the classes' F1, each counting alike (scikit-learn's `average="macro"`).

    Args:
        labels: ints [examples], the true classes, from 0.
        predictions: ints [examples], the predicted classes.
        num_classes: int, number of classes; one that is neither true nor predicted has an F1 of 0.

    Returns:
        A float from 0 to 1.

    Raises:
        ValueError: as for `accuracy`, or if a class is not below `num_classes`.

    Example:

    >>> macro_f1([0, 0, 1, 1], [0, 0, 1, 1], num_classes=4)
    0.5
    """
    return _average_f1(labels, predictions, num_classes, "macro")


def micro_f1(labels: ArrayLike, predictions: ArrayLike, num_classes: int) -> float:
    """F1 of all decisions counted together; equal to the accuracy where every example has one class.

    Args:
        labels: ints [examples], the true classes, from 0.
        predictions: ints [examples], the predicted classes.
        num_classes: int, number of classes.

    Returns:
        A float from 0 to 1.

    Raises:
        ValueError: as for `macro_f1`.

    Example:

    >>> micro_f1([0, 1, 1, 0], [0, 1, 0, 0], num_classes=2)
    0.75
    """
    return _average_f1(labels, predictions, num_classes, "micro")


def weighted_f1(labels: ArrayLike, predictions: ArrayLike, num_classes: int) -> float:
    """The mean of the classes' F1, each counting as often as it is true (scikit-learn's `average="weighted"`).

    Args:
        labels: ints [examples], the true classes, from 0.
        predictions: ints [examples], the predicted classes.
        num_classes: int, number of classes.

    Returns:
        A float from 0 to 1.

    Raises:
        ValueError: as for `macro_f1`.

    Example:

    >>> weighted_f1([0, 0, 0, 1], [0, 0, 0, 0], num_classes=2)
    0.6428571428571428
    """
    return _average_f1(labels, predictions, num_classes, "weighted")


def matthews_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Matthews' correlation of true and predicted classes: CoLA's score (GLUE, arXiv 1804.07461, table 1).

    Args:
        labels: ints [examples], the true classes, from 0.
        predictions: ints [examples], the predicted classes.

    Returns:
        A float from -1 to 1; 0 where it is undefined, because all labels or all predictions are of one class.

    Raises:
        ValueError: as for `accuracy`.

    Example:

    >>> round(matthews_correlation([0, 1, 1, 0], [0, 1, 0, 0]), 6)
    0.57735
    >>> matthews_correlation([0, 1, 1, 0], [1, 1, 1, 1])
    0.0
    """
    from sklearn.metrics import matthews_corrcoef

    labels, predictions = _classes(labels, predictions)
    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0  # scikit-learn answers 0 in some releases and NaN in others
    return float(matthews_corrcoef(labels, predictions))


def classification_report(labels: ArrayLike, predictions: ArrayLike, label_names: Sequence[str]) -> dict[str, Any]:
    """All scores of predicted classes, by name, fit for JSON (scikit-learn's, undefined ones 0).

    Args:
        labels: ints [examples], the true classes, from 0.
        predictions: ints [examples], the predicted classes.
        label_names: list of distinct str, the names of the classes.

    Returns:
        A dict: `examples` int; `accuracy`, `matthews_correlation` floats; `macro`, `micro`, `weighted`, each a dict of
        `precision`, `recall`, `f1`; `per_class`, a dict of name to such a dict with `support`, the number of examples
        of the class; `label_names`; `confusion_matrix`, lists of ints [true][predicted] in the order of the names.

    Raises:
        ValueError: as for `macro_f1`, or if the names are not distinct.

    Example:

    >>> report = classification_report([0, 1, 1, 0], [0, 1, 0, 0], ["negative", "positive"])
    >>> report["accuracy"], report["confusion_matrix"]
    (0.75, [[2, 0], [1, 1]])
    >>> report["per_class"]["positive"]
    {'precision': 1.0, 'recall': 0.5, 'f1': 0.6666666666666666, 'support': 2}
    """
    from sklearn.metrics import confusion_matrix

    names = _distinct_names(label_names)
    labels, predictions = _classes(labels, predictions, len(names))
    return {
        "examples": len(labels),
        "accuracy": accuracy(labels, predictions),
        "matthews_correlation": matthews_correlation(labels, predictions),
        **_averages(labels, predictions, len(names)),
        "per_class": _per_class(labels, predictions, names),
        "label_names": names,
        "confusion_matrix": confusion_matrix(labels, predictions, labels=np.arange(len(names))).tolist(),
    }


def multi_label_report(labels: ArrayLike, predictions: ArrayLike, label_names: Sequence[str]) -> dict[str, Any]:
    """All scores where any number of labels may hold at once, fit for JSON (scikit-learn's, undefined ones 0).

    Args:
        labels: zeros and ones [examples, labels]: which labels hold.
        predictions: zeros and ones [examples, labels]: which are predicted.
        label_names: list of distinct str, the names of the labels.

    Returns:
        A dict: `examples` int; `subset_accuracy`, the share of examples with all labels right; `macro`, `micro`,
        `weighted`, each a dict of `precision`, `recall`, `f1`; `per_label`, a dict of name to such a dict with
        `support`, the number of examples with the label, and `counts`, lists of ints [true][predicted] of 0 and 1;
        `label_names`.

    Raises:
        ValueError: if there are no examples, the shapes differ or do not fit the names, a value is neither 0 nor 1, or
            the names are not distinct.

    Example:

    >>> report = multi_label_report([[1, 0], [1, 1]], [[1, 0], [0, 1]], ["billing", "urgent"])
    >>> report["subset_accuracy"], report["per_label"]["billing"]["recall"]
    (0.5, 0.5)
    >>> report["per_label"]["billing"]["counts"]
    [[0, 0], [1, 1]]
    """
    from sklearn.metrics import multilabel_confusion_matrix

    names = _distinct_names(label_names)
    labels, predictions = _zeros_and_ones(labels, predictions, len(names))
    subset_accuracy = float((labels == predictions).all(axis=1).mean())
    # scikit-learn takes a table of one column for classes 0 and 1, so it gets one more, which no score looks at.
    labels, predictions = (np.pad(table, [(0, 0), (0, 1)]) for table in (labels, predictions))
    per_label = _per_class(labels, predictions, names)
    counts = multilabel_confusion_matrix(labels, predictions, labels=np.arange(len(names)))
    for name, matrix in zip(names, counts, strict=True):
        per_label[name]["counts"] = matrix.tolist()
    return {
        "examples": len(labels),
        "subset_accuracy": subset_accuracy,
        **_averages(labels, predictions, len(names)),
        "per_label": per_label,
        "label_names": names,
    }


def _average_f1(labels, predictions, num_classes, average):
    labels, predictions = _classes(labels, predictions, num_classes)
    return _averages(labels, predictions, num_classes)[average]["f1"]


def _averages(labels, predictions, number):
    return {
        average: dict(zip(_SCORES, map(float, _scores(labels, predictions, number, average)[:3]), strict=True))
        for average in _AVERAGES
    }


def _per_class(labels, predictions, names):
    columns = _scores(labels, predictions, len(names), average=None)
    return {
        name: {**dict(zip(_SCORES, map(float, scores), strict=True)), "support": int(support)}
        for name, *scores, support in zip(names, *columns, strict=True)
    }


def _scores(labels, predictions, number, average):
    from sklearn.metrics import precision_recall_fscore_support

    return precision_recall_fscore_support(
        labels, predictions, labels=np.arange(number), average=average, zero_division=0.0
    )


def _classes(labels, predictions, num_classes=None):
    """Both as int arrays [examples], checked."""
    arrays = []
    for name, values in (("labels", labels), ("predictions", predictions)):
        array = np.asarray(values)
        if array.ndim != 1 or array.dtype.kind not in "biu":
            raise ValueError(
                f"{name} must be whole numbers [examples], the classes; got the shape {array.shape} and the type "
                f"{array.dtype}. Of logits [examples, classes], pass logits.argmax(axis=-1)."
            )
        arrays.append(array.astype(np.int64))
    _require_examples(*arrays)
    for name, array in zip(("labels", "predictions"), arrays, strict=True):
        if array.min() < 0 or (num_classes is not None and array.max() >= num_classes):
            allowed = "at least 0" if num_classes is None else f"from 0 to {num_classes - 1}"
            raise ValueError(f"{name} must be {allowed}; they reach from {array.min()} to {array.max()}")
    return arrays


def _zeros_and_ones(labels, predictions, number):
    """Both as int arrays [examples, labels], checked."""
    arrays = [np.asarray(values) for values in (labels, predictions)]
    for name, array in zip(("labels", "predictions"), arrays, strict=True):
        if array.ndim != 2 or array.shape[1] != number or not np.isin(array, (0, 1)).all():
            raise ValueError(
                f"{name} must be zeros and ones [examples, {number}], one column a label; got the shape {array.shape}"
                + ("" if array.ndim != 2 or array.shape[1] != number else " with other values")
                + ". Of logits, pass logits >= 0."
            )
    _require_examples(*arrays)
    return [array.astype(np.int64) for array in arrays]


def _require_examples(labels, predictions):
    if len(labels) != len(predictions):
        raise ValueError(f"there are {len(labels)} labels, but {len(predictions)} predictions; pass one for each")
    if not len(labels):
        raise ValueError("there are no examples, so there is no score; pass at least one")


def _distinct_names(label_names):
    names = list(label_names)
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ValueError(f"label_names must be distinct strings, at least one; got {names!r}")
    return names
