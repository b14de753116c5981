"""Gradient checkpointing: recomputes activations in the backward pass to save memory (arXiv 1604.06174)."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_bert.layers.tensorflow.custom_gradients import custom_gradient, first_order_only, stop_recording


def recompute_in_gradient(layer: keras.layers.Layer, x: tf.Tensor, **constants: Any) -> tf.Tensor:
    """Returns `layer(x, training=True, **constants)`, of which only `x` is kept for the gradient.

    The backward pass runs the built layer again with the same random numbers, so that the gradient does not change.
    `constants` have no gradient.
    """
    weights = {id(variable) for variable in layer.weights}
    generators = [variable for variable in layer.variables if id(variable) not in weights]  # random states
    # Read now: the first run advances them.
    states = [tf.identity(generator.value) for generator in generators]
    advanced = states  # after a run

    def compute(x: tf.Tensor) -> tf.Tensor:
        nonlocal advanced
        with keras.StatelessScope(state_mapping=list(zip(generators, states, strict=True))) as scope:
            output = layer(x, training=True, **constants)
        advanced = [scope.get_current_value(generator) for generator in generators]
        return output

    @custom_gradient  # `tf.recompute_grad` keeps every graph that it is used in alive
    def run(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        with stop_recording():
            output = compute(x)

        def gradient(upstream: tf.Tensor, variables: Sequence[tf.Variable] | None = None) -> tuple[tf.Tensor, Any]:
            variables = list(variables or ())
            with tf.GradientTape() as tape:
                again = _delay_until(upstream, x)
                tape.watch([again, *variables])
                recomputed = compute(again)
            d_x, *d_variables = tape.gradient(recomputed, [again, *variables], upstream, tf.UnconnectedGradients.ZERO)
            return first_order_only(d_x), d_variables

        return output, gradient

    output = run(x)
    for generator, state in zip(generators, advanced, strict=True):
        generator.assign(state)
    return output


def _delay_until(upstream: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Returns `x` with a dependency on `upstream`; otherwise a compiler would merge both runs and keep the results."""
    if tf.executing_eagerly():
        return tf.identity(x)
    first = tf.reduce_max(tf.reshape(upstream, [-1])[:1])
    return x + tf.cast(tf.where(tf.math.is_nan(first), float("nan"), 0.0), x.dtype)
