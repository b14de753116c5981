"""A bidirectional LSTM."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.seeds import derive_seed
from keras_bert.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class BiLstm(keras.layers.Layer):
    """A left-to-right and a right-to-left LSTM whose outputs are concatenated (paper, section 5.1).

    Takes the sequence output [batch, length, hidden] and the padding mask [batch, length]. Returns the outputs
    [batch, length, 2 * units] and the final states [batch, 2 * units]: of the last token left to right, and of the
    first token right to left. Padding has no influence. Both LSTMs compute in float32 in every dtype: a state that is
    added to at every token would lose small addends.
    """

    def __init__(self, units: int, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.seed = seed
        self.forward = self._lstm("forward")
        self.backward = self._lstm("backward", go_backwards=True)

    def _lstm(self, name: str, **arguments: Any) -> "_Lstm":
        kernel = keras.initializers.GlorotUniform(derive_seed(self.seed, f"{name} kernel"))
        recurrent = keras.initializers.Orthogonal(seed=derive_seed(self.seed, f"{name} recurrent"))
        initial = {"kernel_initializer": kernel, "recurrent_initializer": recurrent}
        seed = derive_seed(self.seed, name)
        cell = _ProjectedLstmCell(self.units, **initial, seed=seed, dtype="float32", name="lstm_cell")
        return _Lstm(cell, return_sequences=True, return_state=True, dtype="float32", name=name, **arguments)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the weights of both LSTMs."""
        self.forward.build(input_shape)
        self.backward.build(input_shape)

    def call(self, sequence_output: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns outputs and final states; see the class."""
        mask = None if padding_mask is None else ops.cast(padding_mask, "bool")
        forward, last, _ = self.forward(sequence_output, mask=mask)
        backward, first, _ = self.backward(sequence_output, mask=mask)
        # The backward outputs start with the last token.
        outputs = ops.concatenate([forward, ops.flip(backward, axis=1)], axis=-1)
        final = ops.concatenate([last, first], axis=-1)
        return ops.cast(outputs, self.compute_dtype), ops.cast(final, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "units": self.units, "seed": self.seed}


class _Lstm(keras.layers.RNN):
    """Keras' `LSTM` with one product of input and kernel for all tokens, before the loop.

    Inside the loop, a token's few rows use a processor badly, and the kernel's gradient is accumulated at every token.
    cuDNN is not used: its operation in an exported model would require a GPU on every server.
    """

    def inner_loop(self, sequences: Tensor, initial_state: Any, mask: Any, training: bool = False) -> Any:
        projected = ops.matmul(sequences, self.cell.kernel) + self.cell.bias
        return super().inner_loop(projected, initial_state, mask, training=training)


class _ProjectedLstmCell(keras.layers.LSTMCell):
    """One step of an LSTM, given `input @ kernel + bias`."""

    def call(self, projected: Tensor, states: Any, training: bool = False) -> tuple[Tensor, list[Tensor]]:
        state, memory = states
        in_, forget, new, out = ops.split(projected + ops.matmul(state, self.recurrent_kernel), 4, axis=-1)
        memory = ops.sigmoid(forget) * memory + ops.sigmoid(in_) * ops.tanh(new)
        state = ops.sigmoid(out) * ops.tanh(memory)
        return state, [state, memory]
