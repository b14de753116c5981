import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.models.token_classifier import BertTokenClassifier
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.encoder_kinds import EncoderKind
from keras_bert.weights.google_bert_writer import write_google_bert
from keras_bert.weights.hugging_face_writer import TokenizerSettings
from keras_bert.weights.layout import (
    SPAN_HEAD,
    expected_classifier_shapes,
    expected_encoder_shapes,
    expected_pretraining_shapes,
)
from tests.toys import toy_classifier, toy_encoder, toy_preprocessor
from tests.weights.conftest import SIZES

ARGUMENTS = {
    **SIZES,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.25,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.03,
    "layer_norm_eps": 1e-12,
}
CLASSIFIER = {"num_labels": 3, "label_names": None, "problem_type": None, "classifier_dropout": 0.1}
HEADS = {
    "encoder": {},
    "pretraining": expected_pretraining_shapes(ARGUMENTS),
    "classifier": expected_classifier_shapes(4, 3),
    "spans": expected_classifier_shapes(4, 2, SPAN_HEAD),
}


def make_arrays(head="encoder"):
    generator = np.random.default_rng(0)
    shapes = expected_encoder_shapes(ARGUMENTS) | HEADS[head]
    return {path: generator.standard_normal(shape).astype(np.float32) for path, shape in shapes.items()}


def load_tensors(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.parametrize("head", HEADS)
def test_round_trip_is_exact(tmp_path, head):
    arrays, classifier = make_arrays(head), CLASSIFIER if head == "classifier" else None
    tokenizer = TokenizerSettings([f"word{index}" for index in range(7)], lower_case=True)
    folder = write_google_bert(tmp_path / "bert", ARGUMENTS, arrays, classifier, tokenizer)
    names = {"bert_config.json", "vocab.txt", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"}
    assert {file.name for file in folder.iterdir()} == names
    checkpoint = read_checkpoint(folder)
    assert checkpoint.source == "google_bert" and not checkpoint.unused
    assert checkpoint.encoder_arguments == ARGUMENTS and checkpoint.classifier_arguments == classifier
    assert checkpoint.arrays.keys() == arrays.keys()
    for path, array in arrays.items():
        np.testing.assert_array_equal(checkpoint.arrays[path], array)
    assert checkpoint.vocabulary.read_text() == "".join(f"word{index}\n" for index in range(7))
    assert json.loads((folder / "bert_config.json").read_text())["hidden_act"] == "gelu"


@pytest.mark.parametrize("name", ["pretrained", "classifier_adam", "encoder"])
def test_tensors_are_those_of_the_original(shared, tmp_path, name):
    checkpoint = read_checkpoint(shared / "golden" / "formats" / "google_tf1" / name)
    arguments = (checkpoint.encoder_arguments, checkpoint.arrays, checkpoint.classifier_arguments)
    written = load_tensors(write_google_bert(tmp_path / "bert", *arguments) / "bert_model.ckpt")
    original = load_tensors(checkpoint.path)
    assert written.keys() == {name for names in checkpoint.tensor_names.values() for name in names}
    for tensor, array in written.items():
        assert array.dtype == original[tensor].dtype and array.shape == original[tensor].shape
        assert array.tobytes() == original[tensor].tobytes()
    if name != "classifier_adam":
        assert written.keys() == original.keys()
    config = json.loads((tmp_path / "bert" / "bert_config.json").read_text())
    assert config == json.loads((checkpoint.path.parent / "bert_config.json").read_text())


def test_pooler_may_be_missing_where_no_head_needs_it(tmp_path):
    arrays = {path: array for path, array in make_arrays("spans").items() if "pooler" not in path}
    write_google_bert(tmp_path / "spans", ARGUMENTS, arrays)
    assert read_checkpoint(tmp_path / "spans").arrays.keys() == arrays.keys()
    arrays = {path: array for path, array in make_arrays("classifier").items() if "pooler" not in path}
    with pytest.raises(ValueError, match="encoder/pooler/kernel is missing"):
        write_google_bert(tmp_path / "classifier", ARGUMENTS, arrays, CLASSIFIER)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "bfloat16"}, "weights as float32 only; got dtype='bfloat16'"),
        ({"encoder_kind": EncoderKind("bilstm", 2)}, "has no encoder 'bidirectional_bilstm'"),
        ({"encoder_arguments": {**ARGUMENTS, "attention_direction": "left_to_right"}}, "no encoder 'left_to_right'"),
        ({"encoder_arguments": {**ARGUMENTS, "hidden_act": "gelu"}}, "'gelu' cannot be stated .*hidden_act='gelu_new'"),
        ({"encoder_arguments": {**ARGUMENTS, "layer_norm_eps": 1e-5}}, "layer_norm_eps is fixed at 1e-12 .* has 1e-05"),
        ({"classifier_arguments": {**CLASSIFIER, "problem_type": "regression"}}, "only; got 'regression'"),
        ({"classifier_arguments": {**CLASSIFIER, "pooling": "mean"}}, "by the pooler only; got pooling='mean'"),
        (
            {"arrays": make_arrays() | {"token_logits/kernel": np.zeros((4, 3))}},
            "no program for the head 'token_logits'",
        ),
        ({"arrays": make_arrays() | {"choice_logits/kernel": np.zeros((4, 1))}}, "for the head 'choice_logits'"),
        ({"arrays": make_arrays() | {"extra": np.zeros(4)}}, "extra is not a variable of such a model"),
        ({"tokenizer": TokenizerSettings(["a"], lower_case=True)}, "has 1 entries, but vocab_size is 7"),
        ({"tokenizer": TokenizerSettings(["a"] * 7, True, strip_accents=False)}, "and strip_accents=False"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(tmp_path, changes, message):
    arguments = {"encoder_arguments": ARGUMENTS, "arrays": make_arrays(), **changes}
    with pytest.raises(ValueError, match=message):
        write_google_bert(tmp_path / "bert", **arguments)
    assert not list(tmp_path.iterdir())


def test_existing_folder_is_not_overwritten(tmp_path):
    with pytest.raises(FileExistsError, match="is not overwritten"):
        write_google_bert(tmp_path, ARGUMENTS, make_arrays())


def test_models_are_saved_and_loaded(tmp_path):
    classifier = toy_classifier(encoder_arguments={"hidden_act": "gelu_new"})
    folder = classifier.save_checkpoint(tmp_path / "classifier", format="google")
    loaded = BertClassifier.from_checkpoint(folder, sequence_length=16)
    assert not loaded.checkpoint_report.random and not loaded.checkpoint_report.unused
    for path, variable in loaded.variables_by_path().items():
        np.testing.assert_array_equal(variable, classifier.variables_by_path()[path])
    encoder = toy_encoder()
    pretrainer = BertPretrainer(encoder)
    loaded = BertPretrainer.from_checkpoint(pretrainer.save_checkpoint(tmp_path / "pretrainer", format="google"))
    assert not loaded.checkpoint_report.random and not loaded.checkpoint_report.unused
    for model in (BertTokenClassifier, BertMultipleChoice):
        arguments = (["a", "b"], toy_preprocessor()) if model is BertTokenClassifier else (toy_preprocessor(),)
        with pytest.raises(ValueError, match="has no program for the head"):
            model(toy_encoder(), *arguments).save_checkpoint(tmp_path / "other", format="google")
