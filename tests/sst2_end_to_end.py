"""Fine-tunes MiniLM on SST-2, exports it, and classifies dev in a fresh process.

    python -m tests.sst2_end_to_end --data_dir=../shared/data/glue/SST-2 --run_dir=runs/sst2 --rows=4000

Prints the figures in docs/results.md: accuracy, times, and the difference between bfloat16 and float32.
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

BATCH_SIZE, EPOCHS, LEARNING_RATE, SEED = 32, 2, 5e-5, 1

_FRESH_PROCESS = """
import json, sys, time
started = time.perf_counter()
import tensorflow as tf, tensorflow_text
imported = time.perf_counter()
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
loaded = time.perf_counter()
assert "keras_bert" not in sys.modules
texts = json.load(sys.stdin)
serve(text=tf.constant(texts[:32]))
began, labels, probabilities = time.perf_counter(), [], []
for i in range(0, len(texts), 32):
    outputs = serve(text=tf.constant(texts[i : i + 32]))
    labels += [label.decode() for label in outputs["label"].numpy()]
    probabilities += outputs["probabilities"].numpy().tolist()
seconds = {"import": imported - started, "load": loaded - imported, "classify": time.perf_counter() - began}
print(json.dumps({"labels": labels, "probabilities": probabilities, "seconds": seconds}))
"""


def define_flags():
    flags.DEFINE_string("data_dir", "../shared/data/glue/SST-2", "Folder with train.tsv and dev.tsv.")
    flags.DEFINE_string("run_dir", None, "Output folder; must not exist.", required=True)
    flags.DEFINE_integer("rows", 4000, "Number of training rows, drawn at random.")


def read_sst2(path):
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row["sentence"] for row in rows], [("negative", "positive")[int(row["label"])] for row in rows]


def serve(saved_model, texts):
    program = [sys.executable, "-P", "-c", _FRESH_PROCESS, saved_model]
    run = subprocess.run(program, input=json.dumps(texts), capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def main(_):
    data_dir, run_dir = Path(flags.FLAGS.data_dir), Path(flags.FLAGS.run_dir)
    run_dir.mkdir(parents=True)
    texts, labels = read_sst2(data_dir / "train.tsv")
    chosen = np.random.default_rng(SEED).permutation(len(texts))[: flags.FLAGS.rows]
    texts, labels = [texts[i] for i in chosen], [labels[i] for i in chosen]
    dev_texts, dev_labels = read_sst2(data_dir / "dev.tsv")

    keras.utils.set_random_seed(SEED)
    classifier = keras_bert.BertClassifier.from_preset("all_minilm_l6_v2", labels=["negative", "positive"], seed=SEED)
    steps = EPOCHS * -(-len(texts) // BATCH_SIZE)
    classifier.compile(keras_bert.BertAdamW(keras_bert.WarmupSchedule(LEARNING_RATE, steps), bias_correction=True))
    started = time.perf_counter()
    classifier.fit(texts, labels, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=2)
    figures = {"training seconds": time.perf_counter() - started}

    logits = classifier.predict(dev_texts, verbose=0)
    dtype = "mixed_bfloat16"
    encoder = type(classifier.encoder).from_config({**classifier.encoder.get_config(), "dtype": dtype})
    encoder = keras.saving.serialize_keras_object(encoder)
    low = keras_bert.BertClassifier.from_config({**classifier.get_config(), "encoder": encoder, "dtype": dtype})
    low.set_weights(classifier.get_weights())
    low_logits = low.predict(dev_texts, verbose=0)
    figures["mixed_bfloat16: labels equal to float32"] = np.mean(logits.argmax(1) == low_logits.argmax(1))
    figures["mixed_bfloat16: largest difference of a logit"] = np.abs(logits - low_logits).max()

    predicted = [classifier.labels[i] for i in logits.argmax(1)]
    for version, dtype in (("1", "float32"), ("2", "bfloat16")):
        started = time.perf_counter()
        folder = classifier.export(run_dir / "saved_model" / version, dtype=dtype)
        figures[f"{dtype}: export seconds"] = time.perf_counter() - started
        served = serve(str(folder.resolve()), dev_texts)
        figures[f"{dtype}: dev accuracy through the SavedModel"] = np.mean(np.equal(served["labels"], dev_labels))
        figures[f"{dtype}: labels equal to predict"] = np.mean(np.equal(served["labels"], predicted))
        differences = np.array(served["probabilities"]) - keras.ops.softmax(logits)
        figures[f"{dtype}: largest difference of a probability"] = np.abs(differences).max()
        figures |= {f"{dtype}: fresh process, {part} seconds": s for part, s in served["seconds"].items()}
    for name, value in figures.items():
        print(f"{name}: {value:.4f}")
    if min(value for name, value in figures.items() if "labels equal" in name) < 0.99:
        sys.exit("fewer than 99% of the labels agree")


if __name__ == "__main__":
    define_flags()
    app.run(main)
