"""Fine-tunes a pre-trained BERT on support messages, exports it, and classifies messages: a minute on a CPU.

    python -m tools.quickstart --run_dir=runs/quickstart

Trains on the messages in `tools/support_messages/`, compares the accuracy with TF-IDF and logistic regression, exports
a SavedModel, and classifies three messages with it in a fresh process.
"""

import subprocess
import sys
import time
from pathlib import Path

from absl import app, flags, logging

from tools.program import flag_definer
from tools.support_messages import read_support_messages

# Number of epochs and peak learning rate by preset. bert_tiny_novels was pre-trained on little text and needs more.
RECIPES = {"bert_mini_en": (6, 2e-4), "all_minilm_l6_v2": (6, 2e-4), "bert_tiny_novels": (25, 5e-4)}

MESSAGES = (
    "my parcel was due on tuesday and nothing has come yet",
    "I forgot my password and the reset mail never comes.",
    "I'd like to send the boots back, they pinch.",
)


# The whole program: the exported model needs TensorFlow and tensorflow-text, but not keras_bert.
CLASSIFY = """
import sys
import tensorflow as tf
import tensorflow_text

version, *messages = sys.argv[1:]
answer = tf.saved_model.load(version).signatures["serving_default"](text=tf.constant(messages))
for label, probabilities, message in zip(answer["label"].numpy(), answer["probabilities"].numpy(), messages):
    print(f"{label.decode():<20} {max(probabilities):.2f}  {message}")
"""


def baseline_accuracy(train, dev):
    """Returns the accuracy on dev of TF-IDF with logistic regression, with scikit-learn's default settings."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    return model.fit(train.texts, train.labels).score(dev.texts, dev.labels)


def train_classifier(train, values):
    """Fine-tunes a `BertClassifier` on the messages; `values` are the flags."""
    import keras_bert

    default_epochs, default_rate = RECIPES[values.preset]
    epochs = default_epochs if values.epochs is None else values.epochs
    learning_rate = default_rate if values.learning_rate is None else values.learning_rate
    classifier = keras_bert.BertClassifier.from_preset(
        values.preset, labels=sorted(set(train.labels)), sequence_length=64, seed=values.seed
    )
    num_train_steps = epochs * -(-len(train.texts) // values.batch_size)
    schedule = keras_bert.WarmupSchedule(learning_rate, num_train_steps, decay="linear")
    # On few examples, Adam without bias correction makes its first steps too large (arXiv 2006.05987).
    optimizer = keras_bert.BertAdamW(schedule, bias_correction=True)
    classifier.compile(optimizer, steps_per_execution=6)  # several steps per call keep both cores busy in between
    classifier.fit(train.texts, train.labels, batch_size=values.batch_size, epochs=epochs, verbose=2)
    return classifier


def next_version(folder):
    """Returns the folder of the next version, one above the highest number in `folder`."""
    versions = [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
    return folder / str(max(versions, default=0) + 1)


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    define = flag_definer(values)
    define("string", "run_dir", "runs/quickstart", "Folder for outputs; every run exports a new version.")
    define("enum", "preset", "bert_mini_en", list(RECIPES), "Pre-trained weights.")
    define("integer", "epochs", None, "Number of epochs; default: 6, and 25 for bert_tiny_novels.", lower_bound=1)
    define("integer", "batch_size", 16, "Batch size.", lower_bound=1)
    define("float", "learning_rate", None, "Peak learning rate; default: 2e-4, and 5e-4 for bert_tiny_novels.", 0.0)
    define("integer", "seed", 1, "Seed of the new layer, of dropout and of the order of the messages.")


def main(argv):
    """Runs the steps and prints their results."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    values = flags.FLAGS
    logging.set_verbosity(logging.WARNING)
    train, dev = read_support_messages("train"), read_support_messages("dev")
    print(f"{len(train.texts)} training and {len(dev.texts)} test messages with {len(set(train.labels))} labels")

    started = time.monotonic()
    classifier = train_classifier(train, values)
    seconds = time.monotonic() - started
    accuracy = classifier.evaluate(dev.texts, dev.labels, verbose=0, return_dict=True)["accuracy"]
    print(f"\nTest accuracy: {accuracy:.3f} after {seconds:.0f} s of training")
    print(f"TF-IDF with logistic regression: {baseline_accuracy(train, dev):.3f}")

    version = classifier.export(next_version(Path(values.run_dir) / "saved_model"))
    print(f"\nExported to {version}. Predictions of a fresh process, without keras_bert:", flush=True)
    subprocess.run([sys.executable, "-c", CLASSIFY, str(version), *MESSAGES], check=True)
    print(
        "\nNext steps:\n"
        f"  {sys.executable} -m tools.serve --saved_model={version}  # try it in a browser\n"
        f"  docker run -p 8501:8501 -v {version.parent.resolve()}:/models/intents -e MODEL_NAME=intents "
        "tensorflow/serving\n"
        "  See docs/serving.md for requests to the server, README.md for training in Python; make test runs the tests."
    )


if __name__ == "__main__":
    define_flags()
    app.run(main)
