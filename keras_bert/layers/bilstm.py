"""A recurrent layer that reads a row from both ends."""

import keras
from keras import ops

from keras_bert.layers.seeds import derive_seed


@keras.saving.register_keras_serializable(package="keras_bert")
class BiLstm(keras.layers.Layer):
    """An LSTM from left to right beside one from right to left, their outputs concatenated (paper, section 5.1).

    Padding takes no part: the one from right to left begins with the last token, and the final state of the other is
    that of the last token. Both are Keras' `LSTM`, in float32 whatever the dtype of the rest: a state that is added to
    at every token would lose the small addends otherwise.

    Args:
        units: int. Width of each of the two.
        seed: int or None. Seed of the initial weights.

    Inputs:
        sequence_output: float tensor [batch, length, hidden].
        padding_mask: int or bool tensor [batch, length], nonzero where there is a token; left out, everywhere.

    Outputs:
        A pair of float tensors: the outputs [batch, length, 2 * units], and the final states [batch, 2 * units], of the
        last token from left to right and of the first from right to left.

    Example:

    >>> outputs, final = BiLstm(4, seed=1)(np.ones([2, 3, 8]), np.array([[1, 1, 0], [1, 1, 1]]))
    >>> tuple(outputs.shape), tuple(final.shape)
    ((2, 3, 8), (2, 8))
    """

    def __init__(self, units, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.seed = seed
        self.forward = self._lstm("forward")
        self.backward = self._lstm("backward", go_backwards=True)

    def _lstm(self, name, **arguments):
        return keras.layers.LSTM(
            self.units,
            kernel_initializer=keras.initializers.GlorotUniform(derive_seed(self.seed, f"{name} kernel")),
            recurrent_initializer=keras.initializers.Orthogonal(seed=derive_seed(self.seed, f"{name} recurrent")),
            return_sequences=True,
            return_state=True,
            seed=derive_seed(self.seed, name),
            use_cudnn=False,  # its operation in an exported model would ask every server for a GPU
            dtype="float32",
            name=name,
            **arguments,
        )

    def build(self, input_shape):
        """Creates the weights of both."""
        self.forward.build(input_shape)
        self.backward.build(input_shape)

    def call(self, sequence_output, padding_mask=None):
        """Reads rows from both ends; see the class."""
        mask = None if padding_mask is None else ops.cast(padding_mask, "bool")
        forward, last, _ = self.forward(sequence_output, mask=mask)
        backward, first, _ = self.backward(sequence_output, mask=mask)
        outputs = ops.concatenate([forward, ops.flip(backward, axis=1)], axis=-1)  # the latter came last token first
        final = ops.concatenate([last, first], axis=-1)
        return ops.cast(outputs, self.compute_dtype), ops.cast(final, self.compute_dtype)

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "units": self.units, "seed": self.seed}
