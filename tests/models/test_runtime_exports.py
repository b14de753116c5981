"""Every head, written for every runtime, answers as its model does; `exported_heads.heads` has the heads."""

import re

import numpy as np
import pytest

import keras_bert
from keras_bert.export import runtime_folder
from keras_bert.export.runtime_folder import RUNTIME_FORMATS
from tests.export.test_runtime_folder import skip_without
from tests.models.composed import make_encoder, random_inputs
from tests.models.exported_heads import TEXTS, heads
from tests.tolerances import GOLDEN_LIMIT, assert_close
from tests.toys import VOCABULARY, toy_classifier, toy_preprocessor

IDS = ("token_ids", "segment_ids", "padding_mask")
HEADS = {name: head for name, head in heads().items() if name != "parts_of_speech"}
OUTPUTS = {
    "classifier": {"probabilities"},
    "pairs": {"probabilities"},
    "regression": {"values"},
    "pretrainer": {"word_ids", "probabilities"},
    "span_labeler": {"start_logits", "end_logits"},
    "multiple_choice": {"probabilities"},
    "token_classifier": {"probabilities"},
    "features": {"embedding"},
}


@pytest.fixture(params=RUNTIME_FORMATS)
def runtime_format(request):
    skip_without(request.param)
    return request.param


def run_readme(folder, monkeypatch):
    """Runs the code of a folder's README, and returns its ids and outputs."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.DOTALL)
    assert len(code.splitlines()) < 25
    names = {}
    monkeypatch.chdir(folder)
    exec(code, names)
    return names["ids"], names["outputs"]


def run(folder, runtime_format, ids):
    """Runs the model of a folder on ids."""
    return runtime_folder._RUNTIMES[runtime_format].load_model(folder)(ids)


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_a_head_answers_as_its_model(name, runtime_format, tmp_path, monkeypatch, capsys):
    head = HEADS[name]
    model, arguments = head.model(), {key: value for key, value in head.arguments.items() if key in ("top", "pairs")}
    folder = model.export(tmp_path / "1", format=runtime_format, **arguments)
    ids = {key: np.asarray(values) for key, values in head.ids(model, head.columns).items() if key in IDS}
    found = run(folder, runtime_format, ids)
    assert found.keys() == OUTPUTS[name]
    expected = (head.answers_to_ids or head.answers)(model, ids if head.answers_to_ids else head.columns)
    for output, values in found.items():
        for row, answer in zip(values, expected[output], strict=True):  # texts may have different numbers of masks
            answer = np.asarray(answer)
            if answer.size:
                assert_close(row[tuple(map(slice, answer.shape))], answer, limit=GOLDEN_LIMIT)
    readme_ids, outputs = run_readme(folder, monkeypatch)
    assert outputs.keys() == found.keys()
    for output, values in run(folder, runtime_format, readme_ids).items():
        np.testing.assert_array_equal(outputs[output], values)


@pytest.mark.slow
def test_the_readme_of_a_classifier_has_our_ids(runtime_format, tmp_path, monkeypatch, capsys):
    classifier = toy_classifier()
    folder = classifier.export(tmp_path / "1", format=runtime_format)
    names = {"README.md", "labels.txt", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}
    assert {path.name for path in folder.iterdir() if not path.name.startswith("model.")} == names
    assert (folder / "vocab.txt").read_text() == "\n".join(VOCABULARY) + "\n"
    readme = folder / "README.md"
    readme.write_text(re.sub(r"encode_batch\(.*\)", f"encode_batch({[*TEXTS, '[SEP] [CLS]']})", readme.read_text()))
    found, outputs = run_readme(folder, monkeypatch)
    ids = toy_preprocessor()([*TEXTS, "[SEP] [CLS]"])
    for key in IDS:
        np.testing.assert_array_equal(found[key], ids[key])
    assert_close(outputs["probabilities"], classifier.predict_probabilities(ids), limit=GOLDEN_LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoder", "arguments"),
    [
        ({"hidden_act": "gelu"}, {}),
        ({"hidden_act": "relu", "attention_direction": "left_to_right"}, {}),
        ({"dtype": "mixed_bfloat16"}, {}),
        ({}, {"lora_rank": 2}),
    ],
    ids=["gelu", "left_to_right", "bfloat16", "lora"],
)
def test_every_kind_of_encoder(encoder, arguments, runtime_format, tmp_path):
    classifier = toy_classifier(encoder_arguments=encoder, **arguments)
    for weight in classifier.trainable_weights:
        if weight.name == "lora_kernel_b":
            weight.assign(np.full(weight.shape, 0.1))
    folder = classifier.export(tmp_path / "1", format=runtime_format)
    inputs = random_inputs()
    found = run(folder, runtime_format, inputs)["probabilities"]
    limit = 0.01 if "dtype" in encoder else GOLDEN_LIMIT  # the written model is float32
    assert_close(found, classifier.predict_probabilities(inputs), limit=limit)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["two_directions", "left_to_right_bilstm"])
def test_encoders_of_the_paper(kind, runtime_format, tmp_path):
    classifier = keras_bert.BertClassifier(make_encoder(kind), 3, toy_preprocessor(), seed=1)
    if (kind, runtime_format) == ("left_to_right_bilstm", "litert"):
        with pytest.raises(ValueError, match=r"LiteRT cannot represent this model: .*TensorList"):
            classifier.export(tmp_path / "1", format=runtime_format)
        assert list(tmp_path.iterdir()) == []
        return
    folder = classifier.export(tmp_path / "1", format=runtime_format)
    inputs = random_inputs()
    found = run(folder, runtime_format, inputs)["probabilities"]
    assert_close(found, classifier.predict_probabilities(inputs), limit=GOLDEN_LIMIT)


def test_refuses_an_unknown_format_and_another_dtype(tmp_path, monkeypatch):
    classifier = toy_classifier()
    with pytest.raises(ValueError, match=r"unknown format 'tflite'; allowed are \('saved_model', 'onnx', 'openvino', "):
        classifier.export(tmp_path / "1", format="tflite")
    with pytest.raises(ValueError, match="format='onnx' is written in float32; got dtype='bfloat16'"):
        classifier.export(tmp_path / "1", dtype="bfloat16", format="onnx")
    monkeypatch.setattr(runtime_folder.onnx_model, "PACKAGES", ("no_such_package",))
    with pytest.raises(ImportError, match=r"needs no_such_package\. .*\[onnx\]"):
        classifier.export(tmp_path / "1", format="onnx")
    assert list(tmp_path.iterdir()) == []


def test_refuses_a_vocabulary_that_tokenizer_json_cannot_hold(tmp_path):
    skip_without("onnx")
    vocabulary = [*VOCABULARY[:-1], VOCABULARY[-2]]
    preprocessor = keras_bert.BertPreprocessor(keras_bert.BertTokenizer(vocabulary, lower_case=True), 16)
    with pytest.raises(ValueError, match="the vocabulary has an entry twice"):
        toy_classifier(preprocessor=preprocessor).export(tmp_path / "1", format="onnx")
