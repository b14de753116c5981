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
from tests.models.exported_heads import HOSTILE, WAYS, Head, as_bytes, heads
from tests.toys import VOCABULARY

ID_NAMES = ("token_ids", "segment_ids", "padding_mask")
SIGNATURES = ("serving_default", "examples")

pytestmark = pytest.mark.slow


class Request(NamedTuple):
    """A request to one signature.

    Attributes:
        kind: str, what it is for: "warm-up", "ordinary", "hostile", "none", or "row 3" for one row of the hostile one.
        signature: str.
        inputs: dict of name to array.
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

    @property
    def warmup(self):
        """The requests that the export contains for its server."""
        return [request for request in self.requests if request.kind == "warm-up"]

    def asked(self, kind, signature):
        """Returns the inputs of the one request of a kind to a signature."""
        return self.requests[self._index(kind, signature)].inputs

    def answered(self, kind, signature):
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
    """Exports by name of the head, each written, moved and loaded when it is first used."""
    return Exports(folder)


@pytest.fixture(params=heads())
def export(exports, request):
    return exports[request.param]


@pytest.fixture(scope="module")
def process(exports, folder):
    """The answers of another process, without this package, through TensorFlow 1's session as in TensorFlow Serving."""
    names = [name for name, head in heads().items() if head.in_session]
    jobs = []
    for name in names:
        requests = [request[1:] for request in exports[name].requests if not request.kind.startswith("row")]
        write_warmup_requests(folder / name, requests)
        ways = WAYS if name == "classifier" else WAYS[:1]
        jobs.append(
            {
                "model": str(exports[name].folder),
                "requests": [str(folder / name / WARMUP_FILE)],
                "answers": str(folder / name),
                "ways": ways,
            }
        )
    (folder / "job.json").write_text(json.dumps(jobs))
    program = Path(__file__).with_name("serving_program.py")
    command = [sys.executable, "-I", str(program), str(folder / "job.json")]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-5000:]
    return json.loads((folder / "result.json").read_text())


class Exports(dict):
    """Exports by name, created on first access."""

    def __init__(self, folder):
        super().__init__()
        self.parent = folder

    def __missing__(self, name):
        head = heads()[name]
        model, folder = head.model(), self.parent / "moved" / name / "7"
        folder.parent.mkdir(parents=True)
        model.export(self.parent / name / "1", **head.arguments).rename(folder)
        requests = [*warmup_of(folder), *requests_to(head, model)]
        loaded = tf.saved_model.load(str(folder))
        answers = [
            {name: value.numpy() for name, value in loaded.signatures[request.signature](**tensors).items()}
            for request in requests
            for tensors in [{name: as_tensor(value) for name, value in request.inputs.items()}]
        ]
        self[name] = Export(head, model, folder, requests, answers)
        return self[name]


def as_tensor(array):
    return tf.constant(array, tf.string if array.dtype == object else array.dtype)


def requests_to(head, model):
    """Every kind of request, in the forms that all signatures take."""
    asked = []
    for kind, columns in (("ordinary", head.columns), ("hostile", head.hostile)):
        asked.append(Request(kind, "serving_default", {name: strings(values) for name, values in columns.items()}))
        asked.append(Request(kind, "examples", {"examples": strings(examples_of(columns))}))
        if head.words:
            asked.append(Request(kind, "words", {"words": strings(columns[head.words])}))
    ids = {name: values.numpy() for name, values in head.ids(model, head.columns).items() if name in ID_NAMES}
    asked.append(Request("ordinary", "tokens", ids))
    hostile = {name: strings(values) for name, values in head.hostile.items()}
    rows = [
        Request(f"row {row}", "serving_default", {name: values[row : row + 1] for name, values in hostile.items()})
        for row in range(len(HOSTILE))
    ]
    none = [
        Request("none", request.signature, {name: values[:0] for name, values in request.inputs.items()})
        for request in asked
        if request.kind == "ordinary"
    ]
    return asked + rows + none


def strings(values):
    """An array of bytes of texts, or of lists of them."""
    return np.array(
        [[as_bytes(text) for text in value] if isinstance(value, list) else as_bytes(value) for value in values], object
    )


