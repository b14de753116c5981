import numpy as np
import pandas as pd
import pytest

from keras_bert.data.label_values import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from keras_bert.models.labels import class_weight_list, encode_labels, label_names

NAMES = ["a", "b", "c"]


@pytest.mark.parametrize(
    "values, problem_type, expected",
    [
        (["c", "a"], SINGLE_LABEL, [2, 0]),
        ([b"c", b"a"], SINGLE_LABEL, [2, 0]),
        (np.array([2, 0], "int64"), SINGLE_LABEL, [2, 0]),
        (np.array([2.0, 0.0]), SINGLE_LABEL, [2, 0]),
        ([True, False], SINGLE_LABEL, [1, 0]),
        ([["c", "a"], []], MULTI_LABEL, [[1, 0, 1], [0, 0, 0]]),
        (pd.Series(["c", "a"]), SINGLE_LABEL, [2, 0]),
        ([["c"], ["a"]], MULTI_LABEL, [[0, 0, 1], [1, 0, 0]]),
        (pd.Series([["c"], []]), MULTI_LABEL, [[0, 0, 1], [0, 0, 0]]),
        (pd.DataFrame({"a": [0], "b": [1], "c": [0]}), MULTI_LABEL, [[0, 1, 0]]),
        (np.array([[0, 1, 0]]), MULTI_LABEL, [[0, 1, 0]]),
        ([[1.5, 2.0, -3.0]], REGRESSION, [[1.5, 2.0, -3.0]]),
    ],
)
def test_encodes_labels_by_problem_type(values, problem_type, expected):
    encoded = encode_labels(values, NAMES, problem_type)
    assert encoded.tolist() == expected
    assert encoded.dtype == ("int32" if problem_type == SINGLE_LABEL else "float32")


@pytest.mark.parametrize(
    "values, problem_type, message",
    [
        (["d"], SINGLE_LABEL, "label 0 is 'd', which is not among"),
        ([0, 3], SINGLE_LABEL, "integers from 0 to 2 .*label 1 is 3"),
        ([float("nan")], SINGLE_LABEL, "label 0 is nan"),
        ([["a"], "ab"], MULTI_LABEL, "row 1 is 'ab'"),
        ([["d"]], MULTI_LABEL, "label 0 is 'd'"),
        ([[0, 1]], MULTI_LABEL, r"shape \[examples, 3\]"),
        ([[0, 2, 1]], MULTI_LABEL, "row 0 is not"),
        ([1.0], REGRESSION, r"the shape \[examples, 3\], got \(1, 1\)"),
        ([[1.0, float("inf"), 0.0]], REGRESSION, "target 0 is not"),
        ([["x", "y", "z"]], REGRESSION, "must be numbers"),
        ([[1.0], [1.0, 2.0]], REGRESSION, "rows of different lengths"),
    ],
)
def test_rejects_invalid_labels(values, problem_type, message):
    with pytest.raises(ValueError, match=message):
        encode_labels(values, NAMES, problem_type)


def test_rejects_numbers_where_names_look_like_other_numbers():
    with pytest.raises(ValueError, match=r"label names .* look like numbers, so that 1 may be a name or a position"):
        encode_labels([1, 2], ["1", "2"], SINGLE_LABEL)
    assert encode_labels(["1", "2"], ["1", "2"], SINGLE_LABEL).tolist() == [0, 1]
    assert encode_labels(np.array([1, 0], object), ["0", "1"], SINGLE_LABEL).tolist() == [1, 0]


def test_many_labels_take_linear_time():
    names = label_names([f"label {i}" for i in range(100_000)], SINGLE_LABEL)
    assert encode_labels(names, names, SINGLE_LABEL)[-1] == 99_999  # a quadratic algorithm takes minutes


def test_label_names_have_defaults():
    assert label_names(2, SINGLE_LABEL) == ["0", "1"]
    assert label_names(None, REGRESSION) == ["value"]
    assert label_names(("x", "y"), MULTI_LABEL) == ["x", "y"]


def test_class_weights_by_name_number_or_list():
    assert class_weight_list({"b": 2, 2: 3.0}, NAMES) == [1.0, 2.0, 3.0]
    assert class_weight_list((1, 2, 3), NAMES) == [1.0, 2.0, 3.0]
    assert class_weight_list(None, NAMES) is None
