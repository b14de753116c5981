"""Trains models on two logical devices, or as one of two workers; run by `test_replicas.py`.

    python -m tests.training.replicas_program mirrored OUTPUT
    python -m tests.training.replicas_program worker OUTPUT INDEX ADDRESS,ADDRESS

A separate program because logical devices and clusters can only be created before TensorFlow starts.
"""

import json
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.tokenized_examples import tokenize_examples
from keras_bert.layers.dropout import Dropout
from keras_bert.training.cluster import Cluster
from keras_bert.training.dropout_seeds import DropoutSeeds
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.step import TrainStep
from keras_bert.training.strategy import any_worker, describe_strategy, get_worker, make_strategy
from tests.toys import toy_classifier, toy_reviews
from tests.training.models import BATCH, HAS_FLOAT16, TwoTerms, embedding_batches, embedding_model

# Even and uneven batches, and one with fewer rows than there are replicas.
BATCH_SIZES = (8, 8, 5, 1, 8, 7, 2, 8)
ENDS = np.cumsum(BATCH_SIZES)
# For float16: the initial loss scale, and two batches whose last row, which the second replica gets, overflows.
FACTOR = 256.0
OVERFLOWING = (4, 5)


def split_batches(get_rows, worker, num_workers):
    """Returns this worker's part of every batch; `get_rows` maps row numbers to tensors."""
    bounds = tf.data.Dataset.from_tensor_slices(np.stack([ENDS - BATCH_SIZES, ENDS], axis=1))

    def get_part(bound):
        size = bound[1] - bound[0]
        first = bound[0] + size * worker // num_workers
        return get_rows(tf.range(first, bound[0] + size * (worker + 1) // num_workers))

    return bounds.map(get_part)


def tokenized_reviews(model, count):
    texts, labels = toy_reviews(count)
    examples = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    return tokenize_examples(examples, model.preprocessor, model.encode_labels)


def classifier_batches(model, worker, num_workers):
    return split_batches(tokenized_reviews(model, sum(BATCH_SIZES)).batch, worker, num_workers)


def two_terms_batches(worker, num_workers, overflowing=()):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(sum(BATCH_SIZES), 3))
    inputs[ENDS[list(overflowing)] - 1] *= 1e4
    inputs = tf.constant(inputs, tf.float32)
    labels = tf.constant(rng.normal(size=(sum(BATCH_SIZES), 2)), tf.float32)
    return split_batches(lambda rows: (tf.gather(inputs, rows), tf.gather(labels, rows)), worker, num_workers)


def uneven_shards(worker, num_workers):
    """Five batches, of which the first worker has three and the second two; for one worker, joined to three."""
    rng = np.random.default_rng(1)
    batches = [tuple(rng.normal(size=(4, size)).astype("float32") for size in (3, 2)) for _ in range(5)]
    joined = [tuple(map(np.concatenate, zip(*batches[i::3], strict=True))) for i in range(3)]
    batches = joined if num_workers == 1 else [batches[:3], batches[3:]][worker]
    signature = (tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2]))
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)


def even_batches(model):
    """Batches of a static shape, as TPUs need them."""
    return tf.data.Dataset.from_tensor_slices(tokenized_reviews(model, 32).batch(tf.range(32))).batch(8, True)


def make_classifier(gradient_checkpointing=False):
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return toy_classifier(dropout=0.0, encoder_arguments={"gradient_checkpointing": gradient_checkpointing, **none})


def make_two_terms(dtype=None):
    return TwoTerms(keras.initializers.RandomNormal(seed=3), dtype)


def make_step(strategy, make, *arguments, **step_arguments):
    with strategy.scope():
        model = make(*arguments)
        optimizer = BertAdamW(1e-4, clip_norm=0.1)
    step = TrainStep(model, optimizer, strategy, **step_arguments)
    if step.loss_scale is not None:
        step.loss_scale.factor.assign(FACTOR)
    return step


def train(step, batches, num_calls=1):
    """Trains on all batches; returns weights and the last report by name, and the number of skipped steps per call."""
    iterator = iter(batches)
    num_steps = len(BATCH_SIZES) // num_calls
    reports = [step.run(iterator, call * num_steps, num_steps) for call in range(num_calls)]
    found = {f"weight {i}": weight for i, weight in enumerate(step.model.get_weights())}
    found |= {name: reports[-1][name].numpy() for name in ("examples", "steps", "gradient_norm", "failed")}
    found["skipped"] = [int(report["skipped"]) for report in reports]
    found["difference"] = replica_difference(step.strategy, [*step.model.weights, *step.optimizer.variables])
    if step.loss_scale is not None:
        found["factor"] = step.loss_scale.factor.numpy()
    return found


def replica_difference(strategy, variables):
    """Returns the largest difference between the local replicas' copies of variables."""
    copies = [strategy.experimental_local_results(variable.value) for variable in variables]
    return max(np.abs(copy.numpy() - replicas[0].numpy()).max() for replicas in copies for copy in replicas)


