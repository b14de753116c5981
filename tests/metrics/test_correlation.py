import json
import warnings

import ml_dtypes
import numpy as np
import pytest

from keras_bert.metrics.correlation import pearson_correlation, regression_report, spearman_correlation
from tests.tolerances import assert_close


def test_scores_equal_the_golden_ones(golden):
    for case in golden("correlation"):
        dtype = "float32" if case["name"].startswith("float32") else "float64"
        for function, key in ((pearson_correlation, "pearson"), (spearman_correlation, "spearman")):
            assert_close(function(case["x"], case["y"]), np.array(case[key], float), 100, dtype, magnitude=1)


@pytest.mark.parametrize("function", [pearson_correlation, spearman_correlation])
def test_undefined_correlations_are_nan_without_a_warning(function):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for labels, predictions in (([1, 2], [3.0, 3.0]), ([3, 3], [1, 2]), ([1.0, 2.0, 3.0], [1.0, np.nan, 2.0])):
            assert np.isnan(function(labels, predictions))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_narrow_types_are_computed_in_float64(dtype):
    predictions = np.array([[1000.0], [1001.0], [1004.0], [1003.0]]).astype(dtype)
    exact = predictions.astype(np.float64)[:, 0]
    expected = np.corrcoef([0, 1, 2, 3], exact)[0, 1] if len(set(exact)) > 1 else np.nan
    assert_close(pearson_correlation([0, 1, 2, 3], predictions), expected, dtype="float64", magnitude=1000)


def test_report_has_all_scores_and_none_if_undefined():
    report = regression_report([1.0, 2.0, 3.0, 4.0], [[1.5], [2.0], [2.0], [5.0]])
    assert report == {
        "examples": 4,
        "mean_squared_error": pytest.approx((0.25 + 1 + 1) / 4),
        "mean_absolute_error": pytest.approx(2.5 / 4),
        "pearson_correlation": pytest.approx(np.corrcoef([1, 2, 3, 4], [1.5, 2, 2, 5])[0, 1]),
        "spearman_correlation": pytest.approx(np.corrcoef([1, 2, 3, 4], [1, 2.5, 2.5, 4])[0, 1]),
    }
    constant = regression_report([1.0, 2.0], [1.0, 1.0])
    assert constant["pearson_correlation"] is None
    assert json.loads(json.dumps([report, constant], allow_nan=False)) == [report, constant]


@pytest.mark.parametrize(
    ("labels", "predictions", "message"),
    [
        ([1.0], [1.0], "at least two examples; got 1"),
        ([1.0, 2.0], [1.0], "there are 2 labels, but 1 predictions"),
        ([1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]], r"predictions must be numbers \[examples\]; got the shape \(2, 2\)"),
        (["a", "b"], [1.0, 2.0], "labels must be numbers"),
    ],
)
def test_rejects_invalid_values(labels, predictions, message):
    with pytest.raises(ValueError, match=message):
        pearson_correlation(labels, predictions)
