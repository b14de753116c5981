import pytest

from keras_bert.export.export_options import ExportOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "tflite"}, r"unknown format 'tflite'; allowed are \('saved_model', 'onnx', 'openvino', "),
        ({"dtype": "float16"}, r"unknown dtype 'float16'; allowed are \(None, 'float32', 'bfloat16'\)"),
        ({"quantize": "int4", "format": "onnx"}, r"unknown quantize 'int4'; allowed are \(None, 'int8', "),
        ({"dtype": "bfloat16", "format": "onnx"}, "format='onnx' is written in float32; got dtype='bfloat16'"),
        ({"quantize": "int8_dynamic"}, "a SavedModel cannot be quantized .*dtype=.bfloat16. .*'onnx', 'openvino'"),
        ({"quantize": "int8", "format": "litert"}, r"loses too much .* at 0\.678 .* use quantize=.int8_dynamic. "),
        ({"quantize": "int8", "format": "openvino"}, "calibration_texts are needed .*got quantize='int8' and none"),
        ({"calibration_texts": ["a"]}, "have no effect otherwise; got quantize=None and some"),
    ],
)
def test_refuses_options_that_are_unknown_or_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        ExportOptions(**options)
