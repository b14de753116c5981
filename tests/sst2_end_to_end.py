"""The whole way on real input: fine-tunes MiniLM on SST-2, exports it, and classifies dev in a fresh process.

    python -m tests.sst2_end_to_end --data_dir=../shared/data/glue/SST-2 --run_dir=runs/sst2 --rows=4000

Prints what `docs/results.md` holds: accuracy, times, and how far bfloat16 is from float32.
"""

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
from absl import app, flags

import keras_bert

_DATA_DIR = flags.DEFINE_string("data_dir", "../shared/data/glue/SST-2", "Folder with train.tsv and dev.tsv.")
_RUN_DIR = flags.DEFINE_string("run_dir", None, "Folder for what is written; must not exist.", required=True)
_ROWS = flags.DEFINE_integer("rows", 4000, "Rows of train.tsv to train on, drawn with the seed.")
_EPOCHS = flags.DEFINE_integer("epochs", 2, "Passes over them.")
_LEARNING_RATE = flags.DEFINE_float("learning_rate", 5e-5, "Peak learning rate.")
_SEED = flags.DEFINE_integer("seed", 1, "Seed of rows, order, dropout and the new layer.")

_FRESH_PROCESS = """
import csv, json, sys, time
started = time.perf_counter()
import tensorflow as tf, tensorflow_text
imported = time.perf_counter()
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
loaded = time.perf_counter()
assert "keras_bert" not in sys.modules
with open(sys.argv[2], encoding="utf-8", newline="") as file:
    texts = [row["sentence"] for row in csv.DictReader(file, delimiter="\\t", quoting=csv.QUOTE_NONE)]
serve(text=tf.constant(texts[:32]))
began, labels, probabilities = time.perf_counter(), [], []
for i in range(0, len(texts), 32):
    answers = serve(text=tf.constant(texts[i : i + 32]))
    labels += [label.decode() for label in answers["label"].numpy()]
    probabilities += answers["probabilities"].numpy().tolist()
seconds = {"import": imported - started, "load": loaded - imported, "classify": time.perf_counter() - began}
print(json.dumps({"labels": labels, "probabilities": probabilities, "seconds": seconds}))
"""


def read_sst2(file):
    """Sentences and label names of a GLUE file."""
    with open(file, encoding="utf-8", newline="") as rows:
        rows = list(csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row["sentence"] for row in rows], [("negative", "positive")[int(row["label"])] for row in rows]


def served(saved_model, dev_file):
    """What a fresh process answers with an exported model."""
    program = [sys.executable, "-P", "-c", _FRESH_PROCESS, saved_model, dev_file]
    run = subprocess.run(program, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def accuracy(labels, expected):
    """Share of labels that are as expected."""
    return float(np.mean([label == other for label, other in zip(labels, expected, strict=True)]))


def main(argv):
    """Trains, exports, classifies, and prints the figures."""
    del argv
    run_dir = Path(_RUN_DIR.value)
    if run_dir.exists():
        raise app.UsageError(f"--run_dir={run_dir} exists and is not overwritten; give another")
    run_dir.mkdir(parents=True)
    texts, labels = read_sst2(Path(_DATA_DIR.value) / "train.tsv")
    chosen = np.random.default_rng(_SEED.value).permutation(len(texts))[: _ROWS.value]
    texts, labels = [texts[i] for i in chosen], [labels[i] for i in chosen]
    dev_file = str(Path(_DATA_DIR.value).resolve() / "dev.tsv")
    dev_texts, dev_labels = read_sst2(dev_file)

    keras.utils.set_random_seed(_SEED.value)
    classifier = keras_bert.BertClassifier.from_preset(
        "all_minilm_l6_v2", labels=["negative", "positive"], seed=_SEED.value
    )
    steps = _EPOCHS.value * -(-len(texts) // 32)
    classifier.compile(
        keras_bert.BertAdamW(keras_bert.WarmupSchedule(_LEARNING_RATE.value, steps), bias_correction=True)
    )
    started = time.perf_counter()
    classifier.fit(texts, labels, batch_size=32, epochs=_EPOCHS.value, verbose=2)
    figures = {"training seconds": time.perf_counter() - started}

    logits = classifier.predict(dev_texts, verbose=0)
    low = keras_bert.BertClassifier.from_config(
        {**classifier.get_config(), "encoder": encoder_config(classifier, "mixed_bfloat16"), "dtype": "mixed_bfloat16"}
    )
    low.set_weights(classifier.get_weights())
    low_logits = low.predict(dev_texts, verbose=0)
    figures["mixed_bfloat16: labels equal to float32"] = float(np.mean(logits.argmax(1) == low_logits.argmax(1)))
    figures["mixed_bfloat16: largest difference of a logit"] = float(np.abs(logits - low_logits).max())

    for dtype in ("float32", "bfloat16"):
        started = time.perf_counter()
        folder = classifier.export(run_dir / "saved_model" / {"float32": "1", "bfloat16": "2"}[dtype], dtype=dtype)
        figures[f"{dtype}: export seconds"] = time.perf_counter() - started
        answers = served(str(folder.resolve()), dev_file)
        figures[f"{dtype}: dev accuracy through the SavedModel"] = accuracy(answers["labels"], dev_labels)
        figures[f"{dtype}: labels equal to predict"] = accuracy(
            answers["labels"], [classifier.labels[i] for i in logits.argmax(1)]
        )
        figures[f"{dtype}: largest difference of a probability"] = float(
            np.abs(np.array(answers["probabilities"]) - keras.ops.softmax(logits)).max()
        )
        figures |= {f"{dtype}: fresh process, {part} seconds": s for part, s in answers["seconds"].items()}
    for name, value in figures.items():
        print(f"{name}: {value:.4f}")
    if min(value for name, value in figures.items() if "labels equal" in name) < 0.99:
        sys.exit("fewer than 99% of the labels agree")


def encoder_config(classifier, dtype):
    """The configuration of a classifier's encoder, in another dtype."""
    encoder = type(classifier.encoder).from_config({**classifier.encoder.get_config(), "dtype": dtype})
    return keras.saving.serialize_keras_object(encoder)


if __name__ == "__main__":
    app.run(main)
