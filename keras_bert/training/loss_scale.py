"""Loss scaling for float16, whose smallest numbers are too large for many gradients (arXiv 1710.03740, section 3.2)."""

import tensorflow as tf

_MOST = 2.0**24  # beyond, a factor has nothing left to gain: float16's smallest number is 2**-24


class DynamicLossScale:
    """A factor for the loss that is halved where it made a gradient overflow, and doubled where that has not happened
    for long.

    Args:
        initial: float. The factor to begin with.
        growth_interval: int. Updates in a row without an overflow, after which the factor is doubled.

    Raises:
        ValueError: if a number is not positive.

    Example:

    >>> scale = DynamicLossScale(initial=8.0, growth_interval=2)
    >>> for is_finite in (False, True, True):
    ...     scale.update(tf.constant(is_finite))
    ...     print(float(scale.factor))
    4.0
    4.0
    8.0
    """

    def __init__(self, initial=2.0**15, growth_interval=2000):  # as Keras' LossScaleOptimizer begins
        if not initial > 0 or growth_interval < 1:
            raise ValueError(f"initial and growth_interval must be positive, got {initial} and {growth_interval}")
        self.growth_interval = growth_interval
        # Every worker decides the same by itself, from a gradient that was summed over all of them.
        with tf.init_scope():
            self.factor = tf.Variable(initial, trainable=False, dtype=tf.float32, name="loss_scale")
            self._good_updates = tf.Variable(0, trainable=False, dtype=tf.int64, name="good_updates")

    @property
    def variables(self):
        """list of tf.Variable: what a checkpoint has to hold."""
        return [self.factor, self._good_updates]

    def update(self, is_finite):
        """Says whether the gradient was finite.

        Args:
            is_finite: bool scalar tensor.
        """
        good = tf.where(is_finite, self._good_updates + 1, tf.zeros([], tf.int64))
        grows = (good >= self.growth_interval) & (self.factor < _MOST)
        self.factor.assign(
            tf.where(is_finite, tf.where(grows, self.factor * 2.0, self.factor), tf.maximum(self.factor / 2.0, 1.0))
        )
        self._good_updates.assign(tf.where(grows, tf.zeros([], tf.int64), good))
