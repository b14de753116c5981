"""The vector that stands for the whole input."""

import keras

from keras_bert.layers.dense import Dense


@keras.saving.register_keras_serializable(package="keras_bert")
class Pooler(Dense):
    """A dense layer with tanh on the first token, [CLS] (paper, section 3; google-research/bert, modeling.py).

    Args:
        units: int. The hidden size.
        activation: str. tanh, as published.
        initializer_range: float. Standard deviation of the initial kernel.
        seed: int or None. Seed of the initial kernel.

    Inputs:
        float tensor [batch, length, hidden].

    Outputs:
        float tensor [batch, units].

    Example:

    >>> tuple(Pooler(8)(np.ones([2, 3, 8])).shape)
    (2, 8)
    """

    def __init__(self, units, activation="tanh", initializer_range=0.02, seed=None, **kwargs):
        super().__init__(units, activation, initializer_range, seed, **kwargs)

    def call(self, sequence_output, training=False):
        """Maps the first token's vector."""
        return super().call(sequence_output[:, 0], training=training)

    def compute_output_shape(self, input_shape):
        """[batch, units]."""
        return (input_shape[0], self.units)
