from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from keras_bert.weights.tensor_file import TensorEntry, TensorFile
from keras_bert.weights.variable_map import StoredVariable

VARIABLES = {
    "logits/kernel": StoredVariable(("classifier.weight",), transposed=True),
    "logits/bias": StoredVariable(("classifier.bias",)),
}
SHAPES = {"logits/kernel": (4, 3), "logits/bias": (3,)}


def file_of(**tensors):
    tensors = {name.replace("_", "."): tensor for name, tensor in tensors.items()}
    path = Path("some/model.safetensors")
    entries = {name: TensorEntry(tensor.shape, tensor.dtype.name, path) for name, tensor in tensors.items()}
    return TensorFile(path, entries, tensors.__getitem__)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_every_float_type_becomes_float32(dtype):
    weight = np.arange(12).reshape(3, 4)
    arrays = file_of(classifier_weight=weight.astype(dtype), classifier_bias=np.ones(3, dtype)).read_variables(
        VARIABLES, SHAPES
    )
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(arrays["logits/kernel"], weight.T)


def test_an_integer_tensor_is_refused():
    file = file_of(classifier_weight=np.zeros((3, 4), np.int8), classifier_bias=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"'classifier.weight'.*expected a float type.*found int8"):
        file.read_variables(VARIABLES, SHAPES)


def test_all_problems_are_named_at_once_and_nothing_is_read():
    file = file_of(classifier_weight=np.zeros((4, 3), np.float32))
    file = TensorFile(file.path, file.entries, read=lambda name: pytest.fail(f"read {name}"))
    with pytest.raises(ValueError) as caught:
        file.read_variables(VARIABLES, SHAPES)
    message = str(caught.value)
    assert "some/model.safetensors: tensor 'classifier.weight' (our 'logits/kernel'): expected shape [3, 4]" in message
    assert "found [4, 3]" in message
    assert "tensor 'classifier.bias' (our 'logits/bias'): expected shape [3], found no such tensor" in message


def test_a_long_list_of_problems_is_cut():
    variables = {f"path{index}": StoredVariable((f"name{index}",)) for index in range(30)}
    with pytest.raises(ValueError, match=r"30 tensors are missing(.|\n)*\.\.\. and 25 more"):
        file_of().read_variables(variables, dict.fromkeys(variables, (1,)))
