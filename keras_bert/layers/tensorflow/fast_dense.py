"""The product, bias and activation of a dense layer, with a handwritten gradient."""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_bert.layers.tensorflow.custom_gradients import custom_gradient, first_order_only, sum_over_rows


def dense(
    rows: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    activation: str,
    activation_function: Callable[[tf.Tensor], tf.Tensor],
    training: bool,
) -> tf.Tensor:
    """Returns `activation(rows @ kernel + bias)`; all tensors have the same dtype.

    In training, the activation is computed in float32 together with its derivative, which is kept for the gradient
    instead of the activation's input: the gradient then takes one product. Otherwise the graph contains product, bias
    and activation in the form that TensorFlow fuses into one operation. The gradient is correct in both cases.
    """

    @custom_gradient
    def product(rows: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Any]:
        before = tf.nn.bias_add(tf.matmul(rows, kernel), bias)
        if training:
            after, slope = _value_and_slope(before, activation)
        else:
            after, slope = activation_function(before), None

        def gradient(d_after: tf.Tensor) -> Any:
            d_before = d_after
            if activation != "linear":
                d_before *= _value_and_slope(before, activation)[1] if slope is None else slope
            return first_order_only(
                tf.matmul(d_before, kernel, transpose_b=True),
                tf.matmul(rows, d_before, transpose_a=True),
                sum_over_rows(d_before),
            )

        return after, gradient

    # Converted here: for variables, a custom gradient has to return their gradients separately.
    return product(rows, tf.convert_to_tensor(kernel), tf.convert_to_tensor(bias))


def activate(
    x: tf.Tensor, activation: str, activation_function: Callable[[tf.Tensor], tf.Tensor], training: bool
) -> tf.Tensor:
    """Returns the activation of a dense layer with an adapter, with the same precision as `dense`."""
    if not training or activation == "linear":
        return activation_function(x)

    @custom_gradient
    def function(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        value, slope = _value_and_slope(x, activation)
        assert slope is not None
        return value, lambda upstream: first_order_only(upstream * slope)

    return function(x)


def _value_and_slope(x: tf.Tensor, activation: str) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Returns the activation and its derivative at `x`, computed in float32 and rounded to the dtype of `x`."""
    if activation == "linear":
        return x, None
    value, slope = _VALUES_AND_SLOPES[activation](tf.cast(x, tf.float32))
    return tf.cast(value, x.dtype), tf.cast(slope, x.dtype)


def _gelu(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    probability = 0.5 * tf.math.erf(math.sqrt(0.5) * x) + 0.5
    # As products: TensorFlow would fuse square, negation and exponential into a slower operation.
    exponent = (-0.5 * x) * x
    return x * probability, probability + tf.exp(exponent) * ((1.0 / math.sqrt(2.0 * math.pi)) * x)


def _gelu_new(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    # arXiv 1606.08415, section 2, with (1 + tanh(u)) / 2 = sigmoid(2 * u), which takes fewer passes.
    factor, cubic = 2.0 * math.sqrt(2.0 / math.pi), 0.044715
    square = tf.square(x)
    probability = tf.sigmoid(x * (factor + (factor * cubic) * square))
    inner = x * (factor + (3.0 * factor * cubic) * square)
    # SigmoidGrad computes y * (1 - y) * dy in one pass.
    return x * probability, probability + tf.raw_ops.SigmoidGrad(y=probability, dy=inner)


def _tanh(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    value = tf.tanh(x)
    return value, 1.0 - tf.square(value)


def _relu(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.nn.relu(x), tf.cast(x > 0.0, x.dtype)


_VALUES_AND_SLOPES = {"gelu": _gelu, "gelu_new": _gelu_new, "tanh": _tanh, "relu": _relu}
