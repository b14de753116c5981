"""Gradients of functions, for tests of handwritten gradients."""

import tensorflow as tf


def value_and_gradients(function, *tensors_and_gradient):
    """Returns the value of a function of tensors, and its gradients, given that of the value as the last argument."""
    *tensors, d_output = tensors_and_gradient
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        output = function(*tensors)
    return [output, *tape.gradient(output, tensors, output_gradients=d_output)]


def second_derivative(function, x):
    """Returns the derivative of the gradient of a function."""
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            output = function(x)
        slope = inner.gradient(output, x)
    return outer.gradient(slope, x)
