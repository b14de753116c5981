"""Trains models on two logical devices, or as one of two workers; `test_replicas.py` runs it, and trains on one device.

    python -m tests.training.replicas_program mirrored OUTPUT
    python -m tests.training.replicas_program worker OUTPUT INDEX ADDRESS,ADDRESS

It is a program of its own because logical devices and clusters can only be made before TensorFlow starts.
"""

import functools
import json
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_bert.data.tokenized_examples import tokenize_examples
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.step import TrainStep
from keras_bert.training.strategy import Cluster, any_worker, describe_strategy, get_worker, make_strategy
from tests.toys import toy_classifier, toy_reviews
from tests.training.two_terms import TwoTerms

# Even and uneven batches, and one with fewer rows than there are replicas.
BATCH_SIZES = (8, 8, 5, 1, 8, 7, 2, 8)
ENDS = np.cumsum(BATCH_SIZES)
# For float16: the loss scale to begin with, and two batches whose last row, which the second of two replicas gets, is
# too large for it.
FACTOR = 256.0
OVERFLOWING = (4, 5)
_TERMS = ("loss_terms", "last_loss_terms")


def batches_of(rows_of, worker, workers):
    """This worker's part of each of the batches."""
    bounds = tf.data.Dataset.from_tensor_slices(np.stack([ENDS - BATCH_SIZES, ENDS], axis=1))

    def part(bound):
        size = bound[1] - bound[0]
        return rows_of(tf.range(bound[0] + size * worker // workers, bound[0] + size * (worker + 1) // workers))

    return bounds.map(part)


def make_step(strategy, make_model, gradient_accumulation_steps=1, **arguments):
    with strategy.scope():
        model = make_model()
        optimizer = BertAdamW(1e-4, clip_norm=0.1)
    step = TrainStep(model, optimizer, strategy, gradient_accumulation_steps, **arguments)
    if step.loss_scale is not None:
        step.loss_scale.factor.assign(FACTOR)
    return step


def train(step, batches, calls=1):
    """By name, the weights after all batches, and the last report; how many updates of each call were passed over."""
    iterator = iter(batches(step.model))
    each = len(BATCH_SIZES) // calls
    skipped = []
    for call in range(calls):
        report = step.run(iterator, call * each, each)
        skipped.append(int(report["skipped"]))
    found = {f"weight {number}": weight.numpy() for number, weight in enumerate(step.model.weights)}
    terms = {f"{kind} {name}": value for kind in _TERMS for name, value in report.pop(kind).items()}
    found |= {f"report {name}": value.numpy() for name, value in (report | terms).items()}
    found |= {"report skipped": skipped, "report apart": apart(step.strategy, variables_of(step))}
    if step.loss_scale is not None:
        found["report factor"] = step.loss_scale.factor.numpy()
    return found


def variables_of(step):
    return [*step.model.weights, *step.optimizer.variables]


def train_twice(step, batches, calls):
    """What is trained from the same beginning in one call, and in several."""
    beginning = [variable.numpy() for variable in variables_of(step)]
    once = train(step, batches)
    for variable, value in zip(variables_of(step), beginning, strict=True):
        variable.assign(value)
    return once, train(step, batches, calls)


def apart(strategy, variables):
    """The largest difference between what the local replicas hold."""
    return max(
        np.abs(held.numpy() - replicas[0].numpy()).max()
        for replicas in (strategy.experimental_local_results(variable.value) for variable in variables)
        for held in replicas
    )


def classifier(gradient_checkpointing=False):
    """A classifier of one block without dropout."""
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return toy_classifier(
        dropout=0.0,
        encoder_arguments={"num_hidden_layers": 1, "gradient_checkpointing": gradient_checkpointing, **none},
    )


def classifier_with_dropout():
    return toy_classifier()


def classifier_batches(worker, workers):
    texts, labels = toy_reviews(sum(BATCH_SIZES))
    examples = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]

    def batches(model):
        tokenized = tokenize_examples(examples, model.preprocessor, model.encode_labels)
        return batches_of(tokenized.batch, worker, workers)

    return batches


def two_terms(dtype=None):
    return TwoTerms(keras.initializers.RandomNormal(seed=3), dtype)


def two_terms_float16():
    return two_terms("mixed_float16")


def two_terms_batches(worker, workers, overflowing=()):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(sum(BATCH_SIZES), 3))
    inputs[ENDS[list(overflowing)] - 1] *= 1e4
    inputs = tf.constant(inputs, tf.float32)
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
        model = classifier()
        model.compile(BertAdamW(1e-4, clip_norm=0.1))
    model.fit(even_batches(model), verbose=0)
    return [weight.numpy() for weight in model.weights]


