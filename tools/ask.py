"""Answers messages with an exported classifier, without keras_bert: TensorFlow and tensorflow-text are enough.

python -m tools.ask --saved_model=runs/quickstart/saved_model/1 "where is my parcel?" "I was charged twice"
"""

from pathlib import Path

from absl import app, flags


def define_flags():
    """Defines the flags; not on import, so that one process can import several programs."""
    flags.DEFINE_string("saved_model", None, "Folder of the SavedModel, for example models/intents/1.", required=True)


def main(argv):
    """Prints each message with its label and probability."""
    messages = argv[1:]
    if not messages:
        raise app.UsageError("no messages; put them behind the flags, each in quotes")
    if not (Path(flags.FLAGS.saved_model) / "saved_model.pb").is_file():
        raise app.UsageError(
            f"--saved_model={flags.FLAGS.saved_model} is not the folder of a SavedModel: it has no saved_model.pb"
        )

    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (registers the operations of the tokenizer)

    serve = tf.saved_model.load(flags.FLAGS.saved_model).signatures["serving_default"]
    answers = serve(text=tf.constant(messages))
    for message, label, probabilities in zip(messages, answers["label"], answers["probabilities"], strict=True):
        print(f"{label.numpy().decode():<20} {float(max(probabilities)):.2f}  {message}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
