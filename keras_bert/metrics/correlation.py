"""Correlations and errors of predicted values, computed by scipy in float64.

Labels and predictions are numbers [examples] or [examples, 1].
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def pearson_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Computes Pearson's correlation: one of the two scores of STS-B (GLUE, arXiv 1804.07461, table 1).

    NaN if it is undefined: all labels or all predictions are equal, or a value is NaN.
    """
    from scipy.stats import pearsonr

    return _correlate(pearsonr, labels, predictions)


def spearman_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Computes Spearman's rank correlation: the other score of STS-B (GLUE, arXiv 1804.07461, table 1).

    Equal values have the mean of their ranks. NaN if it is undefined, as for `pearson_correlation`.
    """
    from scipy.stats import spearmanr

    return _correlate(spearmanr, labels, predictions)


def regression_report(labels: ArrayLike, predictions: ArrayLike) -> dict[str, float | int | None]:
    """Computes all scores of predicted values, in a form that JSON can hold: undefined scores are None."""
    labels, predictions = _as_values(labels, predictions)
    scores = {
        "mean_squared_error": float(np.mean((labels - predictions) ** 2)),
        "mean_absolute_error": float(np.mean(np.abs(labels - predictions))),
        "pearson_correlation": pearson_correlation(labels, predictions),
        "spearman_correlation": spearman_correlation(labels, predictions),
    }
    return {"examples": len(labels), **{name: value if np.isfinite(value) else None for name, value in scores.items()}}


def _correlate(function: Callable[..., Any], labels: ArrayLike, predictions: ArrayLike) -> float:
    values = _as_values(labels, predictions)
    with warnings.catch_warnings():
        # scipy warns about constant values; the result is NaN.
        warnings.simplefilter("ignore")
        return float(function(*values).statistic)


def _as_values(labels: ArrayLike, predictions: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Converts both to float64 arrays [examples], and checks them."""
    arrays = []
    for name, values in (("labels", labels), ("predictions", predictions)):
        array = np.asarray(values)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1 or (array.dtype.kind not in "iuf" and array.dtype.name != "bfloat16"):
            raise ValueError(
                f"{name} must be numbers [examples]; got the shape {array.shape} and the type {array.dtype}. "
                "Of several outputs, pass one column at a time."
            )
        arrays.append(array.astype(np.float64))
    if len(arrays[0]) != len(arrays[1]):
        raise ValueError(f"there are {len(arrays[0])} labels, but {len(arrays[1])} predictions; pass one for each")
    if len(arrays[0]) < 2:
        raise ValueError(f"a correlation needs at least two examples; got {len(arrays[0])}")
    return arrays[0], arrays[1]
