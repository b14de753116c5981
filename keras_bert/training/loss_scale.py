"""Loss scaling for float16, in which small gradients underflow (arXiv 1710.03740, section 3.2)."""

import tensorflow as tf

_MAX_FACTOR = 2.0**24  # a larger factor gains nothing: the smallest float16 number is 2**-24


class DynamicLossScale:
    """A factor for the loss that is halved after an overflow and doubled after `growth_interval` steps without one.

    >>> scale = DynamicLossScale(initial=8.0, growth_interval=2)
    >>> for is_finite in (False, True, True):
    ...     scale.update(tf.constant(is_finite))
    ...     print(float(scale.factor))
    4.0
    4.0
    8.0
    """

    def __init__(self, initial: float = 2.0**15, growth_interval: int = 2000) -> None:  # as Keras' LossScaleOptimizer
        if not initial > 0 or growth_interval < 1:
            raise ValueError(f"initial and growth_interval must be positive, got {initial} and {growth_interval}")
        self.growth_interval = growth_interval
        # No communication: every worker takes the same decisions, from gradients summed over all of them.
        with tf.init_scope():
            self.factor = tf.Variable(initial, trainable=False, dtype=tf.float32, name="loss_scale")
            self._good_steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="good_steps")

    @property
    def variables(self) -> list[tf.Variable]:
        """Variables to save in a checkpoint."""
        return [self.factor, self._good_steps]

    def update(self, is_finite: tf.Tensor) -> None:
        """Adapts the factor to whether the gradient of a step was finite."""
        good = tf.where(is_finite, self._good_steps + 1, tf.zeros([], tf.int64))
        grows = (good >= self.growth_interval) & (self.factor < _MAX_FACTOR)
        self.factor.assign(
            tf.where(is_finite, tf.where(grows, self.factor * 2.0, self.factor), tf.maximum(self.factor / 2.0, 1.0))
        )
        self._good_steps.assign(tf.where(grows, tf.zeros([], tf.int64), good))