def masks(strategy, step):
    """What a dropout layer makes of ones, on each local replica in some step of a training."""
    from keras_bert.layers.dropout import Dropout
    from keras_bert.training.dropout_seeds import DropoutSeeds

    with strategy.scope():
        layer = Dropout(0.5, seed=1)
        model = keras.Sequential([keras.Input([64]), layer])
    seeds = DropoutSeeds(model, seed=7)

    def draw():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with seeds.scope(seeds.values(seeds.key(step, replica), 0)):
            return model(tf.ones([1, 64]), training=True)

    return [np.array(mask) for mask in strategy.experimental_local_results(tf.function(lambda: strategy.run(draw))())]


def results(strategy):
    """By the names of model, number of micro-batches and kind, everything that training gives."""
    worker, workers = get_worker(strategy)
    one_device = strategy.num_replicas_in_sync == 1
    found = {}

    def add(name, trained):
        found.update({f"{name}/{key}": value for key, value in trained.items()})

    make = functools.partial(make_step, strategy)
    own_classifier_batches = classifier_batches(worker, workers)
    for name, make_model, batches in (
        ("classifier", classifier, own_classifier_batches),
        ("two_terms", two_terms, two_terms_batches(worker, workers)),
        ("uneven_shards", two_terms, uneven_shards(worker, workers)),
    ):
        for parts in (1, 2):
            add(f"{name}/{parts}", train(make(make_model, parts), batches))
            if name == "two_terms" and workers == 1:
                add(f"jit_two_terms/{parts}", train(make(make_model, parts, jit_compile=True), batches))
    shares = {"float16": (worker, workers)}
    if one_device:
        shares |= {"first_half": (0, 2), "second_half": (1, 2)}
    for name, share in shares.items():
        batches = two_terms_batches(*share, OVERFLOWING)
        for parts in (1, 2):
            add(f"{name}/{parts}", train(make(two_terms_float16, parts), batches, calls=len(BATCH_SIZES)))
    for number, trained in enumerate(train_twice(make(classifier_with_dropout, seed=1), own_classifier_batches, 2)):
        add(f"dropout/{number}", trained)
    add("dropout/2", train(make(classifier_with_dropout, seed=2), own_classifier_batches))
    if workers == 1:  # Keras' fit fails under several
        found |= {f"fit/weight {number}": value for number, value in enumerate(fitted(strategy))}
    if one_device:
        add("even", train(make(classifier), even_batches))
        add("jit_even", train(make(classifier, jit_compile=True), even_batches))
    elif workers == 1:
        add(
            "jit_even",
            train(make(functools.partial(classifier, gradient_checkpointing=True), 2, jit_compile=True), even_batches),
        )
    for number, step in enumerate((0, 0, 1)):
        for replica, mask in enumerate(masks(strategy, step)):
            found[f"masks/{number}/{replica}"] = mask
    return found


def split_again():
    """That the CPU is split can be asked for again, and cannot be changed."""
    strategy = make_strategy("mirrored", num_logical_devices=2)
    try:
        make_strategy("mirrored", num_logical_devices=3)
        message = "no error"
    except RuntimeError as error:
        message = str(error)
    return {
        "replicas": strategy.num_replicas_in_sync,
        "worker": get_worker(strategy),
        "any_worker": any_worker(strategy, True),
        "run_info": json.dumps(describe_strategy(strategy)),
        "message": message,
    }


def main(mode, output, index=None, addresses=None):
    """Trains and writes what came of it."""
    if mode == "worker":
        found = results(make_strategy("multi_worker", cluster=Cluster(tuple(addresses.split(",")), int(index))))
    else:
        found = results(make_strategy("mirrored", num_logical_devices=2))
        found |= {f"split/{key}": value for key, value in split_again().items()}
    np.savez(output, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
