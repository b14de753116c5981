"""Trains one classifier plainly and on two logical devices and prints what differs; `test_replicas.py` runs it.

It is a program of its own because logical devices can only be made before TensorFlow starts.
"""

import json
import sys

import numpy as np
import tensorflow as tf

import keras_bert
from keras_bert.layers.dropout import Dropout
from keras_bert.models.inference import Predictor
from tests.toys import toy_classifier, toy_preprocessor, toy_reviews

BATCH_SIZE, STEPS = 16, 8
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def trained_weights(strategy, class_weights):
    """The weights after 8 steps of Keras' fit on strings, without dropout."""
    with strategy.scope():
        classifier = toy_classifier(dropout=0.0, encoder_arguments=NO_DROPOUT, class_weights=class_weights)
        # The norms of this model's gradients are above 1, the default limit: every step is clipped.
        classifier.compile(keras_bert.BertAdamW(1e-4))
    texts, labels = toy_reviews(BATCH_SIZE * STEPS)
    classifier.fit(texts, labels, batch_size=BATCH_SIZE, epochs=1, verbose=0)
    assert classifier.optimizer.iterations.numpy() == STEPS
    evaluation = classifier.evaluate(texts, labels, batch_size=BATCH_SIZE, verbose=0)
    # 33 rows in batches of 16: the last batch leaves one of the replicas without a row.
    evaluation += classifier.evaluate(texts[:33], labels[:33], batch_size=16, verbose=0)
    return [weight.numpy() for weight in classifier.weights], evaluation, classifier.predict(texts, verbose=0)


def dropout_masks(strategy):
    """What each replica's dropout layer makes of ones, in two calls."""
    with strategy.scope():
        layer = Dropout(0.5, seed=1)

    @tf.function
    def draw():
        return strategy.run(lambda: layer(tf.ones([64]), training=True))

    return [[mask.numpy() for mask in strategy.experimental_local_results(draw())] for _ in range(2)]


def devices_of_prediction():
    """Where `predict` runs batches when its caller asks for the second device."""
    predictor, devices = Predictor(), []

    def watched(batch):
        devices.append(tf.zeros([]).device)
        return tf.ones([1])

    predictor._compiled = lambda *_: watched
    with tf.device("CPU:1"):
        predictor.outputs_by_batch(None, tf.data.Dataset.range(3).map(lambda row: {"token_ids": row}))
    return devices


def main():
    """Compares, and prints one line of JSON."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = {}
    for name, class_weights in (("plain", None), ("class weights", [1.0, 5.0])):
        one = trained_weights(tf.distribute.get_strategy(), class_weights)
        two = trained_weights(mirrored, class_weights)
        found[f"weights, {name}"] = max(float(np.abs(a - b).max()) for a, b in zip(one[0], two[0], strict=True))
        found[f"evaluation, {name}"] = float(np.abs(np.array(one[1]) - np.array(two[1])).max())
        found[f"prediction, {name}"] = float(np.abs(one[2] - two[2]).max())
    start = [weight.numpy() for weight in toy_classifier(encoder_arguments=NO_DROPOUT).weights]
    found["moved"] = max(float(np.abs(a - b).max()) for a, b in zip(start, one[0], strict=True))
    with mirrored.scope():
        windowed = toy_classifier(preprocessor=toy_preprocessor(long_texts="windows"))
    try:
        windowed.predict(["a text"], verbose=0)
    except ValueError as error:
        found["windows"] = str(error)
    found["devices of prediction"] = devices_of_prediction()
    masks = dropout_masks(mirrored)
    found["equal draws"] = [float((one == two).mean()) for one, two in (masks[0], masks[1], (masks[0][0], masks[1][0]))]
    found["repeated draws"] = bool(np.array_equal(masks, dropout_masks(mirrored)))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
