"""The learning rate over training: linear warm-up, then linear decay."""

import operator

import keras
from keras import ops

DECAYS = ("bert", "linear")


@keras.saving.register_keras_serializable(package="keras_bert")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly from 0 to the peak, then falls linearly to `end_learning_rate`.

    Source: google-research/bert `optimization.py` (`create_optimizer`); arXiv 1810.04805, appendix A.2.

    `"bert"` is the original's schedule: its decay is counted from step 0, so that at the end of a warm-up of 10% the
    rate jumps from 1.0 to 0.9 times the peak. `"linear"` counts the decay from the end of the warm-up and has no jump.
    Steps count from 0; with a warm-up the rate of step 0 is 0 and the first update moves nothing, as in the original.
    From step `num_train_steps` on the rate stays at `end_learning_rate`.

    Args:
        peak_learning_rate: float. The rate at the end of the warm-up.
        num_train_steps: int. Updates in the whole training, the warm-up among them.
        num_warmup_steps: int or None. Updates in the warm-up. Defaults to None: `int(num_train_steps *
            warmup_proportion)`, as `run_classifier.py` has it.
        warmup_proportion: float from 0 to 1. Used only where `num_warmup_steps` is None. Defaults to 0.1.
        decay: `"bert"` or `"linear"`. Defaults to `"bert"`.
        end_learning_rate: float. The rate at the end of training. Defaults to 0.0.

    Raises:
        TypeError: if a number of steps is not an integer.
        ValueError: if a rate or a number of steps is negative, `num_train_steps` is 0, the warm-up is longer than the
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
        peak_learning_rate,
        num_train_steps,
        num_warmup_steps=None,
        warmup_proportion=0.1,  # google-research/bert run_classifier.py
        decay="bert",
        end_learning_rate=0.0,
    ):
        for name, rate in (("peak_learning_rate", peak_learning_rate), ("end_learning_rate", end_learning_rate)):
            if not rate >= 0:
                raise ValueError(f"{name} must be a number of at least 0. Received: {rate!r}")
        if decay not in DECAYS:
            raise ValueError(f"decay must be one of {list(DECAYS)}. Received: {decay!r}")
        if not 0 <= warmup_proportion <= 1:
            raise ValueError(
                f"warmup_proportion must lie between 0 and 1. Received: {warmup_proportion!r}. "
                "To give a number of steps, use num_warmup_steps."
            )
        self.peak_learning_rate = float(peak_learning_rate)
        self.num_train_steps = _step_count("num_train_steps", num_train_steps)
        if self.num_train_steps == 0:
            raise ValueError("num_train_steps must be at least 1. Received: 0. Are the examples fewer than one batch?")
        if num_warmup_steps is None:
            num_warmup_steps = int(self.num_train_steps * warmup_proportion)
        self.num_warmup_steps = _step_count("num_warmup_steps", num_warmup_steps)
        if self.num_warmup_steps > self.num_train_steps:
            raise ValueError(
                f"The warm-up is longer than the training: num_warmup_steps={self.num_warmup_steps}, "
                f"num_train_steps={self.num_train_steps}. Give at most num_train_steps, or leave num_warmup_steps out."
            )
        self.warmup_proportion = float(warmup_proportion)
        self.decay = decay
        self.end_learning_rate = float(end_learning_rate)

    def __call__(self, step):
        """Return the learning rate of one update.

        Args:
            step: int, or scalar integer tensor or variable. Updates done so far (`optimizer.iterations`).

        Returns:
            float32 scalar tensor.

        Example:

        >>> float(WarmupSchedule(0.5, num_train_steps=4, num_warmup_steps=2)(1))
        0.25
        """
        # Whole numbers are exact in float32 up to 2**24, so the steps that remain are counted before they are divided:
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

    def get_config(self):
        """Return the constructor arguments, for Keras' serialization.

        Returns:
            dict from argument name to number or string.

        Example:

        >>> WarmupSchedule(1e-4, num_train_steps=100).get_config()["num_warmup_steps"]
        10
        """
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
            "warmup_proportion": self.warmup_proportion,
            "decay": self.decay,
            "end_learning_rate": self.end_learning_rate,
        }


def _step_count(name, value):
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer. Received: {value!r} of type {type(value).__name__}") from None
    if count < 0:
        raise ValueError(f"{name} must not be negative. Received: {count}")
    return count
