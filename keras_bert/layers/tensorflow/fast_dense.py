"""A dense layer's product, bias and activation, with a gradient written by hand."""

import math

import tensorflow as tf

from keras_bert.layers.tensorflow.custom_gradients import custom_gradient, first_order_only, sum_over_rows


def dense(rows, kernel, bias, activation, activation_function, training):
    """`activation(rows @ kernel + bias)`.

    While training the activation is computed in float32 together with its slope, which is kept for the gradient in the
    place of the activation's input: one product then makes the gradient. Otherwise the graph holds product, bias and
    activation in the form in which TensorFlow fuses them into one operation.

    Args:
        rows: float tensor [rows, input size].
        kernel: tensor or variable [input size, units] of the same dtype.
        bias: tensor or variable [units] of the same dtype.
        activation: str. One of the names of `get_activation`.
        activation_function: what `get_activation` gives for it.
        training: bool. Whether a gradient is likely to be asked for; it is right in either case.

    Returns:
        Tensor [rows, units] of the same dtype.

    Example:

    >>> dense(tf.ones([1, 2]), tf.ones([2, 1]), tf.ones([1]), "linear", lambda x: x, training=False).numpy().tolist()
    [[3.0]]
    """

    @custom_gradient
    def product(rows, kernel, bias):
        before = tf.nn.bias_add(tf.matmul(rows, kernel), bias)
        if training:
            after, slope = _value_and_slope(before, activation)
        else:
            after, slope = activation_function(before), None

        def gradient(d_after):
            d_before = d_after
            if activation != "linear":
                d_before *= _value_and_slope(before, activation)[1] if slope is None else slope
            return first_order_only(
                tf.matmul(d_before, kernel, transpose_b=True),
                tf.matmul(rows, d_before, transpose_a=True),
                sum_over_rows(d_before),
            )

        return after, gradient

    # Read here: of a variable, a gradient of one's own would have to make the gradient by itself.
    return product(rows, tf.convert_to_tensor(kernel), tf.convert_to_tensor(bias))


def _value_and_slope(x, activation):
    """The activation and its derivative at `x`, computed in float32 and rounded to the dtype of `x`."""
    if activation == "linear":
        return x, None
    value, slope = _VALUES_AND_SLOPES[activation](tf.cast(x, tf.float32))
    return tf.cast(value, x.dtype), tf.cast(slope, x.dtype)


def _gelu(x):
    probability = 0.5 * tf.math.erf(math.sqrt(0.5) * x) + 0.5
    # Written as products: TensorFlow would join square, negation and exponential to one operation that is slower.
    exponent = (-0.5 * x) * x
    return x * probability, probability + tf.exp(exponent) * ((1.0 / math.sqrt(2.0 * math.pi)) * x)


def _gelu_new(x):
    factor, cubic = math.sqrt(2.0 / math.pi), 0.044715  # arXiv 1606.08415, section 2
    square = tf.square(x)
    tanh = tf.tanh(x * (factor + (factor * cubic) * square))
    half = 0.5 * tanh + 0.5
    # TanhGrad is (1 - tanh * tanh) * dy in one pass.
    inner = x * (0.5 * factor + (1.5 * factor * cubic) * square)
    return x * half, half + tf.raw_ops.TanhGrad(y=tanh, dy=inner)


def _tanh(x):
    value = tf.tanh(x)
    return value, 1.0 - tf.square(value)


def _relu(x):
    return tf.nn.relu(x), tf.cast(x > 0.0, x.dtype)


_VALUES_AND_SLOPES = {"gelu": _gelu, "gelu_new": _gelu_new, "tanh": _tanh, "relu": _relu}
