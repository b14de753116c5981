"""A dense layer and the activations that a BERT configuration can name."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.base_layer import BaseLayer
from keras_bert.typing import Tensor

# "gelu" and "gelu_new" are Hugging Face's names. They differ by up to 4.7e-4. google-research/bert writes "gelu" and
# computes the tanh form (modeling.py); its reader translates the name.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: ops.gelu(x, approximate=False),  # with erf
    "gelu_new": lambda x: ops.gelu(x, approximate=True),  # the tanh form
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


def get_activation(name: str) -> Callable[[Tensor], Tensor]:
    """Returns the function of a `hidden_act`."""
    if name not in _ACTIVATIONS:
        raise ValueError(f"unknown activation: hidden_act={name!r}; allowed are {sorted(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


@keras.saving.register_keras_serializable(package="keras_bert")
class Dense(BaseLayer):
    """`activation(x @ kernel + bias)` over the last axis, [..., input size] -> [..., units].

    Inputs are flattened to two dimensions, as in google-research/bert (modeling.py): Keras' own Dense multiplies a
    batch of matrices, whose gradient for the kernel is a batch of products that are summed afterwards.
    """

    def __init__(
        self,
        units: int,
        activation: str = "linear",
        initializer_range: float = 0.02,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.activation = activation
        self.initializer_range = initializer_range
        self.seed = seed
        self._activation_function = get_activation(activation)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates `kernel` [input size, units] and `bias` [units]."""
        self.kernel = self.add_weight(
            name="kernel",
            shape=(input_shape[-1], self.units),
            initializer=keras.initializers.TruncatedNormal(stddev=self.initializer_range, seed=self.seed),
        )
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        """Maps the last axis of `x`."""
        rows = ops.reshape(x, (-1, x.shape[-1]))  # [rows, input size]
        if keras.backend.backend() == "tensorflow":
            from keras_bert.layers.tensorflow.fast_dense import dense

            kernel, bias = ops.convert_to_tensor(self.kernel), ops.convert_to_tensor(self.bias)
            rows = dense(rows, kernel, bias, self.activation, self._activation_function, training)
        else:
            rows = self._activation_function(ops.matmul(rows, self.kernel) + self.bias)  # [rows, units]
        return ops.reshape(rows, (*ops.shape(x)[:-1], self.units))

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        """Returns the input's shape with `units` as the last axis."""
        return (*input_shape[:-1], self.units)
