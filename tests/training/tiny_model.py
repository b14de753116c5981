"""A tiny model with dropout, and an endless shuffled input for it."""

import os

import keras
import numpy as np
import tensorflow as tf

from tests.training.two_terms import TwoTerms

# Where oneDNN is limited to older instructions than the processor's, TensorFlow crashes in a float16 product.
HAS_FLOAT16 = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT").upper() in ("DEFAULT", "ALL", "AVX512_CORE_FP16")


class TinyModel(TwoTerms):
    """A dense layer after dropout."""

    def __init__(self, dtype=None):
        super().__init__(keras.initializers.RandomNormal(seed=3), dtype)
        self.dropout = keras.layers.Dropout(0.5, seed=1)
        self.built = True

    def call(self, inputs, training=False):
        return self.dense(self.dropout(inputs, training=training))


def tiny_batches():
    """Five batches of eight rows per epoch."""
    rng = np.random.default_rng(0)
    rows = [tf.constant(rng.normal(size=(40, size)), tf.float32) for size in (3, 2)]
    return tf.data.Dataset.from_tensor_slices(tuple(rows)).shuffle(40, seed=1).repeat().batch(8)
