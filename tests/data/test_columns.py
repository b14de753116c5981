import numpy as np
import pandas
import pytest
import tensorflow as tf

from keras_bert.data.columns import text_column, text_columns


@pytest.mark.parametrize(
    "x, names",
    [
        (["a", "b"], ["text"]),
        ([b"a", "b"], ["text"]),
        (np.array(["a", "b"]), ["text"]),
        (np.array(["a", "b"], object), ["text"]),
        (tf.constant(["a", "b"]), ["text"]),
        ((["a", "b"], np.array(["c", "d"])), ["text_a", "text_b"]),
        ({"text": ["a", "b"]}, ["text"]),
        ({"text_a": ["a", "b"], "text_b": ["c", "d"]}, ["text_a", "text_b"]),
        ([("a", "c"), ["b", "d"]], ["text_a", "text_b"]),
        (np.array([["a", "c"], ["b", "d"]]), ["text_a", "text_b"]),
        (pandas.Series(["a", "b"]), ["text"]),
        (pandas.DataFrame({"text_b": ["c", "d"], "text_a": ["a", "b"]}), ["text_a", "text_b"]),
    ],
)
def test_reads_the_columns_of_texts(x, names):
    columns = text_columns(x)
    assert list(columns) == names
    assert all(values.dtype == object and len(values) == 2 for values in columns.values())
    assert columns[names[-1]].tolist() in (["a", "b"], [b"a", "b"], [b"a", b"b"], ["c", "d"])


def test_a_tuple_of_texts_is_a_list_unless_it_could_be_a_pair():
    assert text_columns(("a", "b", "c"))["text"].tolist() == ["a", "b", "c"]
    assert text_columns(("a", "b")) is None


@pytest.mark.parametrize("x", [np.zeros([2, 3]), {"token_ids": [[1]]}, [[1, 2]], None, {"text_a": ["a"]}, 3])
def test_returns_none_for_other_inputs(x):
    assert text_columns(x) is None


@pytest.mark.parametrize(
    "x, error, message",
    [
        ("a text", ValueError, r"text must be a list of texts, got a single one; pass \['a text'\]"),
        ((["a"], []), ValueError, "the same number"),
        ((["a"], ["b", "c"]), ValueError, "the same number"),
        ([None, "a"], TypeError, r"text\[0\] must be a string, got None"),
        (["a\ud800"], ValueError, r"text\[0\] holds half of a surrogate pair"),
        (["a", None], TypeError, r"text\[1\] must be a string, got None"),
        (["a", float("nan")], TypeError, r"text\[1\] must be a string, got nan"),
        (np.array([["a"], ["b"]]), ValueError, "one-dimensional"),
    ],
)
def test_refuses_invalid_texts(x, error, message):
    with pytest.raises(error, match=message):
        text_columns(x)


@pytest.mark.parametrize("make", [list, tuple, iter, lambda texts: np.array(texts, object)])
def test_accepts_columns_of_texts(make):
    assert text_column(make(["a", b"b"]), "texts").tolist() == ["a", b"b"]
    assert text_column(make([]), "texts").shape == (0,)


@pytest.mark.parametrize(
    "values, error, message",
    [
        ("In Paris", ValueError, r"questions must be a list of texts, got a single one; pass \['In Paris'\]"),
        (b"In Paris", ValueError, r"pass \[b'In Paris'\]"),
        (tf.constant("In Paris"), ValueError, r"got the shape \(\)"),
        ([["In", "Paris"]], ValueError, r"got the shape \(1, 2\)"),
        ([["In"], ["the", "end"]], TypeError, r"questions\[0\] must be a string, got \['In'\]"),
        (None, ValueError, r"got the shape \(\)"),
    ],
)
def test_refuses_other_columns(values, error, message):
    with pytest.raises(error, match=message):
        text_column(values, "questions")