def draw_masks(strategy, step):
    """Returns the output of a dropout layer for ones, on every local replica at some step."""
    with strategy.scope():
        model = keras.Sequential([keras.Input([64]), Dropout(0.5, seed=1)])
    seeds = DropoutSeeds(model, seed=7)

    def draw():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with seeds.scope(seeds.values(seeds.key(step, replica), 0)):
            return model(tf.ones([1, 64]), training=True)

    return [np.array(mask) for mask in strategy.experimental_local_results(tf.function(lambda: strategy.run(draw))())]


def run_custom_loop(strategy):
    """Trains an embedding model with `BertAdamW.apply` in `strategy.run`; returns weights and gradient norms."""
    with strategy.scope():
        model, optimizer = embedding_model(), BertAdamW(1e-4)
        optimizer.build(model.trainable_variables)
    compute_losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def step(batch):
        ids, labels = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(compute_losses(labels, model(ids, training=True))) / BATCH
        return optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    run = tf.function(lambda batch: strategy.experimental_local_results(strategy.run(step, args=(batch,))))
    dataset = strategy.experimental_distribute_dataset(embedding_batches())
    norms = np.array([[norm.numpy() for norm in run(batch)] for batch in dataset])
    return {"norms": norms, **{f"weight {i}": weight for i, weight in enumerate(model.get_weights())}}


def collect_results(strategy):
    """Returns the results of all trainings by name of the training and of the value."""
    worker, num_workers = get_worker(strategy)
    is_one_device = strategy.num_replicas_in_sync == 1
    found = {}

    def add(name, trained):
        found.update({f"{name}/{key}": value for key, value in trained.items()})

    accumulation = 1 if is_one_device else 2
    step = make_step(strategy, make_classifier, gradient_accumulation_steps=accumulation)
    add("classifier", train(step, classifier_batches(step.model, worker, num_workers)))
    add("two_terms", train(make_step(strategy, make_two_terms), two_terms_batches(worker, num_workers)))
    step = make_step(strategy, make_two_terms, gradient_accumulation_steps=accumulation)
    add("uneven_shards", train(step, uneven_shards(worker, num_workers)))
    if HAS_FLOAT16:
        step = make_step(strategy, make_two_terms, "mixed_float16", gradient_accumulation_steps=accumulation)
        add("float16", train(step, two_terms_batches(worker, num_workers, OVERFLOWING), num_calls=len(BATCH_SIZES)))
    for num_calls in (1, 2):
        step = make_step(strategy, toy_classifier, seed=1)
        batches = classifier_batches(step.model, worker, num_workers)
        add(f"dropout/{num_calls}", train(step, batches, num_calls))
    for number, at in enumerate((0, 0, 1)):
        found |= {f"masks/{number}/{replica}": mask for replica, mask in enumerate(draw_masks(strategy, at))}
    if num_workers == 1:
        add("loop", run_custom_loop(strategy))
        jit = {} if is_one_device else {"jit_compile": True, "gradient_accumulation_steps": 2}
        step = make_step(strategy, make_classifier, not is_one_device, **jit)
        add("even", train(step, even_batches(step.model)))
    if not is_one_device and num_workers == 1:
        step = make_step(strategy, make_two_terms, jit_compile=True, gradient_accumulation_steps=2)
        add("jit_two_terms", train(step, two_terms_batches(worker, num_workers)))
    return found


def apply_nan_on_one_replica(strategy):
    """Returns the largest change of any variable, and the error message."""
    with strategy.scope():
        kernel = keras.Variable(np.ones([3, 2], "float32"), name="kernel")
        optimizer = BertAdamW(1.0)
        optimizer.build([kernel])
    before = [variable.numpy().copy() for variable in [kernel, *optimizer.variables]]

    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        optimizer.apply([tf.fill([3, 2], tf.where(tf.equal(replica, 1), np.nan, 1.0))], [kernel])

    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        tf.function(lambda: strategy.run(step))()
    after = [variable.numpy() for variable in [kernel, *optimizer.variables]]
    change = max(np.abs(new - old).max() for new, old in zip(after, before, strict=True))
    return {"change": change, "message": str(error.value)}


def apply_before_build(strategy):
    with strategy.scope():
        kernel = keras.Variable([1.0], name="kernel")
        optimizer = BertAdamW()
    with pytest.raises(RuntimeError) as error:
        strategy.run(lambda: optimizer.apply([tf.ones([1])], [kernel]))
    return str(error.value)


def main(mode, output, index=None, addresses=None):
    if mode == "worker":
        strategy = make_strategy("multi_worker", cluster=Cluster(tuple(addresses.split(",")), int(index)))
        np.savez(output, **collect_results(strategy))
        return
    strategy = make_strategy("mirrored", num_logical_devices=2)
    found = collect_results(strategy)
    found |= {f"nan/{key}": value for key, value in apply_nan_on_one_replica(strategy).items()}
    found |= {
        "before_build": apply_before_build(strategy),
        "worker": get_worker(strategy),
        "any_worker": any_worker(strategy, True),
        "run_info": json.dumps(describe_strategy(strategy)),
        "replicas": make_strategy("mirrored", num_logical_devices=2).num_replicas_in_sync,  # may be repeated
    }
    np.savez(output, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
