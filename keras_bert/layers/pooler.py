"""The vector that stands for the whole input."""

import keras
from keras import ops

from keras_bert.layers.dense import Dense
from keras_bert.layers.gather import gather_positions


@keras.saving.register_keras_serializable(package="keras_bert")
class Pooler(Dense):
    """A dense layer with tanh on one token of each row: the first, [CLS] (paper, section 3; google-research/bert,
    modeling.py), unless others are named.

    Args:
        units: int. The hidden size.
        activation: str. tanh, as published.
        initializer_range: float. Standard deviation of the initial kernel.
        seed: int or None. Seed of the initial kernel.

    Inputs:
        sequence_output: float tensor [batch, length, hidden].
        positions: int tensor [batch], the place of the token in each row; left out, the first.

    Outputs:
        float tensor [batch, units].

    Example:

    >>> tuple(Pooler(8)(np.ones([2, 3, 8])).shape)
    (2, 8)
    """

    def __init__(self, units, activation="tanh", initializer_range=0.02, seed=None, **kwargs):
        super().__init__(units, activation, initializer_range, seed, **kwargs)

    def call(self, sequence_output, positions=None, training=False):
        """Maps the vector of one token of each row."""
        if positions is None:
            token = sequence_output[:, 0]
        else:
            token = gather_positions(sequence_output, positions[:, None])[:, 0]
        return super().call(token, training=training)

    def compute_output_shape(self, input_shape, positions_shape=None):
        """[batch, units]."""
        return (input_shape[0], self.units)


def last_positions(padding_mask):
    """Where the last token of each row is that is no padding: the one that sees all where attention goes from left to
    right (GPT's way: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 3.2).

    Args:
        padding_mask: int or bool tensor [batch, length], nonzero where there is a token.

    Returns:
        int32 tensor [batch]; 0 for a row that is all padding.

    Example:

    >>> last_positions(np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]])).numpy().tolist()
    [1, 2, 0]
    """
    is_token = ops.cast(ops.cast(padding_mask, "bool"), "int32")
    return ops.max(is_token * ops.arange(ops.shape(padding_mask)[1], dtype="int32"), axis=1)
