"""What gradients written by hand have in common."""

import tensorflow as tf


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
