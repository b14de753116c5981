"""A small Keras model with an embedding, and batches in which every id occurs several times."""

import keras
import numpy as np
import tensorflow as tf

from keras_bert.training.optimizer import BertAdamW

STEPS, BATCH = 8, 16


def make_model(optimizer=None, jit_compile=False):
    keras.utils.set_random_seed(11)
    inputs = keras.Input([5], dtype="int32")
    hidden = keras.layers.Embedding(20, 8)(inputs)
    hidden = keras.layers.LayerNormalization()(hidden)
    hidden = keras.layers.Flatten()(hidden)
    model = keras.Model(inputs, keras.layers.Dense(3)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # The norms of this model's gradients are above 4: the default limit of 1 clips at every step.
    model.compile(optimizer=optimizer or BertAdamW(1e-4), loss=loss, jit_compile=jit_compile)
    return model


def make_dataset():
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 6, size=(STEPS * BATCH, 5)).astype("int32")
    labels = rng.integers(0, 3, size=STEPS * BATCH).astype("int32")
    return tf.data.Dataset.from_tensor_slices((ids, labels)).batch(BATCH, drop_remainder=True)
