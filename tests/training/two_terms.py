"""A small model with two loss terms."""

import keras
import tensorflow as tf


class TwoTerms(keras.Model):
    """A model with two loss terms; the second is of some rows only, so that its weight falls unevenly."""

    def __init__(self, kernel_initializer="ones", dtype=None):
        super().__init__(dtype=dtype)
        self.dense = keras.layers.Dense(2, kernel_initializer=kernel_initializer, dtype=dtype)
        self.dense.build((None, 3))

    def call(self, inputs, training=False):
        return self.dense(inputs)

    def loss_terms(self, labels, outputs, sample_weight=None):
        weights = self.loss_weights(labels)
        errors = (tf.cast(outputs, tf.float32) - labels) ** 2
        return {
            "first": (tf.reduce_sum(errors[:, 0]), weights["first"]),
            "second": (tf.reduce_sum(errors[:, 1] * tf.cast(labels[:, 1] > 0, tf.float32)), weights["second"]),
        }

    def loss_weights(self, labels, sample_weight=None):
        return {
            "first": tf.cast(tf.shape(labels)[0], tf.float32),
            "second": tf.reduce_sum(tf.cast(labels[:, 1] > 0, tf.float32)),
        }
