"""Prints how results on one and on two logical devices differ; with kinds of heads as arguments, how `fit` and the
Trainer's step differ for them. `test_replicas.py` runs it.

It is a separate program because logical devices can only be made before TensorFlow starts.
"""

import json
import sys

import numpy as np
import tensorflow as tf

import keras_bert
from keras_bert.layers.dropout import Dropout
from keras_bert.models.inference import Predictor
from tests.models.small_heads import make_data, make_head, train_by_trainer, trained_weights
from tests.toys import toy_classifier, toy_encoder, toy_preprocessor, toy_reviews

BATCH_SIZE, STEPS = 16, 8
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def train_classifier(strategy, class_weights):
    """Returns weights, metrics and predictions after 8 steps of Keras' fit on strings, without dropout."""
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
    return trained_weights(classifier), np.array(evaluation), classifier.predict(texts, verbose=0)


def train_embedder(strategy):
    """Returns weights and loss after two epochs; the texts of both replicas are the candidates of each."""
    with strategy.scope():
        encoder = toy_encoder(num_hidden_layers=1, **NO_DROPOUT)
        embedder = keras_bert.BertTextEmbedder(encoder, toy_preprocessor(), seed=1)
        embedder.compile(keras_bert.BertAdamW(1e-3))
    texts, _ = toy_reviews(2 * 23)
    pairs = (texts[:23], texts[23:])
    embedder.fit(pairs, batch_size=7, epochs=2, verbose=0)  # which two replicas cannot split evenly
    return trained_weights(embedder), np.array(embedder.evaluate(pairs, batch_size=7, verbose=0))


def fit_difference(kind, strategy):
    """Returns the difference between the weights trained by `fit` and by the Trainer's step, both on two devices."""
    batch_size = 7  # which two replicas cannot split evenly
    x, y = make_data(kind, 20)
    with strategy.scope():
        head, other = make_head(kind), make_head(kind)
        head.compile(keras_bert.BertAdamW(1e-2))
        optimizer = keras_bert.BertAdamW(1e-2)
    head.fit(x, y, batch_size=batch_size, epochs=2, verbose=0)
    return difference(trained_weights(head), train_by_trainer(other, x, y, 2, batch_size, optimizer, strategy))


def difference(one, two):
    return float(np.abs(one - two).max())


def dropout_masks(strategy):
    """Returns what each replica's dropout layer makes of ones, in two calls."""
    with strategy.scope():
        layer = Dropout(0.5, seed=1)

    @tf.function
    def draw():
        return strategy.run(lambda: layer(tf.ones([64]), training=True))

    return [[mask.numpy() for mask in strategy.experimental_local_results(draw())] for _ in range(2)]


def prediction_devices():
    """Returns where `predict` runs batches when its caller asks for the second device."""
    predictor, devices = Predictor(), []

    def record_device(batch):
        devices.append(tf.zeros([]).device)
        return tf.ones([1])

    predictor._compiled = lambda *_: record_device
    with tf.device("CPU:1"):
        predictor.outputs_by_batch(None, tf.data.Dataset.range(3).map(lambda row: {"token_ids": row}))
    return devices


def main():
    """Prints one line of JSON."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    kinds = sys.argv[1:]
    results = {kind: fit_difference(kind, mirrored) for kind in kinds} if kinds else compare_devices(mirrored)
    json.dump(results, sys.stdout)


def compare_devices(mirrored):
    """Returns what `test_replicas.py` checks, by name."""
    found = {}
    for name, class_weights in (("plain", None), ("class weights", [1.0, 5.0])):
        one, two = (train_classifier(strategy, class_weights) for strategy in (tf.distribute.get_strategy(), mirrored))
        found[name] = list(map(difference, one, two))
    devices = (tf.distribute.get_strategy(), mirrored)
    found["embedder"] = list(map(difference, *(train_embedder(strategy) for strategy in devices)))
    found["moved"] = difference(trained_weights(toy_classifier(encoder_arguments=NO_DROPOUT)), one[0])
    with mirrored.scope():
        windowed = toy_classifier(preprocessor=toy_preprocessor(long_texts="windows"))
    try:
        windowed.predict(["a text"], verbose=0)
    except ValueError as error:
        found["windows"] = str(error)
    with mirrored.scope():
        replicated = toy_classifier()
    texts, _ = toy_reviews(7)
    found["single batch"] = difference(replicated.predict_on_batch(texts), toy_classifier().predict_on_batch(texts))
    found["prediction devices"] = prediction_devices()
    masks = dropout_masks(mirrored)
    found["equal draws"] = [float((one == two).mean()) for one, two in (masks[0], masks[1], (masks[0][0], masks[1][0]))]
    found["repeated draws"] = bool(np.array_equal(masks, dropout_masks(mirrored)))
    return found


if __name__ == "__main__":
    main()
