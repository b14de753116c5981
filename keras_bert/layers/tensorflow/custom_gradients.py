"""What gradients written by hand have in common."""

import functools
import weakref

import tensorflow as tf
from tensorflow.python.framework.ops import gradient_registry


def custom_gradient(function):
    """`tf.custom_gradient`, without keeping the graphs that the function is traced in for ever.

    TensorFlow enters each gradient in a registry of the process, and the gradient refers to its graph: that of every
    model that was ever trained, with all variables and moments, would stay in memory. Here the graph itself keeps the
    gradient, and the registry's entry goes with it.

    Args:
        function: as for `tf.custom_gradient`.

    Returns:
        A function, as there.

    Example:

    >>> square = custom_gradient(lambda x: (x * x, lambda upstream: 2.0 * x * upstream))
    >>> float(square(tf.constant(3.0)))
    9.0
    """
    decorated = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*arguments):
        outputs = decorated(*arguments)
        if not tf.executing_eagerly():
            _forget_with_graph(tf.nest.flatten(outputs)[0])
        return outputs

    return call


def _forget_with_graph(output):
    name = output.op.get_attr("_gradient_op_type").decode()
    entry = gradient_registry._registry[name]
    gradient = entry["type"]
    output.graph.keras_bert_gradients = [*getattr(output.graph, "keras_bert_gradients", ()), gradient]
    entry["type"] = functools.partial(_call_if_alive, weakref.ref(gradient))
    weakref.finalize(gradient, gradient_registry._registry.pop, name, None)


def _call_if_alive(reference, operation, *upstream):
    gradient = reference()
    if gradient is None:
        raise RuntimeError("the graph whose gradient is asked for is gone; differentiate it while it is in use")
    return gradient(operation, *upstream)


def first_order_only(*gradients):
    """Marks gradients that were computed by hand, so that differentiating them again raises.

    Inside `tf.custom_gradient` some of what a gradient depends on is invisible to an outer tape: a second derivative
    would be silently wrong.

    Args:
        *gradients: float tensors.

    Returns:
        The same tensors; one tensor for one, else a tuple.

    Raises:
        LookupError: not here, but where somebody differentiates a result.

    Example:

    >>> float(first_order_only(tf.constant(2.0)))
    2.0
    """
    message = "keras_bert's layers give first derivatives only; a second one was asked for"
    marked = tuple(tf.raw_ops.PreventGradient(input=gradient, message=message) for gradient in gradients)
    return marked if len(marked) > 1 else marked[0]


def sum_over_rows(matrix):
    """The sum of each column, as a product with ones.

    In bfloat16 TensorFlow's own gradient of `tf.nn.bias_add` adds up in bfloat16 on the CPU, where 2,048 ones sum to
    256. A matrix product adds up in float32, and is no slower.

    Args:
        matrix: float tensor [rows, columns].

    Returns:
        Tensor [columns] of the same dtype.

    Example:

    >>> float(sum_over_rows(tf.ones([2048, 1], tf.bfloat16))[0])
    2048.0
    """
    ones = tf.ones([1, tf.shape(matrix)[0]], matrix.dtype)
    return tf.reshape(tf.matmul(ones, matrix), [-1])
