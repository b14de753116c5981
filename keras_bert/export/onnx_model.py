"""Writes a TensorFlow function as an ONNX file, and runs it with ONNX Runtime."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

NAME = "ONNX Runtime"
PACKAGES = ("onnx", "onnxruntime", "tf2onnx")
REQUIREMENTS = "numpy onnxruntime tokenizers"
IMPORT = "import onnxruntime"
RUN = """session = onnxruntime.InferenceSession("model.onnx")
names = [output.name for output in session.get_outputs()]
outputs = dict(zip(names, session.run(names, ids)))"""

_FILE = "model.onnx"
_OPSET = 18  # the newest that tf2onnx writes; ONNX Runtime has read it since 1.14


def write_model(function: Any, folder: Path) -> None:
    """Writes `function`, a `tf.function` with an input signature and a dict of outputs, to `folder`."""
    import tf2onnx

    tf2onnx.convert.from_function(
        function,
        input_signature=function.input_signature,
        opset=_OPSET,
        custom_op_handlers={"Erfc": (_write_erfc, [])},
        output_path=str(folder / _FILE),
    )


def load_model(folder: Path) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Returns a function that runs the model in `folder`, from a dict of ids to the dict of outputs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / _FILE)
    names = [output.name for output in session.get_outputs()]
    return lambda ids: dict(zip(names, session.run(names, dict(ids)), strict=True))


def _write_erfc(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """Replaces `Erfc`, which ONNX lacks and TensorFlow's exact GELU has, by `1 - Erf`."""
    erf = graph.make_node("Erf", node.input)
    one = graph.make_const(f"{name}_one", np.array(1, np.float32))
    shape, dtype = graph.get_shape(node.output[0]), graph.get_dtype(node.output[0])
    graph.remove_node(name)
    graph.make_node(
        "Sub", [one.output[0], erf.output[0]], name=name, outputs=node.output, shapes=[shape], dtypes=[dtype]
    )
