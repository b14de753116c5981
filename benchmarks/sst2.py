"""SST-2 from its files to a classifier that is served: fine-tuning, and classification of dev."""

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.fine_tuning import WARM_UP_STEPS, make_head, seconds_of_updates

_BATCH_OF_SERVING = 32


def measure_ours(data_dir, init_checkpoint, examples, epochs, batch_size, precision, seed):
    """Fine-tunes, classifies dev by `predict`, and again by the exported SavedModel.

    Args:
        data_dir: str. The folder of train.tsv and dev.tsv.
        init_checkpoint: str. A checkpoint, or the name of a preset.
        examples: int. How many rows of train.tsv to train on; 0 is all.
        epochs: int.
        batch_size: int.
        precision: str, the dtype policy. With mixed_bfloat16 the SavedModel is bfloat16.
        seed: int. Of the choice and order of examples, the new layer, and dropout.

    Returns:
        A pair: dict of (name, unit) to float, and a remark. `train` is examples a second from tokenizing to the last
        update, `infer` and `serve` texts a second of dev, in one call of `predict` and in batches to the SavedModel;
        `acc` is the accuracy of `predict`.

    Raises:
        ValueError: if there are too few examples to measure anything after the warm-up.
    """
    from keras_bert.data.formats.glue_files import read_glue

    train, dev = (list(read_glue("sst2", data_dir, split)) for split in ("train", "dev"))
    order = np.random.default_rng(seed).permutation(len(train))
    train = [train[number] for number in order[: examples or None]]
    model = make_model(init_checkpoint, precision, seed)
    figures = {("train", "ex/s"): train_speed(model, train, epochs, batch_size, seed)}
    texts = [example["text"] for example in dev]
    figures["infer", "ex/s"], logits = predict_speed(model, texts)
    figures["serve", "ex/s"] = serve_speed(model, texts, precision)
    right = [model.labels[number] == row["label"] for number, row in zip(logits.argmax(axis=1), dev, strict=True)]
    return figures | {("acc", ""): float(np.mean(right))}, f"{epochs} x {len(train)} examples"


def make_model(init_checkpoint, precision, seed):
    """A classifier for SST-2 on the weights of a checkpoint."""
    from keras_bert.data.formats.glue_files import glue_task
    from keras_bert.models.classifier import BertClassifier

    labels = list(glue_task("sst2").labels)
    return make_head(BertClassifier, init_checkpoint, labels=labels, seed=seed, dtype=precision)


def train_speed(model, examples, epochs, batch_size, seed):
    """Trains a model as `tasks.glue` does, without evaluation, and gives the examples a second.

    The first updates trace the step; they are part of the training but not of the time. The time of tokenizing is that
    of all examples.
    """
    from keras_bert.data.batching import BatchPlan
    from keras_bert.data.tokenized_examples import tokenize_examples

    tokenize_examples(examples[: WARM_UP_STEPS * batch_size], model.preprocessor, model.encode_labels)
    started = time.perf_counter()
    tokenized = tokenize_examples(examples, model.preprocessor, model.encode_labels)
    plan = BatchPlan(tokenized.lengths, batch_size, seed=seed)
    tokenizing = time.perf_counter() - started
    steps = plan.batches_per_epoch * epochs
    if steps <= WARM_UP_STEPS:
        raise ValueError(
            f"{len(examples)} examples are {steps} updates, but the first {WARM_UP_STEPS} do not count; give more "
            f"than --examples={WARM_UP_STEPS * batch_size}"
        )
    updating = seconds_of_updates(model, tokenized, plan, steps)
    counted = (len(examples) / plan.batches_per_epoch) * (steps - WARM_UP_STEPS)
    return counted / (tokenizing + updating)


def predict_speed(model, texts):
    """Texts a second of one call of `predict`, and the logits."""
    model.predict(texts, verbose=0)
    started = time.perf_counter()
    logits = model.predict(texts, verbose=0)
    return len(texts) / (time.perf_counter() - started), logits


def serve_speed(model, texts, precision):
    """Texts a second of the exported model, in batches as they come."""
    import tensorflow as tf

    batches = [
        tf.constant(texts[start : start + _BATCH_OF_SERVING]) for start in range(0, len(texts), _BATCH_OF_SERVING)
    ]
    with tempfile.TemporaryDirectory() as folder:
        saved = model.export(Path(folder) / "1", dtype="bfloat16" if precision == "mixed_bfloat16" else precision)
        serve = tf.saved_model.load(saved).signatures["serving_default"]

        def classify_all():
            for batch in batches:
                serve(text=batch)["label"].numpy()

        classify_all()
        started = time.perf_counter()
        classify_all()
        return len(texts) / (time.perf_counter() - started)


PROGRAMS = {"keras_bert": measure_ours}
