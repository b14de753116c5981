import json

import h5py
import numpy as np
import pytest

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.hugging_face_writer import TokenizerSettings
from keras_bert.weights.keras_hub_writer import write_keras_hub
from tests.toys import VOCABULARY, toy_classifier, toy_encoder
from tests.weights.test_hugging_face_writer import HEAD, SIZES, arrays_of, assert_same_weights

ARGUMENTS = {**SIZES, "hidden_dropout_prob": 0.05, "initializer_range": 0.02, "layer_norm_eps": 1e-12}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "été"]


@pytest.mark.parametrize("head", [None, HEAD])
@pytest.mark.parametrize("settings", [(True, None), (True, False), (False, None)])
def test_written_preset_is_read_back(tmp_path, head, settings):
    arrays = arrays_of(head)
    folder = write_keras_hub(tmp_path / "new" / "bert", ARGUMENTS, arrays, head, TokenizerSettings(WORDS, *settings))
    checkpoint = read_checkpoint(folder)
    assert (folder, checkpoint.source) == (tmp_path / "new" / "bert", "keras_hub")
    assert checkpoint.encoder_arguments == ARGUMENTS
    assert checkpoint.classifier_arguments == head
    assert checkpoint.arrays.keys() == arrays.keys()
    for path, array in arrays.items():
        np.testing.assert_array_equal(checkpoint.arrays[path], array)
    assert checkpoint.vocabulary.read_bytes().decode().split("\n") == [*WORDS, ""]
    assert (checkpoint.lower_case, checkpoint.strip_accents, checkpoint.unused) == (*settings, ())
    files = {"config.json", "metadata.json", "model.weights.h5", "tokenizer.json", "assets"}
    files |= {"preprocessor.json", "task.json", "task.weights.h5"} if head else set()
    assert {path.name for path in folder.iterdir()} == files


@pytest.mark.parametrize("name", ["classifier", "backbone"])
def test_rewrites_reference_presets(shared, tmp_path, name):
    golden = shared / "golden" / "formats" / "keras_hub_preset" / name
    read = read_checkpoint(golden)
    tokenizer = None
    if name == "classifier":
        words = read.vocabulary.read_text(encoding="utf-8").splitlines()
        tokenizer = TokenizerSettings(words, read.lower_case, read.strip_accents)
    folder = write_keras_hub(
        tmp_path / "preset", read.encoder_arguments, read.arrays, read.classifier_arguments, tokenizer
    )
    for file in golden.rglob("*.json"):
        ours, theirs = (json.loads((path / file.name).read_text()) for path in (folder, golden))
        if file.name == "metadata.json":
            assert {key: ours[key] for key in ("keras_hub_version", "parameter_count")}.items() <= theirs.items()
        else:
            assert ours == theirs
    for file in golden.rglob("*.h5"):
        with h5py.File(folder / file.name) as ours, h5py.File(file) as theirs:
            assert_same_tensors(ours, theirs)


def assert_same_tensors(ours, theirs):
    tensors = {}
    theirs.visititems(lambda name, found: tensors.update({name: found} if isinstance(found, h5py.Dataset) else {}))
    assert tensors
    for name, tensor in tensors.items():
        if not name.startswith("optimizer/"):
            np.testing.assert_array_equal(ours[name], tensor)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_models_are_read_back(tmp_path, dtype):
    classifier = toy_classifier(["no", "yes"], encoder_arguments={"hidden_act": "gelu_new"}, dropout=0.3)
    folder = classifier.save_checkpoint(tmp_path / "classifier", dtype=dtype, format="keras_hub")
    loaded = BertClassifier.from_checkpoint(folder, sequence_length=16)
    assert (loaded.labels, loaded.problem_type, loaded.dropout.rate) == (["no", "yes"], classifier.problem_type, 0.3)
    assert loaded.preprocessor.get_config() == classifier.preprocessor.get_config()
    if dtype == "float32":
        assert_same_weights(classifier, loaded)
    else:
        with h5py.File(folder / "model.weights.h5") as file:
            tensor = file["layers/dense/vars/0"]
            assert (tensor.dtype, tensor.attrs["dtype"]) == (np.dtype("V2"), "bfloat16")
    encoder = toy_encoder(hidden_act="gelu_new")
    tokenizer = BertTokenizer(VOCABULARY, lower_case=True)
    loaded = BertEncoder.from_checkpoint(encoder.save_checkpoint(tmp_path / "encoder", tokenizer, format="keras_hub"))
    assert_same_weights(encoder, loaded)


def test_states_another_activation_on_request(tmp_path):
    classifier = toy_classifier(encoder_arguments={"hidden_act": "gelu"})
    folder = classifier.save_checkpoint(tmp_path / "bert", format="keras_hub", hidden_act="gelu_new")
    assert read_checkpoint(folder).encoder_arguments["hidden_act"] == "gelu_new"


TOKEN_HEAD = {"token_logits/kernel": np.zeros((4, 3), "f4"), "token_logits/bias": np.zeros(3, "f4")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"encoder_arguments": {**ARGUMENTS, "hidden_act": "gelu"}}, "hidden_act='gelu', .* always computes with"),
        ({"encoder_arguments": {**ARGUMENTS, "layer_norm_eps": 1e-5}}, "layer_norm_eps=1e-05, .* with 1e-12"),
        ({"encoder_arguments": {**ARGUMENTS, "hidden_dropout_prob": 0.2}}, "one rate for both: make them equal"),
        ({"encoder_arguments": {**ARGUMENTS, "attention_direction": "left_to_right"}}, "is 'left_to_right', and"),
        ({"arrays": {**arrays_of(), **TOKEN_HEAD}, "classifier_arguments": HEAD}, r"head \['token_logits'\]"),
        ({"arrays": {**arrays_of(), "masked_lm/bias": np.zeros(6)}}, r"head \['masked_lm'\], .*another function"),
        ({"arrays": {path: array for path, array in arrays_of().items() if "pooler" not in path}}, "has no pooler"),
        ({"arrays": {**arrays_of(), "encoder/pooler/bias": np.zeros(3)}}, "pooler/bias must have the shape"),
        ({"tokenizer": TokenizerSettings([*WORDS[:4], "a", "b"], True)}, r"lacks \['\[MASK\]'\]"),
        ({"tokenizer": TokenizerSettings(WORDS[1:], True)}, "has 5 entries, but vocab_size is 6"),
        ({"dtype": "float16"}, "stored as one of"),
    ],
)
def test_rejects_what_keras_hub_does_not_have(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        write_keras_hub(tmp_path / "bert", **{"encoder_arguments": ARGUMENTS, "arrays": arrays_of(), **arguments})
    assert not list(tmp_path.iterdir())


def test_rejects_other_models_and_does_not_overwrite(tmp_path):
    encoder = toy_encoder(hidden_act="gelu_new")
    with pytest.raises(ValueError, match=r"\['masked_lm', 'next_sentence'\].*Save `model.encoder` instead"):
        BertPretrainer(encoder).save_checkpoint(tmp_path / "bert", format="keras_hub")
    (tmp_path / "bert").write_text("mine")
    with pytest.raises(FileExistsError, match="is not overwritten"):
        encoder.save_checkpoint(tmp_path / "bert", format="keras_hub")
    assert (tmp_path / "bert").read_text() == "mine"
