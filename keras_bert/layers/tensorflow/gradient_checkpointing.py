"""Activations that are computed again for the gradient instead of being kept (arXiv 1604.06174)."""

import keras
import tensorflow as tf
from tensorflow.python.eager.record import stop_recording

from keras_bert.layers.tensorflow.custom_gradients import custom_gradient, first_order_only


def recompute_in_gradient(layer, x, *constants):
    """What a layer gives while training, of which only the input is kept until the gradient is computed.

    The layer runs once more then, with the same random numbers: the gradient is the same as without.

    Args:
        layer: a built Keras layer whose `call` takes `x`, the constants and `training`.
        x: float tensor.
        *constants: tensors that have no gradient.

    Returns:
        The layer's output.

    Example:

    >>> layer = keras.layers.Dense(2)
    >>> layer.build((None, 3))
    >>> tuple(recompute_in_gradient(layer, tf.ones([1, 3])).shape)
    (1, 2)
    """
    weights = {id(variable) for variable in layer.weights}
    generators = [variable for variable in layer.variables if id(variable) not in weights]  # their states
    # Read here: the second run would find them moved on.
    states = [tf.identity(generator.value) for generator in generators]

    def compute(x):
        with keras.StatelessScope(state_mapping=list(zip(generators, states, strict=True))):
            return layer(x, *constants, training=True)

    @custom_gradient  # `tf.recompute_grad` would keep every graph that it was ever used in
    def run(x):
        with stop_recording():
            output = compute(x)

        def gradient(upstream, variables=None):
            variables = list(variables or ())
            with tf.GradientTape() as tape:
                again = _after(upstream, x)
                tape.watch([again, *variables])
                recomputed = compute(again)
            of_x, *of_variables = tape.gradient(recomputed, [again, *variables], upstream, tf.UnconnectedGradients.ZERO)
            return first_order_only(of_x), of_variables

        return output, gradient

    output = run(x)
    for generator in generators:
        generator.assign(generator.value + tf.constant([0, 1], generator.dtype))  # as Keras counts a draw
    return output


def _after(upstream, x):
    """`x`, but only once `upstream` has come; else a compiler would see that it has been computed with before, and keep
    what came out."""
    if tf.executing_eagerly():
        return tf.identity(x)
    first = tf.reduce_max(tf.reshape(upstream, [-1])[:1])
    return x + tf.cast(tf.where(tf.math.is_nan(first), float("nan"), 0.0), x.dtype)
