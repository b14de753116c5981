"""Options of `export` that all heads share, and the formats and methods that they name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

SAVED_MODEL = "saved_model"
RUNTIME_FORMATS = ("onnx", "openvino", "litert")
EXPORT_FORMATS = (SAVED_MODEL, *RUNTIME_FORMATS)
EXPORT_DTYPES = ("float32", "bfloat16")
INT8, INT8_DYNAMIC = "int8", "int8_dynamic"
QUANTIZE_METHODS = (INT8, INT8_DYNAMIC)
# Formats whose static quantization is refused, and what it makes of MiniLM's correlation on SICK (docs/results.md).
_STATIC_SCORES = {"onnx": 0.756, "litert": 0.678}


class ExportArguments(TypedDict, total=False):
    """Arguments of `export` of every head; see `BertClassifier.export`."""

    dtype: str | None
    format: str
    quantize: str | None
    calibration_texts: Any


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The values of `ExportArguments`, with defaults; raises ValueError unless they fit together."""

    dtype: str | None = None
    format: str = SAVED_MODEL
    quantize: str | None = None
    calibration_texts: Any = None

    def __post_init__(self) -> None:
        allowed = (EXPORT_FORMATS, (None, *EXPORT_DTYPES), (None, *QUANTIZE_METHODS))
        for name, values in zip(("format", "dtype", "quantize"), allowed, strict=True):
            if getattr(self, name) not in values:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}; allowed are {values}")
        if self.format == SAVED_MODEL and self.quantize is not None:
            raise ValueError(
                f"a SavedModel cannot be quantized (quantize={self.quantize!r}): TensorFlow's own quantization changes "
                'the outputs too much. dtype="bfloat16" halves the size; for int8, choose one of the formats '
                f"{RUNTIME_FORMATS}"
            )
        if self.quantize == INT8 and self.format in _STATIC_SCORES:
            raise ValueError(
                f'quantize="{INT8}" loses too much with format={self.format!r}: sentence similarities correlate '
                f'at {_STATIC_SCORES[self.format]} instead of 0.772; use quantize="{INT8_DYNAMIC}" (0.770 or more), or '
                'format="openvino"'
            )
        if self.format != SAVED_MODEL and self.dtype not in (None, "float32"):
            raise ValueError(f"format={self.format!r} is written in float32; got dtype={self.dtype!r}")
        if (self.quantize == INT8) != (self.calibration_texts is not None):
            texts = "none" if self.calibration_texts is None else "some"
            raise ValueError(
                f'calibration_texts are needed for quantize="{INT8}", which measures the ranges of activations on them '
                f"(about 300 typical texts are enough), and have no effect otherwise; got quantize={self.quantize!r} "
                f"and {texts}"
            )
