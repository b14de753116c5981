"""Writes a TensorFlow function as a LiteRT (TensorFlow Lite) file, and runs it with LiteRT."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

NAME = "LiteRT"
PACKAGES = ("ai_edge_litert",)
QUANTIZE_PACKAGES = ()
REQUIREMENTS = "numpy ai-edge-litert tokenizers"
IMPORT = "from ai_edge_litert.interpreter import Interpreter"
RUN = """run = Interpreter("model.tflite").get_signature_runner()  # of ids of any shape
outputs = run(**ids)"""

_FILE = "model.tflite"


def write_model(
    function: Any, folder: Path, quantize: str | None = None, calibration: Sequence[Mapping[str, np.ndarray]] = ()
) -> None:
    """Writes `function`, a `tf.function` with an input signature and a dict of outputs, to `folder`."""
    concrete = function.get_concrete_function()
    module = tf.Module()
    module.variables_of_function = concrete.variables
    # By way of a SavedModel: from a concrete function alone, the converter can write a file without weights.
    with tempfile.TemporaryDirectory() as saved:
        tf.saved_model.save(module, saved, signatures=concrete)
        converter = tf.lite.TFLiteConverter.from_saved_model(saved)
        # An operation that is not built in is an error, not one of the Flex delegate.
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if quantize is not None:  # only "int8_dynamic" comes here
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        (folder / _FILE).write_bytes(converter.convert())


def load_model(folder: Path) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Returns a function that runs the model in `folder`, from a dict of ids to the dict of outputs."""
    from ai_edge_litert.interpreter import Interpreter

    run = Interpreter(str(folder / _FILE)).get_signature_runner()
    return lambda ids: run(**ids)
