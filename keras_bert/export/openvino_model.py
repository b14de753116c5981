"""Writes a TensorFlow function in OpenVINO's format, and runs it with OpenVINO."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.export.export_options import INT8

NAME = "OpenVINO"
PACKAGES = ("openvino",)
QUANTIZE_PACKAGES = ("nncf",)
REQUIREMENTS = "numpy openvino tokenizers"
IMPORT = "import openvino"
RUN = """# Without the hint, processors with bfloat16 instructions compute in bfloat16.
model = openvino.compile_model("model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
outputs = {key.get_any_name(): value for key, value in model(ids).to_dict().items()}"""

_FILE = "model.xml"  # the weights are in model.bin


def write_model(
    function: Any, folder: Path, quantize: str | None = None, calibration: Sequence[Mapping[str, np.ndarray]] = ()
) -> None:
    """Writes `function`, a `tf.function` with an input signature and a dict of outputs, to `folder`."""
    import openvino

    model = openvino.convert_model(function.get_concrete_function())
    outputs = function.get_concrete_function().structured_outputs
    for output in model.outputs:
        output.set_names(output.names & outputs.keys())  # without those of inner tensors
    if quantize is not None:
        import nncf

        if quantize == INT8:
            model = nncf.quantize(
                model,
                nncf.Dataset(calibration),
                subset_size=len(calibration),
                model_type=nncf.ModelType.TRANSFORMER,
            )
        else:  # activations are quantized at run time
            model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
    openvino.save_model(model, folder / _FILE, compress_to_fp16=False)


def load_model(folder: Path) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Returns a function that runs the model in `folder`, from a dict of ids to the dict of outputs."""
    import openvino

    model = openvino.compile_model(folder / _FILE, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def compute(ids: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {key.get_any_name(): np.array(value) for key, value in model(dict(ids)).to_dict().items()}

    return compute
