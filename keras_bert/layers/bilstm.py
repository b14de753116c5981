"""A recurrent layer that reads a row from both ends."""

import keras
from keras import ops

from keras_bert.layers.seeds import derive_seed


@keras.saving.register_keras_serializable(package="keras_bert")
class BiLstm(keras.layers.Layer):
    """An LSTM from left to right beside one from right to left, their outputs concatenated (paper, section 5.1).

    Padding takes no part: the one from right to left begins with the last token, and the final state of the other is
    that of the last token. Both compute in float32 whatever the dtype of the rest: a state that is added to at every
    token would lose the small addends otherwise.

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
        cell = _ProjectedLstmCell(
            self.units,
            kernel_initializer=keras.initializers.GlorotUniform(derive_seed(self.seed, f"{name} kernel")),
            recurrent_initializer=keras.initializers.Orthogonal(seed=derive_seed(self.seed, f"{name} recurrent")),
            seed=derive_seed(self.seed, name),
            dtype="float32",
            name="lstm_cell",
        )
        return _Lstm(cell, return_sequences=True, return_state=True, dtype="float32", name=name, **arguments)

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


class _Lstm(keras.layers.RNN):
    """Keras' `LSTM` (without cuDNN, whose operation in an exported model would ask every server for a GPU), but for
    the order of work: what it multiplies with the input is multiplied for all tokens at once, ahead of the loop. Inside
    it, each token's few rows use a processor badly, and the kernel's gradient is added up once for every token."""

    def inner_loop(self, sequences, initial_state, mask, training=False):
        projected = ops.matmul(sequences, self.cell.kernel) + self.cell.bias
        return super().inner_loop(projected, initial_state, mask, training=training)


class _ProjectedLstmCell(keras.layers.LSTMCell):
    """One token's part of an LSTM, given what the kernel and the bias make of its input."""

    def call(self, projected, states, training=False):
        state, memory = states
        in_, forget, new, out = ops.split(projected + ops.matmul(state, self.recurrent_kernel), 4, axis=-1)
        memory = ops.sigmoid(forget) * memory + ops.sigmoid(in_) * ops.tanh(new)
        state = ops.sigmoid(out) * ops.tanh(memory)
        return state, [state, memory]
