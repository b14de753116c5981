"""Answers requests with exported models as a server would, without this package; `test_exports.py` runs it.

    python -I serving_program.py JOB

JOB is a JSON file, a list of models, each with `model`, the folder of a SavedModel; `requests`, files in the format of
the server's warm-up; `answers`, a folder; and `ways`, how to load the model: by the TF1 "session", or "resaved" and
loaded again. For every way it writes a file of that name to the folder, with a `PredictResponse` per request, and the
resaved model as `copy`. It writes `result.json` next to JOB: `methods`, the method names of the signatures of every
model; `modules`, the imported modules of this package; and `absent`, whether the package cannot be imported.
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
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2  # noqa: E402


def is_absent(name):
    """Whether a module cannot be imported."""
    try:
        __import__(name)
    except ModuleNotFoundError:
        return True
    return False


def read_requests(files):
    """A list of pairs of a signature's name and a dict of arrays."""
    logs = map(prediction_log_pb2.PredictionLog.FromString, tf.data.TFRecordDataset(files).as_numpy_iterator())
    requests = [log.predict_log.request for log in logs]
    return [
        (request.model_spec.signature_name, {name: tf.make_ndarray(value) for name, value in request.inputs.items()})
        for request in requests
    ]


def dtype_of(array):
    """The data type of an array in TensorFlow, of an empty one of strings, too."""
    return tf.string if array.dtype == object else array.dtype


def write_answers(file, answers):
    """Writes an iterator of dicts of arrays."""
    with tf.io.TFRecordWriter(str(file)) as writer:
        for answer in answers:
            response = predict_pb2.PredictResponse()
            for name, value in answer.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value, dtype_of(value)))
            writer.write(response.SerializeToString())


def loaded_answers(model, requests):
    """The answers of a model that `tf.saved_model.load` gave."""
    for name, inputs in requests:
        tensors = {key: tf.constant(values, dtype_of(values)) for key, values in inputs.items()}
        yield {key: value.numpy() for key, value in model.signatures[name](**tensors).items()}


def session_answers(folder, requests, methods):
    """The answers of the loader and the session of TensorFlow 1, which TensorFlow Serving is made of; fills `methods`
    with the method name of every signature asked."""
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta_graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], folder)
        for name, inputs in requests:
            signature = meta_graph.signature_def[name]
            methods[name] = signature.method_name
            feeds = {signature.inputs[key].name: values for key, values in inputs.items()}
            yield session.run({key: info.name for key, info in signature.outputs.items()}, feeds)


def save_again(model, copy):
    """Saves a loaded model elsewhere, and moves the copy."""
    tf.saved_model.save(model, f"{copy}.before", signatures=model.signatures)
    Path(f"{copy}.before").rename(copy)


def answer(model, requests, answers, ways):
    """Answers requests with a model in several ways; returns the method names of its signatures."""
    answers, requests, methods = Path(answers), read_requests(requests), {}
    for way in ways:
        if way == "session":
            found = session_answers(model, requests, methods)
        else:
            save_again(tf.saved_model.load(model), answers / "copy")
            found = loaded_answers(tf.saved_model.load(str(answers / "copy")), requests)
        write_answers(answers / way, found)
    return methods


def main():
    """Answers the requests of every model in the job."""
    job_file = Path(sys.argv[1])
    result = {
        "absent": is_absent("keras_bert"),
        "methods": [answer(**model) for model in json.loads(job_file.read_text())],
    }
    result["modules"] = sorted(name for name in sys.modules if name.startswith(("keras_bert", "tests")))
    job_file.with_name("result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
