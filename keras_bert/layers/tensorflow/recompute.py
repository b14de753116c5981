"""Activations that are computed again for the gradient instead of being kept (arXiv 1604.06174)."""

import keras
import tensorflow as tf


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

    @tf.recompute_grad
    def run(x):
        with keras.StatelessScope(state_mapping=list(zip(generators, states, strict=True))):
            return layer(x, *constants, training=True)

    output = run(x)
    for generator in generators:
        generator.assign(generator.value + tf.constant([0, 1], generator.dtype))  # as Keras counts a draw
    return output
