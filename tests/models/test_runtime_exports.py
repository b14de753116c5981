"""Every head, written for every runtime, answers as its model does; `exported_heads.heads` has the heads."""

import re

import numpy as np
import pytest

import keras_bert
from keras_bert.export import runtime_folder
from keras_bert.export.export_options import RUNTIME_FORMATS
from keras_bert.export.runtime_folder import load_model
from keras_bert.models.serving import calibration_ids
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
    "embedder": {"embedding"},
}


def run_readme(folder, monkeypatch):
    """Runs the code of a folder's README, and returns its ids and outputs."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.DOTALL)
    assert len(code.splitlines()) < 25
    names = {}
    monkeypatch.chdir(folder)
    exec(code, names)
    return names["ids"], names["outputs"]


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_a_head_answers_as_its_model(name, tmp_path, monkeypatch, capsys):
    skip_without(*RUNTIME_FORMATS)
    head = HEADS[name]
    model, arguments = head.model(), {key: value for key, value in head.arguments.items() if key in ("top", "pairs")}
    ids = {key: np.asarray(values) for key, values in head.ids(model, head.columns).items() if key in IDS}
    expected = (head.answers_to_ids or head.answers)(model, ids if head.answers_to_ids else head.columns)
    for runtime_format in RUNTIME_FORMATS:
        folder = model.export(tmp_path / runtime_format, format=runtime_format, **arguments)
        compute = load_model(folder, runtime_format)
        found = compute(ids)
        assert found.keys() == OUTPUTS[name]
        for output, values in found.items():
            for row, answer in zip(values, expected[output], strict=True):  # texts may have different numbers of masks
                answer = np.asarray(answer)
                if answer.size:
                    assert_close(row[tuple(map(slice, answer.shape))], answer, limit=GOLDEN_LIMIT)
        readme_ids, outputs = run_readme(folder, monkeypatch)
        assert outputs.keys() == found.keys()
        for output, values in compute(readme_ids).items():
            np.testing.assert_array_equal(outputs[output], values)


@pytest.mark.slow
def test_the_readme_of_a_classifier_has_our_ids(tmp_path, monkeypatch, capsys):
    skip_without("onnx")
    classifier = toy_classifier()
    folder = classifier.export(tmp_path / "1", format="onnx")
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
    ("encoder", "arguments", "formats"),
    [
        ({"hidden_act": "gelu"}, {}, RUNTIME_FORMATS),
        ({"hidden_act": "relu", "attention_direction": "left_to_right"}, {}, RUNTIME_FORMATS),
        # The dtype is changed and adapters are merged before a runtime is involved.
        ({"dtype": "mixed_bfloat16"}, {"lora_rank": 2}, ("onnx",)),
    ],
    ids=["gelu", "left_to_right", "bfloat16_lora"],
)
def test_every_kind_of_encoder(encoder, arguments, formats, tmp_path):
    skip_without(*formats)
    classifier = toy_classifier(encoder_arguments=encoder, **arguments)
    for weight in classifier.trainable_weights:
        if weight.name == "lora_kernel_b":
            weight.assign(np.full(weight.shape, 0.1))
    inputs = random_inputs()
    expected = classifier.predict_probabilities(inputs)
    limit = 0.01 if "dtype" in encoder else GOLDEN_LIMIT  # the written model is float32
    for runtime_format in formats:
        folder = classifier.export(tmp_path / runtime_format, format=runtime_format)
        assert_close(load_model(folder, runtime_format)(inputs)["probabilities"], expected, limit=limit)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["two_directions", "left_to_right_bilstm"])
def test_encoders_of_the_paper(kind, tmp_path):
    skip_without(*RUNTIME_FORMATS)
    classifier = keras_bert.BertClassifier(make_encoder(kind), 3, toy_preprocessor(), seed=1)
    inputs = random_inputs()
    expected = classifier.predict_probabilities(inputs)
    for runtime_format in RUNTIME_FORMATS:
        folder = tmp_path / runtime_format
        if (kind, runtime_format) == ("left_to_right_bilstm", "litert"):
            with pytest.raises(ValueError, match=r"LiteRT cannot represent this model: .*TensorList"):
                classifier.export(folder, format=runtime_format)
            assert not folder.exists()
            continue
        classifier.export(folder, format=runtime_format)
        assert_close(load_model(folder, runtime_format)(inputs)["probabilities"], expected, limit=GOLDEN_LIMIT)


@pytest.mark.slow
def test_layer_norms_of_onnx_files_have_a_vector_for_beta(tmp_path):
    skip_without("onnx")
    import onnx

    # ONNX Runtime 1.23 refuses others, for example what TensorFlow adds to beta, and only if there are several rows.
    graph = onnx.load(toy_classifier().export(tmp_path / "onnx", format="onnx") / "model.onnx").graph
    norms = [node for node in graph.node if node.op_type == "LayerNormalization"]
    vectors = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 1}
    assert len(norms) > 1
    assert [node.name for node in norms if not {*node.input[1:]} <= vectors] == []


@pytest.mark.parametrize("name", HEADS)
def test_calibration_takes_the_texts_of_every_head(name):
    columns = HEADS[name].columns
    if name == "token_classifier":  # `predict` takes words
        columns = {"words": [text.split() for text in columns["text"]]}
    model = HEADS[name].model()
    ids = calibration_ids(model, columns)
    assert len(ids) >= 5
    for example in ids:
        assert example.keys() == set(IDS)
        assert {values.shape for values in example.values()} == {example["token_ids"].shape}
        assert example["token_ids"].ndim == model.ids_ranks[0]
        if model.ids_ranks[0] == 2:  # one at a time, so without padding
            assert example["padding_mask"].all()


def test_refuses_unknown_options_and_missing_packages(tmp_path, monkeypatch):
    classifier = toy_classifier()
    with pytest.raises(TypeError, match="unexpected keyword argument 'quantise'"):
        classifier.export(tmp_path / "1", format="onnx", quantise="int8")
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
