"""Trains heads by `fit` and by the Trainer's step on two logical devices; prints how far their weights differ.

It is a program of its own because logical devices can only be made before TensorFlow starts.
"""

import json
import sys

import numpy as np
import tensorflow as tf

import keras_bert
from tests.models.small_heads import make_data, make_head, train_by_trainer, trained_weights

BATCH_SIZE = 7  # which two replicas cannot share evenly


def main(kinds):
    """Compares, and prints one line of JSON."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    differences = {}
    for kind in kinds:
        x, y = make_data(kind, 20)
        with strategy.scope():
            head, other = make_head(kind), make_head(kind)
            head.compile(keras_bert.BertAdamW(1e-2))
            optimizer = keras_bert.BertAdamW(1e-2)
        head.fit(x, y, batch_size=BATCH_SIZE, epochs=2, verbose=0)
        expected = train_by_trainer(other, other.tokenize(x, y), 2, BATCH_SIZE, optimizer, strategy)
        differences[kind] = float(np.abs(trained_weights(head) - expected).max())
    json.dump(differences, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
