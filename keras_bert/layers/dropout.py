"""Dropout whose draws differ between the replicas of a distribution strategy."""

import keras
import numpy as np


@keras.saving.register_keras_serializable(package="keras_bert")
class Dropout(keras.layers.Layer):
    """Sets elements to zero at random while training, and scales the others up (paper, appendix A.2).

    Args:
        rate: float in [0, 1). The probability of a zero.
        seed: int or None. Where the random numbers start; None draws a start.

    Inputs:
        float tensor of any shape.

    Outputs:
        float tensor of the same shape and dtype; the input itself unless `training`.

    Raises:
        ValueError: if the rate is outside [0, 1).

    Example:

    >>> float(Dropout(0.5)(np.ones([2, 3]), training=False)[0, 0])
    1.0
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate must be at least 0 and below 1, got {rate}")
        self.rate = rate
        self.seed = seed
        if rate:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, x, training=False):
        """Drops elements of `x` if `training`."""
        if not training or not self.rate:
            return x
        if keras.backend.backend() != "tensorflow":
            return keras.random.dropout(x, self.rate, seed=self.seed_generator)
        from keras_bert.layers.tensorflow.fast_dropout import dropout

        return dropout(x, self.rate, self.seed_generator.next())

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        # Neither Keras nor tf.train.Checkpoint finds the variable by itself; a resumed run would draw other numbers.
        children = super()._trackable_children(save_type, **kwargs)
        if self.rate:
            children["seed_generator_state"] = self.seed_generator.state
        return children

    def save_own_variables(self, store):
        """Saves where the random numbers stand."""
        if self.rate:
            store["seed_generator_state"] = np.array(self.seed_generator.state)

    def load_own_variables(self, store):
        """Continues the random numbers where they stood."""
        if self.rate:
            self.seed_generator.state.assign(store["seed_generator_state"])

    def compute_output_shape(self, input_shape):
        """The input's shape."""
        return input_shape

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
