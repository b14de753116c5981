"""Classifies messages with an exported classifier. Needs TensorFlow and tensorflow-text, but not keras_bert.

python -m tools.ask --saved_model=runs/quickstart/saved_model/1 "where is my parcel?" "I was charged twice"
"""

import sys
from pathlib import Path

from absl import app, flags

from tools.program import flag_definer


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    define = flag_definer(values)
    define("string", "saved_model", None, "Folder of the SavedModel, for example models/intents/1.", required=True)


def classify(saved_model, messages):
    """Returns the label of each message and its probability."""
    for message in messages:
        try:
            message.encode()
        except UnicodeEncodeError:  # Python keeps the bytes of a command line that are not UTF-8 as surrogates
            raw = message.encode("utf-8", "surrogateescape")
            raise ValueError(f"messages must be UTF-8, got {raw!r}; check the encoding of the terminal") from None
    if not (Path(saved_model) / "saved_model.pb").is_file():
        raise ValueError(f"--saved_model={saved_model} is not the folder of a SavedModel: it has no saved_model.pb")

    import tensorflow as tf

    from tools.serving_signature import ServingSignature

    signature = ServingSignature(saved_model)
    if list(signature.inputs) != ["text"] or "label" not in signature.columns:
        inputs, outputs = ", ".join(sorted(signature.inputs)), ", ".join([*signature.columns, *signature.lists])
        raise ValueError(
            f"{saved_model} is not a classifier of single texts: it takes {inputs} and returns {outputs}; use "
            "python -m tools.predict, which runs every model"
        )
    outputs = signature.run({"text": tf.constant(messages)})
    return [
        (label.decode(), float(max(probabilities)))
        for label, probabilities in zip(outputs["label"], outputs["probabilities"], strict=True)
    ]


def main(argv):
    """Prints each message with its label and probability."""
    messages = argv[1:]
    if not messages:
        raise app.UsageError("no messages; give them after the flags, each in quotes")
    try:
        results = classify(flags.FLAGS.saved_model, messages)
    except (OSError, ValueError) as error:
        sys.exit(f"tools.ask: {error}")
    for message, (label, probability) in zip(messages, results, strict=True):
        print(f"{label:<20} {probability:.2f}  {message}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
