"""Writes a TensorFlow function as an ONNX file, and runs it with ONNX Runtime."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

NAME = "ONNX Runtime"
PACKAGES = ("onnx", "onnxruntime", "tf2onnx")
QUANTIZE_PACKAGES = ()
REQUIREMENTS = "numpy onnxruntime tokenizers"
IMPORT = "import onnxruntime"
RUN = """session = onnxruntime.InferenceSession("model.onnx")
names = [output.name for output in session.get_outputs()]
outputs = dict(zip(names, session.run(names, ids)))"""

_FILE = "model.onnx"
_OPSET = 18  # the newest that tf2onnx writes; ONNX Runtime has read it since 1.14


def write_model(
    function: Any, folder: Path, quantize: str | None = None, calibration: Sequence[Mapping[str, np.ndarray]] = ()
) -> None:
    """Writes `function`, a `tf.function` with an input signature and a dict of outputs, to `folder`."""
    import tf2onnx

    path = folder / (_FILE if quantize is None else "float.onnx")
    tf2onnx.convert.from_function(
        function,
        input_signature=function.input_signature,
        opset=_OPSET,
        custom_rewriter=[_fuse_operations],
        output_path=str(path),
    )
    if quantize is not None:  # only "int8_dynamic" comes here
        from onnxruntime import quantization

        quantization.quantize_dynamic(
            path,
            folder / _FILE,
            op_types_to_quantize=["MatMul", "Gather"],
            per_channel=True,
            reduce_range=True,  # processors without VNNI add two products in 16 bits: 8-bit weights overflow
            extra_options={"MatMulConstBOnly": True},  # not the products of attention
        )
        path.unlink()


def load_model(folder: Path) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Returns a function that runs the model in `folder`, from a dict of ids to the dict of outputs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / _FILE)
    names = [output.name for output in session.get_outputs()]
    return lambda ids: dict(zip(names, session.run(names, dict(ids)), strict=True))


def _fuse_operations(graph: Any, nodes: Any) -> Any:
    """Replaces the operations of layer norms and of exact GELUs by those that runtimes have kernels for.

    TensorFlow's exact GELU is 0.5 * x * erfc(-x / sqrt(2)), and ONNX has no `Erfc`. ONNX Runtime makes one operation of
    the form with `Erf`.
    """
    from tf2onnx.graph_matcher import GraphMatcher
    from tf2onnx.graph_matcher import OpTypePattern as Pattern

    centered = Pattern("Sub", "centered", [Pattern("*", "x"), Pattern("Mean", "mean")], allow_reorder=False)
    variance = Pattern("Mean", "variance", [Pattern("Square", None, [centered]), Pattern("Const")], allow_reorder=False)
    scale = Pattern("Rsqrt", None, [Pattern("AddV2", None, [variance, Pattern("Const", "epsilon")])])
    gain = Pattern("Mul", None, [scale, Pattern("*", "gamma")])
    layer_norm = Pattern("AddV2", "output", [Pattern("Mul", None, [Pattern("Sub"), gain]), Pattern("*", "beta")])
    for match in GraphMatcher(layer_norm, allow_reorder=True).match_ops(nodes):
        inputs, beta = [match.get_op("centered").input[0], match.get_tensor("gamma")], match.get_tensor("beta")
        attributes = {"axis": -1, "epsilon": float(match.get_op("epsilon").get_tensor_value())}
        if match.get_op("beta").is_const():
            _replace(graph, match.get_op("output"), "LayerNormalization", [*inputs, beta], attributes)
        else:  # TensorFlow added beta to the next bias; and ONNX Runtime 1.23 takes vectors for beta only
            normalized = graph.make_node("LayerNormalization", inputs, attributes)
            _replace(graph, match.get_op("output"), "Add", [*normalized.output, beta], {})

    scaled = Pattern("Mul", None, [Pattern("Neg"), Pattern("Const")])
    half_x = Pattern("Mul", None, [Pattern("Const", "half"), Pattern("*", "x")])
    gelu = Pattern("Mul", "output", [half_x, Pattern("Erfc", None, [scaled])])
    for match in GraphMatcher(gelu, allow_reorder=True).match_ops(nodes):
        x, half, output = match.get_tensor("x"), match.get_tensor("half"), match.get_op("output")
        root, one = (
            graph.make_const(f"{output.name}_{name}", np.array(value, np.float32)).output[0]
            for name, value in (("root", np.sqrt(2)), ("one", 1))
        )
        erf = graph.make_node("Erf", graph.make_node("Div", [x, root]).output)
        product = graph.make_node("Mul", [x, *graph.make_node("Add", [*erf.output, one]).output])
        _replace(graph, output, "Mul", [*product.output, half], {})
    return graph.get_nodes()


def _replace(graph: Any, node: Any, operation: str, inputs: list[str], attributes: dict[str, Any]) -> None:
    shapes, dtypes = [graph.get_shape(node.output[0])], [graph.get_dtype(node.output[0])]
    graph.remove_node(node.name)
    graph.make_node(operation, inputs, attributes, name=node.name, outputs=node.output, shapes=shapes, dtypes=dtypes)
