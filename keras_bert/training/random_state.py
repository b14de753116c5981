"""The random numbers of a training step as a function of where the step stands, not of what was drawn before."""

import contextlib

import keras
import tensorflow as tf


class RandomState:
    """Gives the seed generators in a model (those of its dropout layers) their values for a single micro-batch.

    A value depends on (seed, step, micro-batch, replica, number of the layer) alone. A run that is resumed draws what
    it would have drawn, replicas draw different numbers, and nothing has to be saved. (Derived inside a function that
    XLA compiles, the values are others.)

    Args:
        model: a built Keras model.
        seed: int.

    Example:

    >>> model = keras.Sequential([keras.layers.Dropout(0.5)])
    >>> model.build((None, 4))
    >>> state = RandomState(model, seed=1)
    >>> def draw(step):
    ...     with state.scope(state.values(state.key(step, replica=0), micro_batch=0)):
    ...         return model(tf.ones([8, 4]), training=True).numpy()
    >>> bool((draw(5) == draw(5)).all()), bool((draw(5) == draw(6)).all())
    (True, False)
    """

    def __init__(self, model, seed):
        weights = {id(variable) for variable in model.weights}
        # Keras: a model's variables are its weights and the states of its seed generators.
        self._states = [variable for variable in model.variables if id(variable) not in weights]
        self._others = model.non_trainable_weights
        self._seed = seed

    def key(self, step, replica):
        """What a step's numbers on one replica are derived from.

        Args:
            step, replica: int, or int scalar tensors.

        Returns:
            int64 tensor [2].
        """
        key = tf.random.fold_in(tf.constant([self._seed, 0], tf.int64), tf.cast(step, tf.int64))
        return tf.random.fold_in(key, tf.cast(replica, tf.int64))

    def values(self, key, micro_batch):
        """The values of the generators for a micro-batch.

        Args:
            key: int64 tensor [2], from `key`.
            micro_batch: int, or int scalar tensor.

        Returns:
            list of tensors, one for each generator.
        """
        if not self._states:
            return []
        key = tf.random.fold_in(key, tf.cast(micro_batch, tf.int64))
        drawn = tf.random.stateless_uniform([len(self._states), 2], key, minval=None, maxval=None, dtype=tf.uint32)
        return [tf.cast(value, state.dtype) for value, state in zip(tf.unstack(drawn), self._states, strict=True)]

    @contextlib.contextmanager
    def scope(self, values):
        """A context in which the generators have these values, and go on from them.

        Args:
            values: list of tensors, from `values`.
        """
        stateless = keras.StatelessScope(state_mapping=list(zip(self._states, values, strict=True)))
        with stateless:
            yield
        for variable in self._others:  # what else the model has assigned, such as a running mean
            value = stateless.get_current_value(variable)
            if value is not None:
                variable.assign(value)
