"""Learning rate schedule: linear warmup, then linear decay."""

import math
import operator
from typing import Any, SupportsIndex

import keras
from keras import ops

from keras_bert.layers.base_layer import constructor_arguments
from keras_bert.typing import Tensor

DECAYS = ("bert", "linear")


@keras.saving.register_keras_serializable(package="keras_bert")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly from 0 to the peak, then falls linearly to `end_learning_rate`.

    Source: google-research/bert `optimization.py` (`create_optimizer`); arXiv 1810.04805, appendix A.2.

    `"bert"` is the original's schedule: its decay is counted from step 0, so that after a warmup of 10% the rate jumps
    from 1.0 to 0.9 times the peak. `"linear"` counts the decay from the end of the warmup and does not jump. Steps
    count from 0: with a warmup, the rate of step 0 is 0 and the first update changes nothing, as in the original. From
    step `num_train_steps` on, the rate stays at `end_learning_rate`.

    Args:
        peak_learning_rate: The rate at the end of the warmup.
        num_train_steps: Number of training steps, warmup included.
        num_warmup_steps: Number of warmup steps. The default None means `int(num_train_steps * warmup_proportion)`, as
            in `run_classifier.py`.
        warmup_proportion: Fraction of the steps used for warmup if `num_warmup_steps` is None.
        decay: `"bert"` or `"linear"`.
        end_learning_rate: The rate at the end of training.

    Raises:
        TypeError: If a number of steps is not an integer.
        ValueError: If a rate or a number of steps is negative, `num_train_steps` is 0, the warmup is longer than the
            training, or `decay` is unknown.

    Example:

    >>> schedule = WarmupSchedule(1e-4, num_train_steps=100, decay="linear")
    >>> schedule.num_warmup_steps
    10
    >>> [round(float(schedule(step)) * 1e4, 3) for step in (0, 5, 10, 55, 100)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    >>> schedule = WarmupSchedule(1e-4, num_train_steps=100, decay="bert")
    >>> [round(float(schedule(step)) * 1e4, 3) for step in (0, 5, 10, 55, 100)]
    [0.0, 0.5, 0.9, 0.45, 0.0]
    """

    def __init__(
        self,
        peak_learning_rate: float,
        num_train_steps: SupportsIndex,
        num_warmup_steps: SupportsIndex | None = None,
        warmup_proportion: float = 0.1,  # google-research/bert run_classifier.py
        decay: str = "bert",
        end_learning_rate: float = 0.0,
    ) -> None:
        for name, rate in (("peak_learning_rate", peak_learning_rate), ("end_learning_rate", end_learning_rate)):
            if not 0 <= rate < math.inf:
                raise ValueError(f"{name} must be a finite number of at least 0, got {rate!r}")
        if decay not in DECAYS:
            raise ValueError(f"decay must be one of {list(DECAYS)}, got {decay!r}")
        if not 0 <= warmup_proportion <= 1:
            raise ValueError(
                f"warmup_proportion must be between 0 and 1, got {warmup_proportion!r}. For a number of steps, use "
                "num_warmup_steps"
            )
        self.peak_learning_rate = float(peak_learning_rate)
        self.num_train_steps = _check_step_count("num_train_steps", num_train_steps)
        if self.num_train_steps == 0:
            raise ValueError("num_train_steps must be at least 1, got 0; are there fewer examples than one batch?")
        if num_warmup_steps is None:
            num_warmup_steps = int(self.num_train_steps * warmup_proportion)
        self.num_warmup_steps = _check_step_count("num_warmup_steps", num_warmup_steps)
        if self.num_warmup_steps > self.num_train_steps:
            raise ValueError(
                f"the warmup is longer than the training: num_warmup_steps={self.num_warmup_steps}, "
                f"num_train_steps={self.num_train_steps}. Use at most num_train_steps, or leave num_warmup_steps out"
            )
        self.warmup_proportion = float(warmup_proportion)
        self.decay = decay
        self.end_learning_rate = float(end_learning_rate)

    def __call__(self, step: Tensor) -> Tensor:
        """Returns the learning rate of a step, a float32 scalar.

        Args:
            step: Number of steps taken so far (`optimizer.iterations`): an integer, scalar tensor or variable.

        Example:

        >>> float(WarmupSchedule(0.5, num_train_steps=4, num_warmup_steps=2)(1))
        0.25
        """
        # Integers are exact in float32 up to 2**24, so the remaining steps are counted before they are divided:
        # 1 - step / num_train_steps would lose most of its digits near the end of a long training.
        step = ops.cast(step, "float32")
        decay_start = self.num_warmup_steps if self.decay == "linear" else 0
        remaining_steps = ops.maximum(float(self.num_train_steps) - step, 0.0)
        remaining = remaining_steps / max(self.num_train_steps - decay_start, 1)
        decayed = (self.peak_learning_rate - self.end_learning_rate) * remaining + self.end_learning_rate
        if self.num_warmup_steps == 0:
            return decayed
        warming_up = self.peak_learning_rate * (step / self.num_warmup_steps)
        return ops.where(step < self.num_warmup_steps, warming_up, decayed)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments, for Keras' serialization.

        Example:

        >>> WarmupSchedule(1e-4, num_train_steps=100).get_config()["num_warmup_steps"]
        10
        """
        return constructor_arguments(self, WarmupSchedule.__init__)


def _check_step_count(name: str, value: SupportsIndex) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}") from None
    if count < 0:
        raise ValueError(f"{name} must not be negative, got {count}")
    return count
