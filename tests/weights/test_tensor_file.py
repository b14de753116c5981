from pathlib import Path

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


def test_names_all_problems_and_reads_nothing():
    file = file_of(classifier_weight=np.zeros((4, 3), np.float32))
    file = TensorFile(file.path, file.entries, read=lambda name: pytest.fail(f"read {name}"))
    with pytest.raises(ValueError) as caught:
        file.read_variables(VARIABLES, SHAPES)
    message = str(caught.value)
    assert "some/model.safetensors: tensor 'classifier.weight' (our 'logits/kernel'): expected shape [3, 4]" in message
    assert "found [4, 3]" in message
    assert "tensor 'classifier.bias' (our 'logits/bias'): expected shape [3], found no such tensor" in message


def test_abbreviates_many_problems():
    variables = {f"path{index}": StoredVariable((f"name{index}",)) for index in range(30)}
    with pytest.raises(ValueError, match=r"30 tensors are missing(.|\n)*\.\.\. and 25 more"):
        file_of().read_variables(variables, dict.fromkeys(variables, (1,)))
