"""Scores one model plainly and on two logical devices and prints both; `test_keras_metrics.py` runs it.

It is a program of its own because logical devices can only be made before TensorFlow starts.
"""

import json
import sys

import numpy as np
import tensorflow as tf

import keras_bert
from keras_bert.metrics.keras_metrics import F1Score, MatthewsCorrelation, PearsonCorrelation, SpearmanCorrelation
from tests.toys import toy_classifier, toy_reviews

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def scores_of_fit(strategy):
    """What fit and evaluate report; of 33 rows in batches of 16 the last leaves a replica without a row."""
    texts, labels = toy_reviews(33)
    values = np.array([len(text.split()) / 2 for text in texts])
    found = {}
    with strategy.scope():
        classifier = toy_classifier(dropout=0.0, encoder_arguments=NO_DROPOUT)
        classifier.compile(keras_bert.BertAdamW(1e-4), metrics=[MatthewsCorrelation(2), F1Score(), F1Score(2, "macro")])
        regression = toy_classifier(None, NO_DROPOUT, dropout=0.0, problem_type="regression")
        regression.compile(keras_bert.BertAdamW(1e-4), metrics=[PearsonCorrelation(), SpearmanCorrelation()])
    for name, model, y in (("classifier", classifier, labels), ("regression", regression, values)):
        history = model.fit(
            texts[:32], y[:32], batch_size=16, epochs=2, verbose=0, validation_data=(texts, y), validation_batch_size=16
        ).history
        found |= {f"{name} {key}": value[-1] for key, value in history.items()}
        found[f"{name} predicted"] = float(np.std(model.predict(texts, verbose=0)))
    return found


def direct_scores(strategy):
    """The metrics on given values, in a function of two batches for each replica."""
    random = np.random.default_rng(0)
    logits = random.standard_normal([32, 2]).astype("float32")
    labels = random.integers(0, 2, 32)
    with strategy.scope():
        by_class = [MatthewsCorrelation(2), F1Score(), F1Score(2, "weighted")]
        by_value = [PearsonCorrelation(), SpearmanCorrelation()]
    dataset = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((labels, logits)).batch(8))

    @tf.function
    def step(batch):
        def update(labels, logits):
            for metric in by_class:
                metric.update_state(labels, logits)
            for metric in by_value:
                metric.update_state(logits[:, 0], logits[:, 1])

        strategy.run(update, batch)

    for _ in range(2):  # the second time after a reset
        for metric in (*by_class, *by_value):
            metric.reset_state()
        for batch in dataset:
            step(batch)
    return {metric.name: float(metric.result()) for metric in (*by_class, *by_value)}


def main():
    """Compares, and prints one line of JSON."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    plain = tf.distribute.get_strategy()
    found = {
        "one": scores_of_fit(plain),
        "two": scores_of_fit(mirrored),
        "direct, one": direct_scores(plain),
        "direct, two": direct_scores(mirrored),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
