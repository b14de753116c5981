import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.inputs import text_tensor


@pytest.mark.parametrize(
    ("texts", "shape"),
    [
        ("a", []),
        (b"a", []),
        (["a", "b"], [2]),
        (("a", "b"), [2]),
        (np.array(["a", "é"]), [2]),
        (np.array(["a", b"b"], dtype=object), [2]),
        (np.array("a"), []),
        (tf.constant(["a"]), [1]),
        ([], [0]),
        (np.array([]), [0]),
    ],
)
def test_forms_of_text(texts, shape):
    tensor = text_tensor(texts)
    assert tensor.dtype == tf.string
    assert tensor.shape == shape


@pytest.mark.parametrize(
    "texts",
    [
        None,
        5,
        [1, 2],
        np.array([1.5]),
        ["a", None],
        ["a", 1],
        ["a", float("nan")],
        {"text": "a"},
        tf.ragged.constant([["a"]]),
    ],
)
def test_something_other_than_text_is_refused(texts):
    with pytest.raises(TypeError, match=r"review must be text\. Received: "):
        text_tensor(texts, "review")


def test_two_dimensions_are_refused():
    with pytest.raises(ValueError, match=r"at most one dimension. Received: shape \(1, 2\)"):
        text_tensor([["a", "b"]])


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(TypeError, match="unicode"):
        text_tensor(["a\ud800b"])
