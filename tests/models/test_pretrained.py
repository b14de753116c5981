"""Checkpoints of heads on encoders of all kinds."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.models.paper_encoders.bilstm_encoder import BiLstmEncoder
from keras_bert.models.paper_encoders.encoder_loading import read_encoder
from keras_bert.models.paper_encoders.two_direction_encoder import TwoDirectionEncoder
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.models.span_labeler import BertSpanLabeler
from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
from tests.models.composed import BILSTMS, COMPOSED, FEATURES, KINDS, make_encoder
from tests.toys import toy_classifier, toy_encoder, toy_preprocessor, toy_reviews

LENGTHS = {"sequence_length": 16}


def make_head(name, kind):
    if name == "classifier":
        return BertClassifier(make_encoder(kind), ["no", "yes"], toy_preprocessor(), seed=1)
    if name == "choice":
        return BertMultipleChoice(make_encoder(kind), toy_preprocessor(), seed=1)
    preprocessor = BertQuestionPreprocessor(toy_preprocessor().tokenizer, 16, 8, 4)
    return BertSpanLabeler(make_encoder(kind, with_pooler=False), preprocessor, seed=1)


@pytest.mark.parametrize(
    ("head", "kind"),
    [*(("classifier", kind) for kind in KINDS), ("choice", FEATURES), ("spans", "two_directions")],
)
def test_heads_are_saved_and_loaded_with_their_encoder(tmp_path, head, kind):
    model = make_head(head, kind)
    folder = model.save_checkpoint(tmp_path / "model", hidden_dropout_prob=0.25)
    lengths = {"stride": 8, "max_query_length": 4} if head == "spans" else {}
    loaded = type(model).from_checkpoint(folder, **LENGTHS, **lengths)
    assert type(loaded.encoder) is type(model.encoder)
    assert loaded.encoder.bert_encoders()[0].hidden_dropout_prob == 0.25
    assert not loaded.checkpoint_report.random and not loaded.checkpoint_report.unused
    for path, variable in loaded.variables_by_path().items():
        np.testing.assert_array_equal(variable, model.variables_by_path()[path])
    ids = toy_preprocessor()(toy_reviews(4)[0])
    if head == "choice":
        ids = {name: np.asarray(values)[:, None] for name, values in ids.items()}
    found, expected = loaded(ids), model(ids)
    for name in expected if isinstance(expected, dict) else [slice(None)]:
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize("kind", COMPOSED)
def test_configuration_names_the_encoder_and_other_readers_refuse_it(tmp_path, kind):
    folder = make_head("classifier", kind).save_checkpoint(tmp_path / "model", dtype="bfloat16")
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "keras_bert"
    assert config["encoder_family"] == ("bilstm" if kind in BILSTMS else kind)
    assert ("attention_direction" in config) == (kind == "left_to_right_bilstm")
    assert config.get("features") == ("weighted_sum_all" if kind == FEATURES else None)
    for cls in (BertEncoder, BertPretrainer):
        with pytest.raises(ValueError, match=f"has the encoder '{kind}', which is not a BertEncoder"):
            cls.from_checkpoint(folder)
    tensors = load_file(folder / "model.safetensors")
    prefixes = {
        "left_to_right_bilstm": {"left_to_right", "bilstm"},
        FEATURES: {"bidirectional", "layer_pooling", "bilstm"},
        "two_directions": {"left_to_right", "right_to_left"},
    }[kind]
    assert {name.split(".")[0] for name in tensors} == prefixes | {"classifier"}
    missing = min(name for name in tensors if name.startswith(("bilstm.", "right_to_left.")))
    del tensors[missing]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ValueError, match=missing):
        BertClassifier.from_checkpoint(folder, **LENGTHS)


def test_converts_bert_to_other_encoders(tmp_path):
    start = toy_classifier()
    folder = start.save_checkpoint(tmp_path / "model")
    ids, expected = toy_preprocessor()(toy_reviews(4)[0]), start.encoder.variables_by_path()

    def load(encoder, **arguments):
        return BertClassifier.from_checkpoint(folder, encoder=encoder, **LENGTHS, **arguments)

    left = load("left_to_right")
    assert left.encoder.attention_direction == "left_to_right"
    assert not left.checkpoint_report.random

    bilstm = load("left_to_right_bilstm", labels=["no", "yes"], seed=3)
    assert isinstance(bilstm.encoder, BiLstmEncoder)
    random = bilstm.checkpoint_report.random
    assert random and all(path.startswith(("encoder/bilstm", "logits/")) for path in random)
    np.testing.assert_array_equal(bilstm.encoder.encoder(ids)["sequence_output"], left.encoder(ids)["sequence_output"])

    both = load("two_directions", labels=["no", "yes"], seed=3)
    assert isinstance(both.encoder, TwoDirectionEncoder)
    assert all(path.startswith("logits/") for path in both.checkpoint_report.random)
    for part in both.encoder.bert_encoders():
        for path, variable in part.variables_by_path().items():
            np.testing.assert_array_equal(variable, expected[path])
    np.testing.assert_array_equal(both.encoder(ids)["pooled_output"][:, :16], left.encoder(ids)["pooled_output"])


def test_reads_two_directions_from_two_checkpoints(tmp_path):
    parts = make_encoder("two_directions", dtype="float32").bert_encoders()
    folders = [part.save_checkpoint(tmp_path / part.attention_direction) for part in parts]
    checkpoint, encoder = read_encoder(folders[0], "two_directions", folders[1], dtype="mixed_bfloat16")
    assert encoder.dtype_policy.name == "mixed_bfloat16"
    assert set(checkpoint.arrays) == set(encoder.variables_by_path("encoder/"))
    with pytest.raises(ValueError, match='second checkpoint for encoder="two_directions"'):
        read_encoder(folders[0], right_to_left=folders[1])


def test_seed_determines_new_weights(tmp_path):
    folder = toy_classifier().save_checkpoint(tmp_path / "model")
    kernels = [
        np.array(read_encoder(folder, "left_to_right_bilstm", seed=seed)[1].bilstms[0].weights[0]) for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert np.abs(kernels[0] - kernels[2]).max() > 0.1


@pytest.mark.parametrize("make", [toy_encoder, toy_classifier])
def test_rejects_unknown_format(tmp_path, make):
    with pytest.raises(ValueError, match=r"format must be one of \['hugging_face'.*; got 'onnx'"):
        make().save_checkpoint(tmp_path / "model", format="onnx")
    assert not list(tmp_path.iterdir())
