"""Runtime settings of a run, which may change when it is resumed."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from keras_bert.data.data_service import parse_service_address
from keras_bert.export.export_options import (
    EXPORT_DTYPES,
    EXPORT_FORMATS,
    INT8,
    QUANTIZE_METHODS,
    SAVED_MODEL,
    ExportOptions,
)
from keras_bert.settings import Settings, setting
from keras_bert.training.trainer_settings import TrainerSettings

_training = functools.partial(setting, modes=("train",))


@dataclass(frozen=True, kw_only=True)
class RuntimeSettings(Settings):
    """Settings of speed, memory and output. They may differ when a run is resumed.

    The weights do not depend on them, except that `gradient_accumulation_steps`, and on several replicas `jit_compile`,
    change the random numbers of dropout.

    Example:

    >>> keras_bert.RuntimeSettings(steps_per_execution=0)
    Traceback (most recent call last):
    ValueError: steps_per_execution must be at least 1, got 0
    """

    gradient_accumulation_steps: int = _training(
        1, "Number of parts each device's batch is split into, to save memory.", lower=1
    )
    gradient_checkpointing: bool = _training(False, "Recompute activations in the backward pass to save memory.")
    jit_compile: bool = _training(False, "Compile forward and backward pass with XLA, once per batch shape.")
    steps_per_execution: int = _training(20, "Maximum number of training steps per compiled call.", lower=1)
    checkpoint_every: int | None = _training(
        None, "Training steps between checkpoints; default: a tenth of the training, at least 200.", lower=1
    )
    log_every: int | None = _training(
        None, "Training steps between log records; default: 100, or fewer in a short training.", lower=1
    )
    progress: bool = _training(True, "Show a progress bar.")

    def trainer_settings(self, num_train_steps: int, seed: int) -> TrainerSettings:
        """Returns `TrainerSettings` with these values, and defaults for the others."""
        return TrainerSettings(
            num_train_steps,
            gradient_accumulation_steps=self.gradient_accumulation_steps,
            steps_per_execution=self.steps_per_execution,
            jit_compile=self.jit_compile,
            seed=seed,
            log_every=self.log_every,
            checkpoint_every=self.checkpoint_every,
            progress=self.progress,
        )


@dataclass(frozen=True, kw_only=True)
class FineTuningRuntime(RuntimeSettings):
    """`RuntimeSettings` of fine-tuning, which also evaluates, predicts and exports.

    Example:

    >>> keras_bert.FineTuningRuntime(eval_batch_size=0)
    Traceback (most recent call last):
    ValueError: eval_batch_size must be at least 1, got 0
    """

    eval_batch_size: int | None = setting(
        None,
        "Examples per batch of evaluation and prediction; default: at most 64, of at most 2,048 tokens together.",
        lower=1,
        modes=("train", "eval", "predict"),
    )
    export_dtype: str | None = setting(
        None, "Dtype of the SavedModel; default: the model's.", choices=EXPORT_DTYPES, modes=("export",)
    )
    export_format: str = setting(
        SAVED_MODEL, "Format of the exported model.", choices=EXPORT_FORMATS, modes=("export",)
    )
    export_quantize: str | None = setting(
        None,
        "Quantization of the export, not for SavedModels; int8, for openvino, is calibrated on training examples.",
        choices=QUANTIZE_METHODS,
        modes=("export",),
    )
    data_service: str | None = _training(
        None, "grpc://host:port of a tf.data service that makes the batches; see tools.data_service."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data_service is not None:
            parse_service_address(self.data_service)
        texts = () if self.export_quantize == INT8 else None  # those of the training data
        ExportOptions(
            dtype=self.export_dtype, format=self.export_format, quantize=self.export_quantize, calibration_texts=texts
        )
