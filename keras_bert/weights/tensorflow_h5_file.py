"""Opens `tf_model.h5`, the weights of Hugging Face's TensorFlow models, under the names of their PyTorch models."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from keras_bert.weights.hdf5_file import open_hdf5
from keras_bert.weights.tensor_file import TensorFile

H5_NAME = "tf_model.h5"
# Last parts of their names: those of PyTorch.
_LEAVES = {"kernel": "weight", "gamma": "weight", "embeddings": "weight", "beta": "bias"}


@contextlib.contextmanager
def open_tensorflow_h5(path: Path) -> Iterator[TensorFile]:
    """Opens a `tf_model.h5`; kernels are transposed, as PyTorch stores them [outputs, inputs]."""
    with open_hdf5(path) as file:
        # Keras stores the shared word embeddings also in the group of the layer "mlm___cls", after "bert".
        stored: dict[str, str] = {}
        for name in sorted(file.entries):
            stored.setdefault(translate_name(name), name)
        entries = {name: file.entries[theirs] for name, theirs in stored.items()}
        kernels = {name for name, theirs in stored.items() if _is_kernel(theirs)}
        for name in kernels:
            entries[name] = dataclasses.replace(entries[name], shape=entries[name].shape[::-1])

        def read(name: str) -> np.ndarray:
            tensor = file.read(stored[name])
            return tensor.T if name in kernels else tensor

        yield TensorFile(path, entries, read)


def translate_name(name: str) -> str:
    """Translates the path of a variable in the file to the name of their PyTorch model's tensor.

    The path begins with the groups of the layer and of the model. "a___b" stands for b, and "a_._0" for a.0.

    >>> translate_name("bert/tf_bert_model/bert/encoder/layer_._0/output/dense/kernel:0")
    'bert.encoder.layer.0.output.dense.weight'
    >>> translate_name("mlm___cls/tf_bert_for_pre_training/mlm___cls/predictions/bias:0")
    'cls.predictions.bias'
    """
    path = re.sub(r"^[^/]*/[^/]*/", "", name.removesuffix(":0"))
    *modules, leaf = re.sub(r"(^|/)[^/]*___", r"\1", path).replace("_._", "/").split("/")
    return ".".join([*modules, _LEAVES.get(leaf, leaf)])


def _is_kernel(name: str) -> bool:
    return name.removesuffix(":0").endswith("/kernel")
