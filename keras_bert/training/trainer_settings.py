"""The settings of a training run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

_MIN_STEPS_BETWEEN_CHECKPOINTS = 200  # fewer would slow down short runs
_MIN_LOG_RECORDS = 50


@dataclass(frozen=True)
class TrainerSettings:
    """Settings of a `Trainer`: how long to train, how to compute a step, when to log, evaluate and save.

    Args:
        num_train_steps: Number of optimizer steps in the whole run.
        gradient_accumulation_steps: Number of micro-batches that each replica's part of a batch is split into, to save
            memory. It does not change the result.
        steps_per_execution: Maximum number of training steps per call into TensorFlow. It does not change the result.
        jit_compile: Whether to compile the forward and backward pass with XLA, once per shape of a micro-batch.
        loss_scale: `"dynamic"` scales the loss to keep float16 gradients in range and skips steps whose gradients
            overflow; None does not; `"auto"` is `"dynamic"` for a model that computes in float16.
        seed: Seed of the random numbers in the model, such as those of dropout.
        log_every: Number of steps between two log records. The default None means every 100 steps, and more often in
            runs of fewer than 5,000 steps, so that at least 50 records make up the loss curve.
        evaluate_every: Number of steps between two evaluations. The default None evaluates at the end only.
        score: Name of the metric whose best value decides which weights are kept; higher is better. The default None
            keeps the last weights.
        patience: Number of evaluations in a row without a better score after which training stops. The default None
            trains to the end.
        checkpoint_every: Number of steps between two checkpoints; there is always one at the end. The default None
            means a tenth of the run, and at least 200 steps.
        keep_checkpoints: Number of the newest checkpoints to keep.
        saves_data_position: Whether checkpoints hold the position in the data. If False, as is necessary for an input
            whose iterator cannot be saved (tf.data service), a resumed run starts a new pass over the data.
        mean_loss_weights: What each loss term is divided by in every batch, by name: the mean weight of the epoch's
            batches. Otherwise, a loss that counts tokens would favor short texts under length bucketing, because their
            batches hold fewer tokens. The default None divides by the weight of the batch itself.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If a number is out of range, `loss_scale` is unknown, or `patience` is given without `score`.

    Example:

    >>> TrainerSettings(num_train_steps=1000).log_interval
    20
    """

    num_train_steps: int
    gradient_accumulation_steps: int = 1
    steps_per_execution: int = 20
    jit_compile: bool = False
    loss_scale: str | None = "auto"
    seed: int = 0
    log_every: int | None = None
    evaluate_every: int | None = None
    score: str | None = None
    patience: int | None = None
    checkpoint_every: int | None = None
    keep_checkpoints: int = 2
    saves_data_position: bool = True
    mean_loss_weights: Mapping[str, float] | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in (int, int | None) and field.name != "seed" and value is not None and value < 1:
                raise ValueError(f"{field.name} must be at least 1, got {value}")
        if self.loss_scale not in (None, "auto", "dynamic"):
            raise ValueError(f'loss_scale must be "auto", "dynamic" or None, got {self.loss_scale!r}')
        if self.patience is not None and self.score is None:
            raise ValueError(f"patience={self.patience} needs a score to compare; set `score` to the name of a metric")
        if not all(0 < weight < math.inf for weight in (self.mean_loss_weights or {}).values()):
            raise ValueError(f"mean_loss_weights must be positive and finite, got {self.mean_loss_weights}")

    @property
    def log_interval(self) -> int:
        """Number of steps between two log records."""
        return self.log_every or min(100, max(self.num_train_steps // _MIN_LOG_RECORDS, 1))

    @property
    def evaluation_interval(self) -> int:
        """Number of steps between two evaluations."""
        return self.evaluate_every or self.num_train_steps

    @property
    def checkpoint_interval(self) -> int:
        """Number of steps between two checkpoints."""
        return self.checkpoint_every or max(self.num_train_steps // 10, _MIN_STEPS_BETWEEN_CHECKPOINTS)
