"""Every exported head answers as its model does, also in a process without this package.

Add a new head to `exported_heads.heads`.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from keras_bert.export.ops import find_unserved_operations, list_operations
from keras_bert.export.serving_files import BATCHING_FILE, WARMUP_FILE, write_warmup_requests
from keras_bert.text.vocabulary import load_vocabulary
from keras_bert.text.words import WORD_SEPARATORS
from tests.models.exported_heads import HOSTILE, Head, as_bytes, heads
from tests.tolerances import assert_close
from tests.toys import VOCABULARY

ID_NAMES = ("token_ids", "segment_ids", "padding_mask")
# How the other process loads each export: by TensorFlow 1's session, or by `tf.saved_model.load` after saving it again.
WAYS = {name: ["session"] for name, head in heads().items() if head.in_session}
WAYS["classifier"] = ["session", "resaved"]

pytestmark = pytest.mark.slow


class Request(NamedTuple):
    """A request to one signature, with arrays by name.

    Its kind is "warm-up", "ordinary", "hostile", "none" (no rows), or "row 3" for one row of the hostile one.
    """

    kind: str
    signature: str
    inputs: dict[str, np.ndarray]


class Export(NamedTuple):
    """An exported head, the requests to it, and the answers of the loaded export."""

    head: Head
    model: Any
    folder: Path
    requests: list[Request]
    answers: list[dict[str, np.ndarray]]

    def inputs(self, kind, signature):
        """Returns the inputs of the one request of a kind to a signature."""
        return self.requests[self._index(kind, signature)].inputs

    def answer(self, kind, signature):
        """Returns the answer to that request."""
        return self.answers[self._index(kind, signature)]

    def _index(self, kind, signature):
        (index,) = [i for i, request in enumerate(self.requests) if request[:2] == (kind, signature)]
        return index


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("exports")


@pytest.fixture(scope="module")
def exports(folder):
    return Exports(folder)


@pytest.fixture(params=heads())
def export(exports, request):
    return exports[request.param]


@pytest.fixture(scope="module")
def process(exports, folder):
    """The answers of another process, without this package, through TensorFlow 1's session as in TensorFlow Serving."""
    jobs = []
    for name, ways in WAYS.items():
        requests = [request[1:] for request in exports[name].requests if not request.kind.startswith("row")]
        write_warmup_requests(folder / name, requests)
        paths = {"model": exports[name].folder, "requests": folder / name / WARMUP_FILE, "answers": folder / name}
        jobs.append({"ways": ways, **{key: str(path) for key, path in paths.items()}})
    (folder / "job.json").write_text(json.dumps(jobs))
    program = Path(__file__).with_name("serving_program.py")
    command = [sys.executable, "-I", str(program), str(folder / "job.json")]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-5000:]
    return json.loads((folder / "result.json").read_text())


class Exports(dict):
    """Exports by name of the head, each written, moved and loaded on first access."""

    def __init__(self, folder):
        super().__init__()
        self.parent = folder

    def __missing__(self, name):
        head = heads()[name]
        model, folder = head.model(), self.parent / "moved" / name / "7"
        folder.parent.mkdir(parents=True)
        model.export(self.parent / name / "1", **head.arguments).rename(folder)
        requests = [*warmup_requests(folder), *requests_to(head, model)]
        loaded, answers = tf.saved_model.load(str(folder)), []
        for _, signature, inputs in requests:
            tensors = {key: as_tensor(value) for key, value in inputs.items()}
            answers.append({key: value.numpy() for key, value in loaded.signatures[signature](**tensors).items()})
        self[name] = Export(head, model, folder, requests, answers)
        return self[name]


def as_tensor(array):
    return tf.constant(array, tf.string if array.dtype == object else array.dtype)


def requests_to(head, model):
    """Returns requests of every kind, in the forms that all signatures take."""
    requests = []
    for kind, columns in (("ordinary", head.columns), ("hostile", head.hostile)):
        texts = {name: strings(values) for name, values in columns.items()}
        requests.append(Request(kind, "serving_default", texts))
        requests.append(Request(kind, "examples", {"examples": strings(serialized_examples(columns))}))
        if head.words:
            requests.append(Request(kind, "words", {"words": texts[head.words]}))
    ids = {name: values.numpy() for name, values in head.ids(model, head.columns).items() if name in ID_NAMES}
    requests.append(Request("ordinary", "tokens", ids))
    none = [(signature, inputs, slice(0)) for kind, signature, inputs in requests if kind == "ordinary"]
    rows = [("serving_default", texts, slice(row, row + 1)) for row in range(len(HOSTILE))]
    for signature, inputs, part in none + rows:
        kind = f"row {part.start}" if part.stop else "none"
        requests.append(Request(kind, signature, {name: values[part] for name, values in inputs.items()}))
    return requests


def strings(values):
    """Returns an array of the bytes of texts, or of lists of texts."""
    return np.array(
        [[*map(as_bytes, value)] if isinstance(value, list) else as_bytes(value) for value in values], object
    )


