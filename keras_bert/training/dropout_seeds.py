"""Stateless dropout: the seeds of a training step as a function of the step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import keras
import tensorflow as tf


class DropoutSeeds:
    """Sets the seed generators of a model (those of its dropout layers) for one micro-batch.

    A value depends on (seed, step, micro-batch, replica, number of the layer) only. A resumed run draws what it would
    have drawn, replicas draw different numbers, and nothing has to be saved. The model must be built.

    >>> model = keras.Sequential([keras.layers.Dropout(0.5)])
    >>> model.build((None, 4))
    >>> seeds = DropoutSeeds(model, seed=1)
    >>> def draw(step):
    ...     with seeds.scope(seeds.values(seeds.key(step, replica=0), micro_batch=0)):
    ...         return model(tf.ones([8, 4]), training=True).numpy()
    >>> bool((draw(5) == draw(5)).all()), bool((draw(5) == draw(6)).all())
    (True, False)
    """

    def __init__(self, model: keras.Model, seed: int):
        weights = {id(variable) for variable in model.weights}
        # Keras: a model's variables are its weights and the states of its seed generators.
        self._states = [variable for variable in model.variables if id(variable) not in weights]
        self._other_state = model.non_trainable_weights
        self._seed = seed

    def key(self, step: int | tf.Tensor, replica: int | tf.Tensor) -> tf.Tensor:
        """Returns the int64 [2] key of a step on one replica; all values of the step derive from it."""
        key = tf.random.fold_in(tf.constant([self._seed, 0], tf.int64), tf.cast(step, tf.int64))
        return tf.random.fold_in(key, tf.cast(replica, tf.int64))

    def values(self, key: tf.Tensor, micro_batch: int | tf.Tensor) -> list[tf.Tensor]:
        """Returns the values of the generators for a micro-batch, one tensor per generator."""
        if not self._states:
            return []
        key = tf.random.fold_in(key, tf.cast(micro_batch, tf.int64))
        drawn = tf.random.stateless_uniform([len(self._states), 2], key, minval=None, maxval=None, dtype=tf.uint32)
        return [tf.cast(value, state.dtype) for value, state in zip(tf.unstack(drawn), self._states, strict=True)]

    @contextlib.contextmanager
    def scope(self, values: list[tf.Tensor]) -> Iterator[None]:
        """Returns a context in which the generators start from `values`."""
        stateless = keras.StatelessScope(state_mapping=list(zip(self._states, values, strict=True)))
        with stateless:
            yield
        for variable in self._other_state:  # what else the model assigned, such as a moving average
            value = stateless.get_current_value(variable)
            if value is not None:
                variable.assign(value)
