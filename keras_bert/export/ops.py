"""Lists the operations of a SavedModel, and finds those that TensorFlow Serving cannot run."""

from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_bert.typing import PathLike

# The operations of tensorflow-text that TensorFlow Serving links (the `ops_lib` target of tensorflow/text), as far as a
# tokenizer has use for them.
SERVED_TEXT_OPS = frozenset(
    {
        "FastBertNormalize",
        "FastWordpieceTokenizeWithOffsets",
        "CaseFoldUTF8",
        "NormalizeUTF8",
        "NormalizeUTF8WithOffsetsMap",
        "FindSourceOffsets",
        "RegexSplitWithOffsets",
        "TFText>FastWordpieceDetokenize",
        "TFText>WhitespaceTokenizeWithOffsetsV2",
        "WordpieceTokenizeWithOffsets",
    }
)
# Those of TensorFlow 2.21 that 2.20 lacks, and so TensorFlow Serving 2.20, the newest whose source was available.
NEWER_OPS = frozenset({"DecodeJxl"})
# Part of TensorFlow's Python package, but calling back into the Python process that wrote the graph.
PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def list_operations(path: PathLike) -> set[str]:
    """Returns the names of all operations of a SavedModel, including those in its functions."""
    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((Path(path) / "saved_model.pb").read_bytes())
    names: set[str] = set()
    for meta_graph in saved_model.meta_graphs:
        names.update(node.op for node in meta_graph.graph_def.node)
        functions = meta_graph.graph_def.library.function
        names.update(node.op for function in functions for node in function.node_def)
        # A function call is a node whose operation is the function's name.
        names.difference_update(function.signature.name for function in functions)
    return names


def find_unserved_operations(path: PathLike) -> list[str]:
    """Returns the operations of a SavedModel that TensorFlow Serving cannot run, sorted.

    It runs the operations of TensorFlow 2.20, except those that call Python, and `SERVED_TEXT_OPS`.
    """
    operations = list_operations(path)
    foreign = {name for name in operations if not hasattr(tf.raw_ops, name)}
    return sorted((foreign - SERVED_TEXT_OPS) | (operations & (PYTHON_OPS | NEWER_OPS)))
