"""The training loop around the step: what Python costs, what checkpoints cost, and two replicas beside one device."""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.encoder import MINILM

_WARM_UPDATES = 5  # they trace, allocate, and fill caches
_CHECKPOINTS = 3


def measure_one_device(batch_size, sequence_length, precision, updates):
    """The whole `Trainer` on one device, an update a call, and where its time goes.

    Args:
        batch_size, sequence_length: int. The shape of every batch.
        precision: str, the dtype policy.
        updates: int. How many count.

    Returns:
        A pair: dict of (name, unit) to float, and a remark. `update` is the median time of an update; `host` the share
        of it that passes outside the compiled call, and `log` the part of that which a log record an update takes;
        `checkpoint` the time to write one.
    """
    import tensorflow as tf

    return _measure(tf.distribute.get_strategy(), batch_size, sequence_length, precision, updates)


def measure_two_replicas(batch_size, sequence_length, precision, updates):
    """As `measure_one_device`, with the same batches on two logical devices of the processor."""
    from keras_bert.training.strategy import make_strategy

    return _measure(make_strategy("mirrored", num_logical_devices=2), batch_size, sequence_length, precision, updates)


def _measure(strategy, batch_size, sequence_length, precision, updates):
    from keras_bert.training.run_dir import RunDirectory

    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(strategy, RunDirectory(Path(folder) / "run", {}), precision, updates + _WARM_UPDATES)
        calls = _timed(trainer._step, "run")
        records = _timed(trainer, "_record")
        ends = []
        trainer.should_stop = lambda: ends.append(time.perf_counter())
        batches = _batches(batch_size, sequence_length)
        trainer.train(batches)
        whole = np.diff(ends[-updates - 1 :])
        checkpoints, iterator = [], iter(batches)
        for number in range(_CHECKPOINTS):
            started = time.perf_counter()
            trainer.checkpoints.save(iterator, {"step": updates + _WARM_UPDATES + number, "best_step": None})
            checkpoints.append(time.perf_counter() - started)
    update = statistics.median(whole)
    outside = statistics.median(whole - np.array(calls[-updates:]))
    return {
        ("update", "ms"): 1e3 * update,
        ("host", "%"): 100 * outside / update,
        ("log", "%"): 100 * statistics.median(records[-updates:]) / update,
        ("checkpoint", "ms"): 1e3 * statistics.median(checkpoints),
    }, f"{strategy.num_replicas_in_sync} replicas, {updates} updates"


def _trainer(strategy, run, precision, updates):
    import keras_bert
    from keras_bert.training import Trainer, TrainerSettings

    with strategy.scope():
        encoder = keras_bert.BertEncoder(**MINILM, seed=1, dtype=precision)
        model = keras_bert.BertClassifier(encoder, labels=2, seed=1)
        optimizer = keras_bert.BertAdamW(1e-5)
    # A record for every update, far more often than anyone has it.
    return Trainer(
        model,
        optimizer,
        run,
        TrainerSettings(updates, steps_per_execution=1, log_every=1, checkpoint_every=updates + 1, seed=1),
        strategy,
    )


def _batches(batch_size, sequence_length):
    import tensorflow as tf

    generator = np.random.default_rng(1)
    ids = {
        "token_ids": generator.integers(MINILM["vocab_size"], size=(batch_size, sequence_length), dtype="int32"),
        "segment_ids": np.zeros((batch_size, sequence_length), "int32"),
        "padding_mask": np.ones((batch_size, sequence_length), "int32"),
    }
    labels = generator.integers(2, size=batch_size, dtype="int32")
    return tf.data.Dataset.from_tensors((ids, labels)).repeat()


def _timed(owner, name):
    """Replaces a method by one that notes how long each call takes, its results included; gives the list of times."""
    import tensorflow as tf

    method, seconds = getattr(owner, name), []

    def timed(*arguments):
        started = time.perf_counter()
        result = method(*arguments)
        for value in tf.nest.flatten(result):
            if hasattr(value, "numpy"):
                value.numpy()
        seconds.append(time.perf_counter() - started)
        return result

    setattr(owner, name, timed)
    return seconds


PROGRAMS = {"keras_bert": measure_one_device, "two replicas": measure_two_replicas}
