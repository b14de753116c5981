"""Answers requests with exported models as a server would, without this package; `test_exports.py` runs it.

    python -I serving_program.py JOB

JOB is a JSON list of models, each with `model`, the folder of a SavedModel; `requests`, a file in the format of the
server's warm-up; `answers`, a folder; and `ways`, how to load the model: by the TF1 "session", and perhaps "resaved"
and loaded again. Each way's `PredictResponse`s are written to a file of its name in the folder, and the resaved model
to `copy`. `result.json` next to JOB gets `methods`, the method names of the signatures of every model; `modules`, the
imported modules of this package; and `absent`, whether the package cannot be imported.
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


def read_requests(file):
    """Returns pairs of a signature's name and a dict of arrays."""
    logs = map(prediction_log_pb2.PredictionLog.FromString, tf.data.TFRecordDataset(file).as_numpy_iterator())
    requests = [log.predict_log.request for log in logs]
    return [
        (request.model_spec.signature_name, {name: tf.make_ndarray(value) for name, value in request.inputs.items()})
        for request in requests
    ]


def dtype_of(array):
    """Returns the type of an array in TensorFlow, also of an empty one of strings."""
    return tf.string if array.dtype == object else array.dtype


def write_answers(file, answers):
    """Writes dicts of arrays."""
    with tf.io.TFRecordWriter(str(file)) as writer:
        for answer in answers:
            response = predict_pb2.PredictResponse()
            for name, value in answer.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value, dtype_of(value)))
            writer.write(response.SerializeToString())


def loaded_answers(folder, requests):
    """Yields the answers of a model loaded by `tf.saved_model.load`."""
    model = tf.saved_model.load(folder)
    for name, inputs in requests:
        tensors = {key: tf.constant(values, dtype_of(values)) for key, values in inputs.items()}
        yield {key: value.numpy() for key, value in model.signatures[name](**tensors).items()}


def session_answers(folder, requests, methods):
    """Yields the answers of TensorFlow 1's loader and session, on which TensorFlow Serving is built.

    Fills `methods` with the method name of every signature asked.
    """
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta_graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], folder)
        for name, inputs in requests:
            signature = meta_graph.signature_def[name]
            methods[name] = signature.method_name
            feeds = {signature.inputs[key].name: values for key, values in inputs.items()}
            yield session.run({key: info.name for key, info in signature.outputs.items()}, feeds)


def answer(model, requests, answers, ways):
    """Answers requests with a model in several ways; returns the method names of its signatures."""
    requests, methods = read_requests(requests), {}
    write_answers(f"{answers}/session", session_answers(model, requests, methods))
    if "resaved" in ways:
        copy, loaded = Path(answers, "copy"), tf.saved_model.load(model)
        tf.saved_model.save(loaded, f"{copy}.before", signatures=loaded.signatures)
        Path(f"{copy}.before").rename(copy)
        write_answers(f"{answers}/resaved", loaded_answers(str(copy), requests))
    return methods


def main():
    """Answers the requests of every model in the job."""
    job_file = Path(sys.argv[1])
    result = {"methods": [answer(**model) for model in json.loads(job_file.read_text())], "absent": False}
    try:
        import keras_bert  # noqa: F401
    except ModuleNotFoundError:
        result["absent"] = True
    result["modules"] = sorted(name for name in sys.modules if name.startswith(("keras_bert", "tests")))
    job_file.with_name("result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
