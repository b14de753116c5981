"""A dense layer over the last axis."""

import keras
from keras import ops

from keras_bert.layers.activations import get_activation


@keras.saving.register_keras_serializable(package="keras_bert")
class Dense(keras.layers.Layer):
    """`activation(x @ kernel + bias)` over the last axis, as one matrix product of two dimensions.

    Keras' own Dense multiplies a batch of matrices, whose gradient for the kernel is a batch of products summed
    afterwards; flattened to two dimensions it is one product (google-research/bert, modeling.py, does the same).

    Args:
        units: int. Size of the last axis of the output.
        activation: str. One of the names of `get_activation`.
        initializer_range: float. Standard deviation of the truncated normal that the kernel starts from; the bias is
            zero.
        seed: int or None. Seed of the initial kernel.

    Inputs:
        float tensor [..., input size].

    Outputs:
        float tensor [..., units].

    Example:

    >>> tuple(Dense(3)(np.ones([2, 5, 4])).shape)
    (2, 5, 3)
    """

    def __init__(self, units, activation="linear", initializer_range=0.02, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.activation = activation
        self.initializer_range = initializer_range
        self.seed = seed
        self._activation_function = get_activation(activation)

    def build(self, input_shape):
        """Creates `kernel` [input size, units] and `bias` [units]."""
        self.kernel = self.add_weight(
            name="kernel",
            shape=(input_shape[-1], self.units),
            initializer=keras.initializers.TruncatedNormal(stddev=self.initializer_range, seed=self.seed),
        )
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")

    def call(self, x, training=False):
        """Maps the last axis of `x`."""
        rows = ops.reshape(x, (-1, x.shape[-1]))  # [rows, input size]
        if keras.backend.backend() == "tensorflow":
            from keras_bert.layers.tensorflow.fast_dense import dense

            kernel, bias = ops.convert_to_tensor(self.kernel), ops.convert_to_tensor(self.bias)
            rows = dense(rows, kernel, bias, self.activation, self._activation_function, training)
        else:
            rows = self._activation_function(ops.matmul(rows, self.kernel) + self.bias)  # [rows, units]
        return ops.reshape(rows, (*ops.shape(x)[:-1], self.units))

    def compute_output_shape(self, input_shape):
        """The input's shape with `units` as the last axis."""
        return (*input_shape[:-1], self.units)

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "units": self.units,
            "activation": self.activation,
            "initializer_range": self.initializer_range,
            "seed": self.seed,
        }
