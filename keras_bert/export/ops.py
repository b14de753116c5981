"""Which operations a TensorFlow Serving binary can run."""

from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

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
# Part of TensorFlow's Python package, but calling back into the Python process that wrote the graph.
PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def graph_operations(path):
    """The names of all operations in a SavedModel, those in its functions included.

    Args:
        path: str or Path. The folder of a SavedModel.

    Returns:
        set of str.
    """
    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((Path(path) / "saved_model.pb").read_bytes())
    names = set()
    for meta_graph in saved_model.meta_graphs:
        names.update(node.op for node in meta_graph.graph_def.node)
        functions = meta_graph.graph_def.library.function
        names.update(node.op for function in functions for node in function.node_def)
        # A call of a function is a node whose operation is the function's name.
        names.difference_update(function.signature.name for function in functions)
    return names


def unserved_operations(path):
    """The operations of a SavedModel that TensorFlow Serving cannot run.

    Allowed are TensorFlow's own operations, except those that call Python, and those of tensorflow-text that the server
    links.

    Args:
        path: str or Path. The folder of a SavedModel.

    Returns:
        sorted list of str; empty for a model that can be served.
    """
    operations = graph_operations(path)
    foreign = {name for name in operations if not hasattr(tf.raw_ops, name)}
    return sorted((foreign - SERVED_TEXT_OPS) | (operations & PYTHON_OPS))