def serialized_examples(columns):
    """Returns serialized tf.Examples with the columns as features."""
    rows = []
    for values in zip(*columns.values(), strict=True):
        lists = [tf.train.BytesList(value=np.ravel(strings([value]))) for value in values]
        features = {name: tf.train.Feature(bytes_list=each) for name, each in zip(columns, lists, strict=True)}
        rows.append(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return rows


def warmup_requests(folder):
    """Returns the requests that an export contains for its server."""
    requests = []
    for record in tf.data.TFRecordDataset(str(folder / WARMUP_FILE)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        requests.append(Request("warm-up", request.model_spec.signature_name, inputs))
    return requests


def read_answers(file):
    """Returns the answers of the other process."""
    records = tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    responses = [predict_pb2.PredictResponse.FromString(record).outputs for record in records]
    return [{name: tf.make_ndarray(value) for name, value in outputs.items()} for outputs in responses]


def signatures_of(folder):
    """Returns the signatures that are declared in an export."""
    saved_model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    definitions = saved_model.meta_graphs[0].signature_def
    return {name: definition for name, definition in definitions.items() if not name.startswith("__")}


def check_answer(answer, expected):
    """Compares the outputs of a signature, padded with "" and 0, with rows of different lengths."""
    assert answer.keys() == expected.keys()
    for name, rows in expected.items():
        array = decoded(answer[name])
        wanted = padded(rows, np.full(array.shape, "" if array.dtype == object else 0, array.dtype))
        check_output(array, wanted, name)


def check_output(array, expected, name):
    if array.dtype.kind == "f":
        assert_close(array, expected, num_terms=64, magnitude=2)  # that of the logits, but of padding, whose are -1e9
    else:
        np.testing.assert_array_equal(array, expected, err_msg=name)


def decoded(array):
    """Returns bytes as str, and anything else unchanged."""
    if array.dtype != object:
        return array
    return np.array([value.decode("utf-8", "replace") for value in array.ravel()], object).reshape(array.shape)


def padded(rows, array):
    """Writes rows of different lengths to the start of an array of padding."""
    assert len(rows) <= len(array)
    for index, row in enumerate(rows):
        if array.ndim > 1:
            padded(row, array[index])
        else:
            array[index] = row
    return array


@pytest.mark.parametrize("kind", ["ordinary", "hostile"])
def test_texts_and_examples_get_the_models_own_answers(export, kind):
    expected = export.head.answers(export.model, export.head.columns if kind == "ordinary" else export.head.hostile)
    for signature in ("serving_default", "examples"):
        check_answer(export.answer(kind, signature), expected)


def test_ids_get_the_models_own_answers(export):
    head, ids = export.head, export.inputs("ordinary", "tokens")
    without = head.answers_to_ids is None
    expected = head.answers(export.model, head.columns) if without else head.answers_to_ids(export.model, ids)
    check_answer(export.answer("ordinary", "tokens"), expected)


@pytest.mark.parametrize("name", [name for name, head in heads().items() if head.words])
@pytest.mark.parametrize("kind", ["ordinary", "hostile"])
def test_words_get_the_models_own_tags(exports, name, kind):
    export = exports[name]
    texts = [text.decode("utf-8", "replace") for text in export.inputs(kind, "words")["words"]]
    sentences = [[word for word in re.split(f"[{WORD_SEPARATORS}]", text) if word] for text in texts]
    counts = [len(words) for words in sentences]
    expected = {"words": sentences, "tags": export.model.predict_tags(sentences), "word_count": counts}
    expected["truncated"] = [False] * len(texts)
    answer = export.answer(kind, "words")
    assert answer.keys() == export.answer(kind, "serving_default").keys()
    check_answer({output: answer[output] for output in expected}, expected)


def test_outputs_have_as_many_rows_as_the_request(export):
    for request, answer in zip(export.requests, export.answers, strict=True):
        (rows,) = {len(values) for values in request.inputs.values()}
        assert {name: len(output) for name, output in answer.items()} == dict.fromkeys(answer, rows)


def test_empty_requests_get_empty_answers(export):
    signatures = signatures_of(export.folder)
    assert {request.signature for request in export.requests if request.kind == "none"} == signatures.keys()
    for signature, definition in signatures.items():
        answer, outputs = export.answer("none", signature), definition.outputs
        assert answer.keys() == outputs.keys()
        for name, output in answer.items():
            assert output.dtype == tf.as_dtype(outputs[name].dtype).as_numpy_dtype
            assert tf.TensorShape(outputs[name].tensor_shape).is_compatible_with(output.shape)


def test_empty_answers_have_the_documented_shapes(exports):
    for name, output, shape in (
        ("classifier", "probabilities", (0, 2)),
        ("pretrainer", "words", (0, 0, 3)),
        ("span_labeler", "n_best_answers", (0, 20)),
        ("multiple_choice", "probabilities", (0, 3)),
        ("token_classifier", "words", (0, 0)),
        ("token_classifier", "entity_count", (0,)),
    ):
        assert exports[name].answer("none", "serving_default")[output].shape == shape


def test_requests_that_a_server_joins_are_answered_as_they_are_alone(export):
    # A server with batching joins the rows of requests, and splits those of the outputs, which are wider then.
    joined = export.answer("hostile", "serving_default")
    for row in range(len(HOSTILE)):
        alone = {name: decoded(output) for name, output in export.answer(f"row {row}", "serving_default").items()}
        check_answer({name: output[row : row + 1] for name, output in joined.items()}, alone)


def test_batching_file_limits_the_rows_that_a_server_joins(export):
    parameters = (export.folder / BATCHING_FILE).read_text()
    assert parameters.startswith(f"max_batch_size {{ value: {export.head.joined} }}\n")
    assert "pad_variable_length_inputs" not in parameters  # it would pad ids with [CLS], and masks with 1


def test_inputs_and_outputs_are_documented(export):
    documentation = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    own = {"stars", "words"} | {f"score_{label}" for label in getattr(export.model, "labels", None) or ()}
    for signature, definition in signatures_of(export.folder).items():
        for name in {signature, *definition.inputs, *definition.outputs} - own:
            assert f"`{name}`" in documentation, (signature, name)


def test_counts_the_words_of_hostile_texts(exports):
    counts = exports["token_classifier"].answer("hostile", "serving_default")["word_count"].tolist()
    assert counts == [0, 0, 2, 2, 1, 501, 16, 4, 4, 3, 8]


def test_warmup_requests_contain_one_text_and_two_for_every_signature(export):
    requests = [request for request in export.requests if request.kind == "warm-up"]
    signatures = signatures_of(export.folder)
    assert sorted(request.signature for request in requests) == sorted([*signatures, *signatures])
    for number, request in enumerate(requests):
        specs = signatures[request.signature].inputs
        assert request.inputs.keys() == specs.keys()
        for name, value in request.inputs.items():
            assert tf.as_dtype(specs[name].dtype) == (tf.string if value.dtype == object else value.dtype)
            assert tf.TensorShape(specs[name].tensor_shape).is_compatible_with(value.shape)
            if name not in ID_NAMES:  # a long text may have several windows of ids
                assert len(value) == (1 if number < len(signatures) else 2)


def test_can_be_served(export):
    assert find_unserved_operations(export.folder) == []
    # No table, no iterator and no random state: a session must initialize only the variables.
    stateful = ("HashTable", "LookupTable", "Iterator", "Stateless")
    assert not [name for name in list_operations(export.folder) if name.startswith(stateful)]


def test_assets_hold_vocabulary_and_labels(export):
    check_assets(export.folder, export.model)


def check_assets(folder, model):
    """Checks the vocabulary and the labels inside an export."""
    labels = getattr(model, "labels", None)
    assert load_vocabulary(folder / "assets" / "vocab.txt") == VOCABULARY
    if labels:
        assert (folder / "assets" / "labels.txt").read_text("utf-8") == "\n".join(labels) + "\n"
    assert len(list((folder / "assets").iterdir())) == (2 if labels else 1)


@pytest.mark.parametrize("name", WAYS)
def test_bfloat16_halves_the_file_and_keeps_the_answers(exports, name, tmp_path):
    export = exports[name]
    folder = export.model.export(tmp_path / "1", dtype="bfloat16", **export.head.arguments)
    assert find_unserved_operations(folder) == []
    half, whole = ((f / "variables" / "variables.data-00000-of-00001").stat().st_size for f in (folder, export.folder))
    assert half < 0.55 * whole
    loaded, differences = tf.saved_model.load(folder), []
    for signature in ("serving_default", "tokens"):
        inputs = {key: tf.constant(value) for key, value in export.inputs("ordinary", signature).items()}
        answer, expected = loaded.signatures[signature](**inputs), export.answer("ordinary", signature)
        for output in {"probabilities", "scores", "start_logits", "null_score", "embedding"} & answer.keys():
            assert answer[output].dtype == tf.float32
            differences.append(np.abs(answer[output] - expected[output]).max())
    assert len(differences) == 2
    assert min(differences) > 1e-5 and max(differences) < 0.05


def test_a_process_without_this_package_answers_the_same(process, exports, folder):
    assert process["absent"] is True
    assert process["modules"] == []
    for (name, ways), methods in zip(WAYS.items(), process["methods"], strict=True):
        pairs = zip(exports[name].requests, exports[name].answers, strict=True)
        requests, expected = zip(*(pair for pair in pairs if not pair[0].kind.startswith("row")), strict=True)
        for way in ways:
            for request, answer, wanted in zip(requests, read_answers(folder / name / way), expected, strict=True):
                assert answer.keys() == wanted.keys(), (name, way, request.kind)
                for output, array in answer.items():
                    check_output(array, wanted[output], f"{name} {output}")
        assert methods == dict.fromkeys(signatures_of(exports[name].folder), "tensorflow/serving/predict")
    check_assets(folder / "classifier" / "copy", exports["classifier"].model)
