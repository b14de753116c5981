"""Correlations and errors of predicted values, as scipy computes them."""

import warnings

import numpy as np
from numpy.typing import ArrayLike


def pearson_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Pearson's correlation: one of STS-B's two scores (GLUE, arXiv 1804.07461, table 1).

    Computed in float64, whatever the type of the values.

    Args:
        labels: numbers [examples] or [examples, 1], the true values.
        predictions: numbers of the same shape, the predicted values.

    Returns:
        A float from -1 to 1; NaN where it is undefined: labels or predictions are all equal, or one is NaN.

    Raises:
        ValueError: if there are fewer than two examples, their numbers differ, or they are not numbers.

    Example:

    >>> round(pearson_correlation([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]), 6)
    1.0
    >>> pearson_correlation([1.0, 2.0, 3.0], [4.0, 4.0, 4.0])
    nan
    """
    from scipy.stats import pearsonr

    return _correlation(pearsonr, labels, predictions)


def spearman_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Spearman's rank correlation: one of STS-B's two scores (GLUE, arXiv 1804.07461, table 1).

    Equal values have the mean of their ranks.

    Args:
        labels: numbers [examples] or [examples, 1], the true values.
        predictions: numbers of the same shape, the predicted values.

    Returns:
        A float from -1 to 1; NaN where it is undefined: labels or predictions are all equal, or one is NaN.

    Raises:
        ValueError: as for `pearson_correlation`.

    Example:

    >>> round(spearman_correlation([1.0, 2.0, 3.0, 4.0], [1.0, 8.0, 27.0, 26.0]), 6)
    0.8
    """
    from scipy.stats import spearmanr

    return _correlation(spearmanr, labels, predictions)


def regression_report(labels: ArrayLike, predictions: ArrayLike) -> dict[str, float | int | None]:
    """All scores of predicted values, fit for JSON.

    Args:
        labels: numbers [examples] or [examples, 1], the true values.
        predictions: numbers of the same shape, the predicted values.

    Returns:
        A dict: `examples` int; `mean_squared_error`, `mean_absolute_error`; `pearson_correlation`,
        `spearman_correlation`. What is undefined is None, since JSON knows no NaN.

    Raises:
        ValueError: as for `pearson_correlation`.

    Example:

    >>> report = regression_report([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    >>> round(report["mean_squared_error"], 6), report["spearman_correlation"]
    (0.333333, 1.0)
    """
    labels, predictions = _values(labels, predictions)
    scores = {
        "mean_squared_error": float(np.mean((labels - predictions) ** 2)),
        "mean_absolute_error": float(np.mean(np.abs(labels - predictions))),
        "pearson_correlation": pearson_correlation(labels, predictions),
        "spearman_correlation": spearman_correlation(labels, predictions),
    }
    return {"examples": len(labels), **{name: value if np.isfinite(value) else None for name, value in scores.items()}}


def _correlation(function, labels, predictions):
    labels, predictions = _values(labels, predictions)
    with warnings.catch_warnings():
        # scipy warns that constant values have no correlation; the NaN says so.
        warnings.simplefilter("ignore")
        return float(function(labels, predictions).statistic)


def _values(labels, predictions):
    """Both as float64 arrays [examples], checked."""
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
    labels, predictions = arrays
    if len(labels) != len(predictions):
        raise ValueError(f"there are {len(labels)} labels, but {len(predictions)} predictions; pass one for each")
    if len(labels) < 2:
        raise ValueError(f"a correlation needs at least two examples; got {len(labels)}")
    return labels, predictions
