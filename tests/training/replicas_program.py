"""Trains models on one device, on two logical devices, or as one of two workers; `test_replicas.py` runs it.

    python -m tests.training.replicas_program one|mirrored OUTPUT
    python -m tests.training.replicas_program worker OUTPUT INDEX ADDRESS,ADDRESS

It is a program of its own because logical devices and clusters can only be made before TensorFlow starts.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from keras_bert.data.tokenized import tokenize_examples
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.step import TrainStep
from keras_bert.training.strategy import Cluster, make_strategy, worker_of
from tests.toys import toy_classifier, toy_reviews
from tests.training.two_terms import TwoTerms

# Even and uneven batches, and one with fewer rows than there are replicas.
BATCH_SIZES = (8, 8, 5, 1, 8, 7, 2, 8)
_TERMS = ("loss_terms", "last_loss_terms")
NO_DROPOUT = {
    "dropout": 0.0,
    "encoder_arguments": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}


def batches_of(rows_of, worker, workers):
    """This worker's part of each of the batches."""
    ends = np.cumsum(BATCH_SIZES)
    bounds = tf.data.Dataset.from_tensor_slices(np.stack([ends - BATCH_SIZES, ends], axis=1))

    def part(bound):
        size = bound[1] - bound[0]
        return rows_of(tf.range(bound[0] + size * worker // workers, bound[0] + size * (worker + 1) // workers))

    return bounds.map(part)


def train(strategy, make_model, batches, micro_batches, calls=1, **arguments):
    """The weights after all batches, and the last report."""
    with strategy.scope():
        model = make_model()
        optimizer = BertAdamW(1e-4, clip_norm=0.1)
    step = TrainStep(model, optimizer, strategy, micro_batches, **arguments)
    iterator = iter(batches(model))
    each = len(BATCH_SIZES) // calls
    for call in range(calls):
        report = step.run(iterator, call * each, each)
    report |= {f"{kind} {name}": value for kind in _TERMS for name, value in report.pop(kind).items()}
    return [weight.numpy() for weight in model.weights], {name: value.numpy() for name, value in report.items()}


def classifier_batches(worker, workers):
    texts, labels = toy_reviews(sum(BATCH_SIZES))
    examples = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]

    def batches(model):
        tokenized = tokenize_examples(examples, model.preprocessor, model.encode_labels)
        return batches_of(tokenized.batch, worker, workers)

    return batches


def two_terms():
    return TwoTerms(keras.initializers.RandomNormal(seed=3))


def two_terms_batches(worker, workers):
    generator = np.random.default_rng(0)
    inputs = tf.constant(generator.normal(size=(sum(BATCH_SIZES), 3)), tf.float32)
    labels = tf.constant(generator.normal(size=(sum(BATCH_SIZES), 2)), tf.float32)
    return lambda _: batches_of(lambda rows: (tf.gather(inputs, rows), tf.gather(labels, rows)), worker, workers)


def uneven_shards(worker, workers):
    """Batches of two workers of which one has two more than the other; the same rows as one worker's five batches."""
    generator = np.random.default_rng(1)
    batches = [[generator.normal(size=(4, size)).astype("float32") for size in (3, 2)] for _ in range(5)]
    if workers > 1:
        own = batches[:3] if worker == 0 else batches[3:]
        return lambda _: tf.data.Dataset.from_generator(
            lambda: iter([tuple(batch) for batch in own]),
            output_signature=(tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2])),
        )
    joined = [
        tuple(np.concatenate(parts) for parts in zip(batches[number], *batches[number + 3 : number + 4], strict=True))
        for number in range(3)
    ]
    return lambda _: tf.data.Dataset.from_generator(
        lambda: iter(joined), output_signature=(tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2]))
    )


def even_batches(model):
    """Batches of a static shape, as a TPU needs them."""
    texts, labels = toy_reviews(32)
    examples = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    tokenized = tokenize_examples(examples, model.preprocessor, model.encode_labels)
    return tf.data.Dataset.from_tensor_slices(tokenized.batch(tf.range(32))).batch(8, drop_remainder=True)


def fitted(strategy):
    """The weights after Keras' own `fit` on the even batches."""
    with strategy.scope():
        model = toy_classifier(**NO_DROPOUT)
        model.compile(BertAdamW(1e-4, clip_norm=0.1))
    model.fit(even_batches(model), verbose=0)
    return [weight.numpy() for weight in model.weights]


def masks(strategy, step):
    """What a dropout layer makes of ones, on each local replica in some step of a training."""
    from keras_bert.layers.dropout import Dropout
    from keras_bert.training.random_state import RandomState

    with strategy.scope():
        layer = Dropout(0.5, seed=1)
        model = keras.Sequential([keras.Input([64]), layer])
    state = RandomState(model, seed=7)

    def draw():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with state.scope(state.values(state.key(step, replica), 0)):
            return model(tf.ones([1, 64]), training=True)

    return [np.array(mask) for mask in strategy.experimental_local_results(tf.function(lambda: strategy.run(draw))())]


def results(strategy):
    worker, workers = worker_of(strategy)
    found = {}
    models = {
        "classifier": (lambda: toy_classifier(**NO_DROPOUT), classifier_batches(worker, workers)),
        "two_terms": (two_terms, two_terms_batches(worker, workers)),
        "uneven_shards": (two_terms, uneven_shards(worker, workers)),
    }
    for name, (make_model, batches) in models.items():
        for micro_batches in (1, 2):
            weights, report = train(strategy, make_model, batches, micro_batches)
            found |= {f"{name}/{micro_batches}/weight {number}": value for number, value in enumerate(weights)}
            found |= {f"{name}/{micro_batches}/report {key}": value for key, value in report.items()}
    for number, (seed, calls) in enumerate([(1, 1), (1, 2), (2, 1)]):
        weights, _ = train(strategy, toy_classifier, classifier_batches(worker, workers), 1, calls=calls, seed=seed)
        found[f"dropout/{number}"] = np.concatenate([weight.ravel() for weight in weights])
    for name, jit in (("even", False), ("jit", True)):
        weights, report = train(strategy, lambda: toy_classifier(**NO_DROPOUT), even_batches, 1, jit=jit)
        found |= {f"{name}/weight {number}": value for number, value in enumerate(weights)}
        found[f"{name}/loss"] = report["loss_terms loss"]
    if workers == 1:  # Keras' fit fails under several
        found |= {f"fit/weight {number}": value for number, value in enumerate(fitted(strategy))}
    for number, step in enumerate((0, 0, 1)):
        for replica, mask in enumerate(masks(strategy, step)):
            found[f"masks/{number}/{replica}"] = mask
    return found


def main(mode, output, index=None, addresses=None):
    """Trains and writes the weights."""
    if mode == "worker":
        strategy = make_strategy("multi_worker", cluster=Cluster(tuple(addresses.split(",")), int(index)))
    elif mode == "mirrored":
        strategy = make_strategy("mirrored", num_logical_devices=2)
    else:
        strategy = make_strategy("one_device")
    np.savez(output, **results(strategy))


if __name__ == "__main__":
    main(*sys.argv[1:])