def examples_of(columns):
    """Serialized tf.Examples with the columns as features."""
    rows = []
    for values in zip(*columns.values(), strict=True):
        features = {
            name: tf.train.Feature(bytes_list=tf.train.BytesList(value=np.ravel(strings([value]))))
            for name, value in zip(columns, values, strict=True)
        }
        rows.append(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return rows


def warmup_of(folder):
    """The requests that an export holds for its server."""
    requests = []
    for record in tf.data.TFRecordDataset(str(folder / WARMUP_FILE)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        requests.append(Request("warm-up", request.model_spec.signature_name, inputs))
    return requests


def read_answers(file):
    """The answers of the other process."""
    return [*map(arrays_of, tf.data.TFRecordDataset(str(file)).as_numpy_iterator())]


def arrays_of(record):
    """The outputs in a serialized response."""
    outputs = predict_pb2.PredictResponse.FromString(record).outputs
    return {name: tf.make_ndarray(value) for name, value in outputs.items()}


def signatures_of(folder):
    """The signatures that an export says it has."""
    saved_model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    return saved_model.meta_graphs[0].signature_def


def check_answer(answer, expected):
    """Compares the outputs of a signature with rows of differing length, which it fills up with "" and 0."""
    tolerance = 1e-5 if any("logits" in name or name == "null_score" for name in expected) else 1e-6
    assert answer.keys() == expected.keys()
    for name, rows in expected.items():
        array = decoded(answer[name])
        wanted = filled_up(rows, np.full(array.shape, "" if array.dtype == object else 0, array.dtype))
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, wanted, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(array, wanted, err_msg=name)


def decoded(array):
    """Strings as str, anything else as it is."""
    if array.dtype != object:
        return array
    return np.array([value.decode("utf-8", "replace") for value in array.ravel()], object).reshape(array.shape)


def filled_up(rows, array):
    """Rows of differing length in an array of blanks."""
    assert len(rows) <= len(array)
    for place, row in enumerate(rows):
        if array.ndim > 1:
            filled_up(row, array[place])
        else:
            array[place] = row
    return array


@pytest.mark.parametrize("kind", ["ordinary", "hostile"])
def test_texts_and_examples_get_the_models_own_answers(export, kind):
    expected = export.head.answers(export.model, export.head.columns if kind == "ordinary" else export.head.hostile)
    for signature in SIGNATURES:
        check_answer(export.answered(kind, signature), expected)


def test_ids_get_the_models_own_answers(export):
    head, ids = export.head, export.asked("ordinary", "tokens")
    to_columns = head.answers_to_ids is None
    expected = head.answers(export.model, head.columns) if to_columns else head.answers_to_ids(export.model, ids)
    check_answer(export.answered("ordinary", "tokens"), expected)


@pytest.mark.parametrize("name", [name for name, head in heads().items() if head.words])
@pytest.mark.parametrize("kind", ["ordinary", "hostile"])
def test_words_get_the_models_own_tags(exports, name, kind):
    export = exports[name]
    texts = [text.decode("utf-8", "replace") for text in export.asked(kind, "words")["words"]]
    sentences = [[word for word in re.split(f"[{WORD_SEPARATORS}]", text) if word] for text in texts]
    counts = [len(words) for words in sentences]
    expected = {"words": sentences, "tags": export.model.predict_tags(sentences), "word_count": counts}
    answer = export.answered(kind, "words")
    assert answer.keys() == export.answered(kind, "serving_default").keys()
    check_answer({output: answer[output] for output in expected}, expected)


def test_every_output_has_a_row_for_each_of_the_request(export):
    for request, answer in zip(export.requests, export.answers, strict=True):
        (rows,) = {len(values) for values in request.inputs.values()}
        assert {name: len(output) for name, output in answer.items()} == dict.fromkeys(answer, rows)


def test_empty_requests_get_empty_answers(export):
    signatures = signatures_of(export.folder)
    asked = [request for request in export.requests if request.kind == "none"]
    assert {request.signature for request in asked} == {name for name in signatures if not name.startswith("__")}
    for request in asked:
        answer, outputs = export.answered("none", request.signature), signatures[request.signature].outputs
        assert answer.keys() == outputs.keys()
        for name, output in answer.items():
            assert output.dtype == tf.as_dtype(outputs[name].dtype).as_numpy_dtype
            assert tf.TensorShape(outputs[name].tensor_shape).is_compatible_with(output.shape)


@pytest.mark.parametrize(
    ("name", "output", "shape"),
    [
        ("classifier", "probabilities", (0, 2)),
        ("pretrainer", "words", (0, 0, 3)),
        ("span_labeler", "n_best_answers", (0, 20)),
        ("multiple_choice", "probabilities", (0, 3)),
        ("token_classifier", "words", (0, 0)),
        ("token_classifier", "entity_count", (0,)),
    ],
)
def test_shapes_of_empty_answers(exports, name, output, shape):
    assert exports[name].answered("none", "serving_default")[output].shape == shape


def test_requests_that_a_server_joins_are_answered_as_they_are_alone(export):
    # A server with batching joins the rows of requests, and parts those of the outputs, which are wider then.
    joined = export.answered("hostile", "serving_default")
    for row in range(len(HOSTILE)):
        alone = export.answered(f"row {row}", "serving_default")
        check_answer(
            {name: output[row : row + 1] for name, output in joined.items()},
            {name: decoded(output) for name, output in alone.items()},
        )


def test_a_server_is_told_how_many_rows_to_join(export):
    parameters = (export.folder / BATCHING_FILE).read_text()
    assert parameters.startswith(f"max_batch_size {{ value: {export.head.joined} }}\n")
    assert "pad_variable_length_inputs" not in parameters  # it would pad ids with [CLS], and masks with 1


def test_every_input_and_output_is_in_the_documentation(export):
    documentation = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    own = {"stars", "words"} | {f"score_{label}" for label in getattr(export.model, "labels", ())}
    for signature, definition in signatures_of(export.folder).items():
        if not signature.startswith("__"):
            for name in {signature, *definition.inputs, *definition.outputs} - own:
                assert f"`{name}`" in documentation, (signature, name)


def test_words_of_hostile_texts(exports):
    counts = exports["token_classifier"].answered("hostile", "serving_default")["word_count"].tolist()
    assert counts == [0, 0, 2, 2, 1, 501, 16, 4, 4, 3, 8]


def test_warmup_requests_ask_every_signature_for_one_text_and_for_two(export):
    requests, signatures = export.warmup, signatures_of(export.folder)
    names = [name for name in signatures if not name.startswith("__")]
    assert sorted(request.signature for request in requests) == sorted(names * 2)
    for number, request in enumerate(requests):
        specs = signatures[request.signature].inputs
        assert request.inputs.keys() == specs.keys()
        for name, value in request.inputs.items():
            assert tf.as_dtype(specs[name].dtype) == (tf.string if value.dtype == object else value.dtype)
            assert tf.TensorShape(specs[name].tensor_shape).is_compatible_with(value.shape)
            if name not in ID_NAMES:  # a long text may have several windows of ids
                assert len(value) == (1 if number < len(names) else 2)


def test_it_can_be_served(export):
    operations = list_operations(export.folder)
    assert find_unserved_operations(export.folder) == []
    # No table, no iterator and no random state: what a session must initialize is the variables alone.
    assert not [name for name in operations if name.startswith(("HashTable", "LookupTable", "Iterator", "Stateless"))]


def test_assets(export):
    check_assets(export.folder, export.model)


def check_assets(folder, model):
    """Checks the vocabulary and the labels inside an export."""
    labels = getattr(model, "labels", None)
    assert load_vocabulary(folder / "assets" / "vocab.txt") == VOCABULARY
    if labels:
        assert (folder / "assets" / "labels.txt").read_text("utf-8") == "\n".join(labels) + "\n"
    assert len(list((folder / "assets").iterdir())) == (2 if labels else 1)


@pytest.mark.parametrize("name", [name for name, head in heads().items() if head.in_session])
def test_bfloat16_halves_the_file_and_keeps_the_answers(exports, name, tmp_path):
    export = exports[name]
    folder = export.model.export(tmp_path / "1", dtype="bfloat16", **export.head.arguments)
    assert find_unserved_operations(folder) == []
    assert variables_size(folder) < 0.55 * variables_size(export.folder)
    loaded, differences = tf.saved_model.load(folder), []
    for signature in ("serving_default", "tokens"):
        inputs = {key: tf.constant(value) for key, value in export.asked("ordinary", signature).items()}
        answer, expected = loaded.signatures[signature](**inputs), export.answered("ordinary", signature)
        for output in {"probabilities", "scores", "start_logits", "null_score", "embedding"} & answer.keys():
            assert answer[output].dtype == tf.float32
            differences.append(np.abs(answer[output] - expected[output]).max())
    assert len(differences) == 2
    assert min(differences) > 1e-5 and max(differences) < 0.05


def variables_size(folder):
    """The bytes of all weights."""
    return (folder / "variables" / "variables.data-00000-of-00001").stat().st_size


def test_a_process_without_this_package_answers_the_same(process, exports, folder):
    assert process["absent"] is True
    assert process["modules"] == []
    names = [name for name, head in heads().items() if head.in_session]
    for name, methods in zip(names, process["methods"], strict=True):
        pairs = zip(exports[name].requests, exports[name].answers, strict=True)
        requests, expected = zip(*(pair for pair in pairs if not pair[0].kind.startswith("row")), strict=True)
        for way in WAYS if name == "classifier" else WAYS[:1]:
            for request, answer, wanted in zip(requests, read_answers(folder / name / way), expected, strict=True):
                assert answer.keys() == wanted.keys(), (name, way, request.kind)
                for output, array in answer.items():
                    if array.dtype.kind == "f":
                        np.testing.assert_allclose(array, wanted[output], atol=1e-5, err_msg=f"{name} {output}")
                    else:
                        np.testing.assert_array_equal(array, wanted[output], err_msg=f"{name} {output}")
        signatures = {signature for signature in signatures_of(exports[name].folder) if not signature.startswith("__")}
        assert methods == dict.fromkeys(signatures, "tensorflow/serving/predict")
    check_assets(folder / "classifier" / "copy", exports["classifier"].model)
