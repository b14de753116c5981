import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from keras_bert.text.inputs import as_text_tensor


@pytest.mark.parametrize(
    ("texts", "shape"),
    [
        ("a", []),
        (["a", "b"], [2]),
        (np.array(["a", "é"]), [2]),
        (np.array(["a", b"b"], dtype=object), [2]),
        (pd.Series(["a", "é"], index=[7, 3]), [2]),
        (tf.constant(["a"]), [1]),
        ([], [0]),
    ],
)
def test_all_forms_of_text_become_string_tensors(texts, shape):
    tensor = as_text_tensor(texts)
    assert tensor.dtype == tf.string
    assert tensor.shape == shape


NUMBERS, MISSING = np.array([1.5]), pd.Series(["a", None])


@pytest.mark.parametrize(
    "texts", [None, 5, NUMBERS, ["a", None], ["a", float("nan")], MISSING, {"text": "a"}, tf.ragged.constant([["a"]])]
)
def test_other_types_are_refused(texts):
    with pytest.raises(TypeError, match=r"review must be text\. Received: "):
        as_text_tensor(texts, "review")


def test_other_shapes_and_characters_are_refused():
    with pytest.raises(ValueError, match=r"at most one dimension. Received: shape \(1, 2\)"):
        as_text_tensor([["a", "b"]])
    with pytest.raises(TypeError, match="unicode"):
        as_text_tensor(["a\ud800b"])
