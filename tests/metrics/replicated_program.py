"""Prints scores on one device and on two logical devices as JSON; run by `test_keras_metrics.py`.

A separate program because logical devices can only be created before TensorFlow starts.
"""

import json

import numpy as np
import tensorflow as tf

import keras_bert
from keras_bert.metrics.keras_metrics import F1Score, MatthewsCorrelation, PearsonCorrelation, SpearmanCorrelation
from tests.toys import toy_classifier, toy_reviews

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def evaluate(strategy):
    """Evaluates two models on 33 rows in batches of 16: the last batch leaves a replica without a row."""
    texts, labels = toy_reviews(33)
    values = np.array([len(text.split()) / 2 for text in texts])
    with strategy.scope():
        classifier = toy_classifier(dropout=0.0, encoder_arguments=NO_DROPOUT)
        classifier.compile(keras_bert.BertAdamW(1e-4), metrics=[MatthewsCorrelation(2), F1Score(), F1Score(2, "macro")])
        regression = toy_classifier(None, NO_DROPOUT, dropout=0.0, problem_type="regression")
        regression.compile(keras_bert.BertAdamW(1e-4), metrics=[PearsonCorrelation(), SpearmanCorrelation()])
    return {
        **classifier.evaluate(texts, labels, batch_size=16, verbose=0, return_dict=True),
        **regression.evaluate(texts, values, batch_size=16, verbose=0, return_dict=True),
    }


def update_directly(strategy):
    """Updates the metrics with two batches per replica, twice with a reset in between."""
    random = np.random.default_rng(0)
    logits = random.standard_normal([32, 2]).astype("float32")
    labels = random.integers(0, 2, 32)
    with strategy.scope():
        class_metrics = [MatthewsCorrelation(2), F1Score(), F1Score(2, "weighted")]
        value_metrics = [PearsonCorrelation(), SpearmanCorrelation()]
    metrics = [*class_metrics, *value_metrics]
    dataset = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((labels, logits)).batch(8))

    def update(labels, logits):
        for metric in class_metrics:
            metric.update_state(labels, logits)
        for metric in value_metrics:
            metric.update_state(logits[:, 0], logits[:, 1])

    step = tf.function(lambda batch: strategy.run(update, batch))
    for _ in range(2):
        for metric in metrics:
            metric.reset_state()
        for batch in dataset:
            step(batch)
    return {metric.name: float(metric.result()) for metric in metrics}


if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategies = {"one": tf.distribute.get_strategy(), "two": tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])}
    print(json.dumps({name: [evaluate(each), update_directly(each)] for name, each in strategies.items()}))
