"""Scores of predicted classes, computed by scikit-learn.

Labels and predictions are int classes [examples] from 0. A score that is undefined, for example because no example has
or is predicted to have the class, is 0.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_SCORES = ("precision", "recall", "f1")
_AVERAGES = ("macro", "micro", "weighted")


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Computes the fraction of examples whose class is predicted (GLUE, arXiv 1804.07461, table 1)."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(*_as_classes(labels, predictions)))


def f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Computes F1 of class 1 of two: the score of MRPC and QQP (GLUE, arXiv 1804.07461, table 1)."""
    from sklearn.metrics import f1_score

    return float(f1_score(*_as_classes(labels, predictions, num_classes=2), zero_division=0.0))


def macro_f1(labels: ArrayLike, predictions: ArrayLike, num_classes: int) -> float:
    """Computes the unweighted mean of the classes' F1."""
    labels, predictions = _as_classes(labels, predictions, num_classes)
    return _average_scores(labels, predictions, num_classes)["macro"]["f1"]


def matthews_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Computes Matthews' correlation coefficient: the score of CoLA (GLUE, arXiv 1804.07461, table 1)."""
    from sklearn.metrics import matthews_corrcoef

    labels, predictions = _as_classes(labels, predictions)
    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0  # scikit-learn returns 0 in some releases and NaN in others
    return float(matthews_corrcoef(labels, predictions))


def classification_report(labels: ArrayLike, predictions: ArrayLike, label_names: Sequence[str]) -> dict[str, Any]:
    """Computes all scores of predicted classes, in a form that JSON can hold.

    The result has `examples`, `accuracy`, `matthews_correlation`; `macro`, `micro`, `weighted`, each a dict of
    `precision`, `recall`, `f1`; `per_class`, such a dict with `support` for each name; `label_names`; and
    `confusion_matrix`, lists of ints [true][predicted].
    """
    from sklearn.metrics import confusion_matrix

    names = _check_names(label_names)
    labels, predictions = _as_classes(labels, predictions, len(names))
    return {
        "examples": len(labels),
        "accuracy": accuracy(labels, predictions),
        "matthews_correlation": matthews_correlation(labels, predictions),
        **_average_scores(labels, predictions, len(names)),
        "per_class": _class_scores(labels, predictions, names),
        "label_names": names,
        "confusion_matrix": confusion_matrix(labels, predictions, labels=np.arange(len(names))).tolist(),
    }


def multi_label_report(labels: ArrayLike, predictions: ArrayLike, label_names: Sequence[str]) -> dict[str, Any]:
    """Computes all scores of multi-label predictions, zeros and ones [examples, labels], in a form that JSON can hold.

    The result has `examples`; `subset_accuracy`, the fraction of examples with all labels right; `macro`, `micro`,
    `weighted`, each a dict of `precision`, `recall`, `f1`; `per_label`, such a dict with `support` and `counts` (ints
    [true][predicted] of 0 and 1) for each name; and `label_names`.
    """
    from sklearn.metrics import multilabel_confusion_matrix

    names = _check_names(label_names)
    labels, predictions = _as_indicators(labels, predictions, len(names))
    subset_accuracy = float((labels == predictions).all(axis=1).mean())
    # scikit-learn takes a table of one column for classes 0 and 1; another column, which no score uses, prevents that.
    labels, predictions = (np.pad(table, [(0, 0), (0, 1)]) for table in (labels, predictions))
    per_label = _class_scores(labels, predictions, names)
    counts = multilabel_confusion_matrix(labels, predictions, labels=np.arange(len(names)))
    for name, matrix in zip(names, counts, strict=True):
        per_label[name]["counts"] = matrix.tolist()
    return {
        "examples": len(labels),
        "subset_accuracy": subset_accuracy,
        **_average_scores(labels, predictions, len(names)),
        "per_label": per_label,
        "label_names": names,
    }


def _average_scores(labels: np.ndarray, predictions: np.ndarray, num_classes: int) -> dict[str, dict[str, float]]:
    return {
        average: dict(zip(_SCORES, map(float, _scores(labels, predictions, num_classes, average)[:3]), strict=True))
        for average in _AVERAGES
    }


def _class_scores(labels: np.ndarray, predictions: np.ndarray, names: list[str]) -> dict[str, dict[str, Any]]:
    columns = _scores(labels, predictions, len(names), average=None)
    return {
        name: {**dict(zip(_SCORES, map(float, scores), strict=True)), "support": int(support)}
        for name, *scores, support in zip(names, *columns, strict=True)
    }


def _scores(labels: np.ndarray, predictions: np.ndarray, num_classes: int, average: str | None) -> tuple[Any, ...]:
    from sklearn.metrics import precision_recall_fscore_support

    return precision_recall_fscore_support(
        labels, predictions, labels=np.arange(num_classes), average=average, zero_division=0.0
    )


def _as_classes(
    labels: ArrayLike, predictions: ArrayLike, num_classes: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Converts both to int arrays [examples], and checks them."""
    arrays = []
    for name, values in (("labels", labels), ("predictions", predictions)):
        array = np.asarray(values)
        if array.ndim != 1 or array.dtype.kind not in "biu":
            raise ValueError(
                f"{name} must be int classes [examples]; got the shape {array.shape} and the type {array.dtype}. Of "
                "logits [examples, classes], pass logits.argmax(axis=-1)."
            )
        arrays.append(array.astype(np.int64))
    _check_lengths(*arrays)
    for name, array in zip(("labels", "predictions"), arrays, strict=True):
        if array.min() < 0 or (num_classes is not None and array.max() >= num_classes):
            allowed = "at least 0" if num_classes is None else f"from 0 to {num_classes - 1}"
            raise ValueError(f"{name} must be {allowed}; got values from {array.min()} to {array.max()}")
    return arrays[0], arrays[1]


def _as_indicators(labels: ArrayLike, predictions: ArrayLike, num_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Converts both to int arrays [examples, labels] of zeros and ones, and checks them."""
    arrays = [np.asarray(values) for values in (labels, predictions)]
    for name, array in zip(("labels", "predictions"), arrays, strict=True):
        if array.ndim != 2 or array.shape[1] != num_labels or not np.isin(array, (0, 1)).all():
            raise ValueError(
                f"{name} must be zeros and ones [examples, {num_labels}], one column per label; got the shape "
                f"{array.shape}{'' if array.ndim != 2 or array.shape[1] != num_labels else ' with other values'}. Of "
                "logits, pass logits >= 0."
            )
    _check_lengths(*arrays)
    return arrays[0].astype(np.int64), arrays[1].astype(np.int64)


def _check_lengths(labels: np.ndarray, predictions: np.ndarray) -> None:
    if len(labels) != len(predictions):
        raise ValueError(f"there are {len(labels)} labels, but {len(predictions)} predictions; pass one for each")
    if not len(labels):
        raise ValueError("there are no examples to score; pass at least one")


def _check_names(label_names: Sequence[str]) -> list[str]:
    names = list(label_names)
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ValueError(f"label_names must be distinct strings, at least one; got {names!r}")
    return names
