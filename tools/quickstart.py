"""From a pre-trained BERT to a served classifier of support messages, in a few minutes on a CPU.

    python -m tools.quickstart --run_dir=runs/quickstart

Fine-tunes on the messages in `tools/support_messages/`, prints the accuracy beside that of TF-IDF with logistic
regression, exports a SavedModel, and lets a fresh process answer three messages with it.
"""

import subprocess
import sys
import time
from pathlib import Path

from absl import app, flags, logging

from tools.support_messages import read_support_messages

# By preset, the passes over the messages and the peak learning rate. A BERT that has read little has more to learn.
RECIPES = {"all_minilm_l6_v2": (6, 2e-4), "bert_tiny_novels": (25, 5e-4)}

MESSAGES = (
    "my parcel was due on tuesday and nothing has come yet",
    "I forgot my password and the reset mail never comes.",
    "I'd like to send the boots back, they pinch.",
)


def baseline_accuracy(train, dev):
    """Accuracy on dev of TF-IDF with logistic regression, both as scikit-learn has them by default."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    return model.fit(train.texts, train.labels).score(dev.texts, dev.labels)


def train_classifier(train, preset, epochs, batch_size, learning_rate, seed):
    """A `BertClassifier` fine-tuned on the messages."""
    import keras_bert

    classifier = keras_bert.BertClassifier.from_preset(
        preset, labels=sorted(set(train.labels)), sequence_length=64, seed=seed
    )
    num_train_steps = epochs * -(-len(train.texts) // batch_size)
    schedule = keras_bert.WarmupSchedule(learning_rate, num_train_steps, decay="linear")
    # On so few examples, Adam without bias correction takes its first steps too far (arXiv 2006.05987).
    classifier.compile(keras_bert.BertAdamW(schedule, bias_correction=True))
    classifier.fit(train.texts, train.labels, batch_size=batch_size, epochs=epochs, verbose=2)
    return classifier


def recipe(preset, epochs=None, learning_rate=None):
    """Epochs and learning rate: those given, or else what suits the preset."""
    suited = RECIPES[preset]
    return tuple(own if own is not None else its for own, its in zip((epochs, learning_rate), suited, strict=True))


def next_version(folder):
    """The first number that no version in `folder` has."""
    versions = [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
    return folder / str(max(versions, default=0) + 1)


def define_flags():
    """Defines the flags; not on import, so that one process can import several programs."""
    flags.DEFINE_string("run_dir", "runs/quickstart", "Folder of what the run writes; a new version on every run.")
    flags.DEFINE_enum("preset", "all_minilm_l6_v2", list(RECIPES), "Pre-trained weights to begin with.")
    flags.DEFINE_integer("epochs", None, "Passes over the training messages; by default what suits the preset.", 1)
    flags.DEFINE_integer("batch_size", 16, "Messages in a batch.", lower_bound=1)
    flags.DEFINE_float("learning_rate", None, "Peak learning rate; by default what suits the preset.", 0.0)
    flags.DEFINE_integer("seed", 1, "Seed of the new layer, of dropout, and of the order of the messages.")


def main(argv):
    """Runs the steps one after another, and prints what each found."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    logging.set_verbosity(logging.WARNING)
    train, dev = read_support_messages("train"), read_support_messages("dev")
    print(f"{len(train.texts)} messages to train on, {len(dev.texts)} to test on, {len(set(train.labels))} intents")

    started = time.monotonic()
    epochs, learning_rate = recipe(flags.FLAGS.preset, flags.FLAGS.epochs, flags.FLAGS.learning_rate)
    classifier = train_classifier(
        train, flags.FLAGS.preset, epochs, flags.FLAGS.batch_size, learning_rate, flags.FLAGS.seed
    )
    accuracy = classifier.evaluate(dev.texts, dev.labels, verbose=0, return_dict=True)["accuracy"]
    print(f"\naccuracy on the test messages: {accuracy:.3f}, after {time.monotonic() - started:.0f} s of training")
    print(f"TF-IDF with logistic regression: {baseline_accuracy(train, dev):.3f}")

    version = classifier.export(next_version(Path(flags.FLAGS.run_dir) / "saved_model"))
    print(f"\nexported to {version}; a fresh process, which knows nothing of keras_bert, answers:", flush=True)
    subprocess.run([sys.executable, "-m", "tools.ask", f"--saved_model={version}", *MESSAGES], check=True)
    print(
        "\nTry next:\n"
        f'  {sys.executable} -m tools.ask --saved_model={version} "where is my refund?"\n'
        f"  docker run -p 8501:8501 -v {version.parent.resolve()}:/models/intents -e MODEL_NAME=intents "
        "tensorflow/serving\n"
        "  docs/serving.md shows requests, README.md the training in ten lines of Python; make test runs the tests"
    )


if __name__ == "__main__":
    define_flags()
    app.run(main)
