"""SST-2 from its files to an exported model: tokenizing, fine-tuning by the Trainer and by `fit`, and classifying dev.

`train` and `fit` are the speeds of all epochs but the first, which traces; `fit_vs_train` is their ratio.
"""

import time

import numpy as np

from benchmarks.timing import exported_signature, load_head, make_optimizer, median_seconds, time_trainer

_SERVING_BATCH_SIZE = 32


def measure(values):
    """Measures examples per second of every step; `values` are the flags of the suite."""
    from keras_bert.data.batching import BatchPlan
    from keras_bert.data.formats.glue_files import read_glue
    from keras_bert.data.tokenized_examples import tokenize_examples

    if values.epochs < 2:
        raise ValueError(f"--epochs must be at least 2, as the first epoch is not measured; got {values.epochs}")
    train, dev = (list(read_glue("sst2", values.data_dir, split)) for split in ("train", "dev"))
    order = np.random.default_rng(values.seed).permutation(len(train))
    train = [train[index] for index in order[: values.examples or None]]
    model, num_measured = load_model(values), len(train) * (values.epochs - 1)

    started = time.perf_counter()
    tokenized = tokenize_examples(train, model.preprocessor, model.encode_labels)
    figures = {"tokenize ex/s": len(train) / (time.perf_counter() - started)}

    plan = BatchPlan(tokenized.lengths, values.batch_size, seed=values.seed)
    steps = plan.batches_per_epoch
    seconds = time_trainer(model, tokenized, plan, steps, steps * (values.epochs - 1))
    figures["train ex/s"] = num_measured / seconds
    figures["fit ex/s"] = num_measured / time_fit(load_model(values), train, values)
    figures["fit_vs_train %"] = 100 * figures["fit ex/s"] / figures["train ex/s"]

    texts = [example["text"] for example in dev]
    figures["infer ex/s"] = len(texts) / median_seconds(lambda: model.predict(texts, verbose=0), 1, warm_ups=1)
    figures["serve ex/s"] = len(texts) / time_serving(model, texts, values.precision)
    is_correct = [label == row["label"] for label, row in zip(model.predict_labels(texts), dev, strict=True)]
    figures["accuracy %"] = 100 * float(np.mean(is_correct))
    return figures, f"{values.epochs} epochs of {len(train)} examples"


def load_model(values):
    from keras_bert.data.formats.glue_files import glue_task
    from keras_bert.models.classifier import BertClassifier

    labels = list(glue_task("sst2").labels)
    return load_head(BertClassifier, values.init_checkpoint, labels=labels, seed=values.seed, dtype=values.precision)


def time_fit(model, examples, values):
    """Returns the time of all epochs of `fit` on texts but the first."""
    import keras

    from keras_bert.training import TrainerSettings

    times = []
    texts, labels = [example["text"] for example in examples], [example["label"] for example in examples]
    optimizer = make_optimizer(values.epochs * -(-len(texts) // values.batch_size))
    model.compile(optimizer, steps_per_execution=TrainerSettings(1).steps_per_execution)  # as time_trainer does
    model.fit(
        texts,
        labels,
        batch_size=values.batch_size,
        epochs=values.epochs,
        verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: times.append(time.perf_counter()))],
    )
    return times[-1] - times[0]


def time_serving(model, texts, precision):
    """Returns the time to classify texts by the exported model, in batches in the order of the texts."""
    import tensorflow as tf

    size = _SERVING_BATCH_SIZE
    batches = [tf.constant(texts[start : start + size]) for start in range(0, len(texts), size)]
    with exported_signature(model, precision) as serve:

        def classify():
            for batch in batches:
                serve(text=batch)["label"].numpy()

        return median_seconds(classify, 1, warm_ups=1)


PROGRAMS = {"keras_bert": measure}
