"""Answers requests with exported models as a server would, without this package; `test_classifier_serving.py` runs it.

    python -I serving_program.py JOB

JOB is a JSON file: `model`, the folder of a SavedModel; `resaved`, a folder for a second copy of it; `requests`, a dict
of signature name to `{input name: nested list}`, in which strings are written in Latin-1, a character a byte. The
answers of every way to load the model go to `answers.json` beside JOB.
"""

import json
import sys
from pathlib import Path


class Absent:
    """Makes this package impossible to import, even where it is installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in ("keras_bert", "tests"):
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Absent)

import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401


def is_absent(name):
    """Whether a module cannot be imported."""
    try:
        __import__(name)
    except ModuleNotFoundError:
        return True
    return False


def encoded(values):
    """A request's nested list with bytes for the strings."""
    if isinstance(values, list):
        return [encoded(value) for value in values]
    return values.encode("latin-1") if isinstance(values, str) else values


def decoded(array):
    """An answer's array as a nested list, fit for JSON."""
    return array.astype(str).tolist() if array.dtype == object else array.tolist()


def loaded_answers(folder, requests):
    """The answers of `tf.saved_model.load`."""
    model = tf.saved_model.load(folder)
    answers = {}
    for name, inputs in requests.items():
        specs = model.signatures[name].structured_input_signature[1]
        tensors = {key: tf.constant(values, specs[key].dtype) for key, values in inputs.items()}
        answers[name] = {key: decoded(value.numpy()) for key, value in model.signatures[name](**tensors).items()}
    return answers


def session_answers(folder, requests):
    """The answers of the loader and the session of TensorFlow 1, which TensorFlow Serving is made of."""
    answers = {}
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta_graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], folder)
        for name, inputs in requests.items():
            signature = meta_graph.signature_def[name]
            feeds = {signature.inputs[key].name: values for key, values in inputs.items()}
            fetches = {key: info.name for key, info in signature.outputs.items()}
            answers[name] = {key: decoded(value) for key, value in session.run(fetches, feeds).items()}
            answers[name]["method_name"] = signature.method_name
    return answers


def save_again(folder, resaved):
    """Loads a model, saves it elsewhere, and moves the copy."""
    model = tf.saved_model.load(folder)
    tf.saved_model.save(model, f"{resaved}.before", signatures=model.signatures)
    Path(f"{resaved}.before").rename(resaved)


def main():
    """Answers the job's requests in three ways."""
    job_file = Path(sys.argv[1])
    job = json.loads(job_file.read_text())
    requests = {
        name: {key: encoded(value) for key, value in inputs.items()} for name, inputs in job["requests"].items()
    }
    answers = {
        "absent": is_absent("keras_bert"),
        "loaded": loaded_answers(job["model"], requests),
        "session": session_answers(job["model"], requests),
    }
    save_again(job["model"], job["resaved"])
    answers["resaved"] = loaded_answers(job["resaved"], requests)
    answers["modules"] = sorted(name for name in sys.modules if name.startswith(("keras_bert", "tests")))
    job_file.with_name("answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
