"""Small Keras models and their data."""

import os

import keras
import numpy as np
import tensorflow as tf

from keras_bert.training.optimizer import BertAdamW

# Where oneDNN is limited to older instructions than the processor's, TensorFlow crashes in a float16 product.
HAS_FLOAT16 = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT").upper() in ("DEFAULT", "ALL", "AVX512_CORE_FP16")
STEPS, BATCH = 8, 16


class TwoTerms(keras.Model):
    """A model with two loss terms; the second covers some rows only, so that its weight is distributed unevenly."""

    def __init__(self, kernel_initializer="ones", dtype=None, dropout=0.0):
        super().__init__(dtype=dtype)
        self.dropout = keras.layers.Dropout(dropout, seed=1)
        self.dense = keras.layers.Dense(2, kernel_initializer=kernel_initializer, dtype=dtype)
        self.dense.build((None, 3))
        self.built = True

    def call(self, inputs, training=False):
        return self.dense(self.dropout(inputs, training=training))

    def loss_terms(self, labels, outputs, sample_weight=None):
        weights = self.loss_weights(labels)
        errors = (tf.cast(outputs, tf.float32) - labels) ** 2
        second = tf.reduce_sum(errors[:, 1] * tf.cast(labels[:, 1] > 0, tf.float32))
        return {"first": (tf.reduce_sum(errors[:, 0]), weights["first"]), "second": (second, weights["second"])}

    def loss_weights(self, labels, sample_weight=None):
        second = tf.reduce_sum(tf.cast(labels[:, 1] > 0, tf.float32))
        return {"first": tf.cast(tf.shape(labels)[0], tf.float32), "second": second}


def tiny_model(dtype=None):
    """A dense layer after dropout."""
    return TwoTerms(keras.initializers.RandomNormal(seed=3), dtype, dropout=0.5)


def tiny_batches():
    """Endless shuffled batches for `tiny_model`: five of eight rows per epoch."""
    rng = np.random.default_rng(0)
    rows = [tf.constant(rng.normal(size=(40, size)), tf.float32) for size in (3, 2)]
    return tf.data.Dataset.from_tensor_slices(tuple(rows)).shuffle(40, seed=1).repeat().batch(8)


def embedding_model(optimizer=None, jit_compile=False):
    keras.utils.set_random_seed(11)
    inputs = keras.Input([5], dtype="int32")
    hidden = keras.layers.LayerNormalization()(keras.layers.Embedding(20, 8)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Flatten()(hidden)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # The norms of this model's gradients are above 4: the default limit of 1 clips at every step.
    model.compile(optimizer=optimizer or BertAdamW(1e-4), loss=loss, jit_compile=jit_compile)
    return model


def embedding_batches():
    """Batches for `embedding_model` in which every id occurs several times."""
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 6, size=(STEPS * BATCH, 5)).astype("int32")
    labels = rng.integers(0, 3, size=STEPS * BATCH).astype("int32")
    return tf.data.Dataset.from_tensor_slices((ids, labels)).batch(BATCH, drop_remainder=True)
