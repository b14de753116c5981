import json
import os

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.hugging_face_tokenizer import TokenizerSettings
from keras_bert.weights.hugging_face_writer import write_hugging_face
from keras_bert.weights.layout import POOLER_PATHS, expected_classifier_shapes, expected_encoder_shapes
from tests.toys import VOCABULARY, toy_classifier, toy_encoder, toy_reviews
from tests.weights import conftest

SIZES = conftest.SIZES | {
    "vocab_size": 6,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.05,
    "initializer_range": 0.03,
    "layer_norm_eps": 1e-7,
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "", "été"]
HEAD = {
    "num_labels": 3,
    "label_names": ["non", "oui", "peut-être"],
    "problem_type": "single_label_classification",
    "classifier_dropout": 0.4,
}


def arrays_of(head=None, dtype="float32"):
    shapes = expected_encoder_shapes(SIZES)
    if head is not None:
        shapes |= expected_classifier_shapes(SIZES["hidden_size"], head["num_labels"])
    random = np.random.default_rng(0)
    return {path: random.standard_normal(shape).astype(dtype) for path, shape in shapes.items()}


def assert_same_arrays(found, expected):
    assert found.keys() == expected.keys()
    for path, array in expected.items():
        np.testing.assert_array_equal(found[path], array.astype("float32"))


@pytest.mark.parametrize("head", [None, HEAD])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16])
def test_written_checkpoint_is_read_back(tmp_path, head, dtype):
    arrays = arrays_of(head, dtype)
    folder = write_hugging_face(tmp_path / "new" / "bert", SIZES, arrays, head, TokenizerSettings(WORDS, False))
    checkpoint = read_checkpoint(folder)
    assert folder == tmp_path / "new" / "bert"
    assert checkpoint.encoder_arguments == SIZES
    assert checkpoint.classifier_arguments == head
    assert_same_arrays(checkpoint.arrays, arrays)
    assert all(array.dtype == np.float32 for array in checkpoint.arrays.values())
    assert checkpoint.vocabulary.read_bytes().decode().split("\n") == [*WORDS, ""]
    assert (checkpoint.lower_case, checkpoint.strip_accents, checkpoint.unused) == (False, None, ())


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
@pytest.mark.parametrize("head", ["sequence_classification", "question_answering"])
def test_rewrites_reference_checkpoints_unchanged(shared, tmp_path, head, activation):
    golden = shared / "golden" / "hf_tiny" / activation / head
    read = read_checkpoint(golden)
    folder = write_hugging_face(tmp_path / "bert", read.encoder_arguments, read.arrays, read.classifier_arguments)
    expected, found = load_file(golden / "model.safetensors"), load_file(folder / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        np.testing.assert_array_equal(found[name], tensor)
    theirs, ours = (json.loads((path / "config.json").read_text()) for path in (golden, folder))
    known = theirs.keys() & ours.keys() - {"classifier_dropout"}  # null there: the encoder's, which we write out
    assert {name: ours[name] for name in known} == {name: theirs[name] for name in known}
    assert {"architectures", "hidden_act", "layer_norm_eps", "model_type"} <= known
    assert (head == "sequence_classification") == ({"id2label", "label2id"} <= known)
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_stores_weights_in_bfloat16(tmp_path):
    arrays = arrays_of(HEAD)
    folder = write_hugging_face(tmp_path / "bert", SIZES, arrays, HEAD, dtype="bfloat16")
    stored = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {np.dtype(ml_dtypes.bfloat16)}
    assert json.loads((folder / "config.json").read_text())["torch_dtype"] == "bfloat16"
    rounded = {path: array.astype(ml_dtypes.bfloat16) for path, array in arrays.items()}
    assert_same_arrays(read_checkpoint(folder).arrays, rounded)


@pytest.mark.parametrize("make", [toy_encoder, toy_classifier, lambda: BertPretrainer(toy_encoder())])
def test_models_store_in_bfloat16_on_request(tmp_path, make):
    folder = make().save_checkpoint(tmp_path / "bert", dtype="bfloat16")
    stored = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {np.dtype(ml_dtypes.bfloat16)}


def test_writes_encoder_without_prefix_its_padding_token_and_format(tmp_path):
    words = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "a", "b"]
    folder = write_hugging_face(tmp_path / "bert", SIZES, arrays_of(), tokenizer=TokenizerSettings(words, True))
    config = json.loads((folder / "config.json").read_text())
    assert (config["pad_token_id"], config["architectures"]) == (3, ["BertModel"])
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
        assert "embeddings.word_embeddings.weight" in file.keys()  # noqa: SIM118
        assert not [name for name in file.keys() if name.startswith("bert.")]  # noqa: SIM118


@pytest.mark.parametrize(("lower_case", "strip_accents"), [(True, None), (True, False), (False, True)])
def test_writes_the_tokenizer_config(tmp_path, lower_case, strip_accents):
    settings = TokenizerSettings(WORDS, lower_case, strip_accents)
    folder = write_hugging_face(tmp_path / "bert", SIZES, arrays_of(), tokenizer=settings)
    assert json.loads((folder / "tokenizer_config.json").read_text()) == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "tokenize_chinese_chars": True,
        "model_max_length": 8,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        **{"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
        "do_lower_case": lower_case,
        **({} if strip_accents is None else {"strip_accents": strip_accents}),
    }


def test_names_unnamed_labels_as_hugging_face(tmp_path):
    head = {**HEAD, "label_names": None, "problem_type": None}
    folder = write_hugging_face(tmp_path / "bert", SIZES, arrays_of(head), head)
    config = json.loads((folder / "config.json").read_text())
    assert config["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
    assert config["label2id"] == {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}
    assert "problem_type" not in config
    assert read_checkpoint(folder).classifier_arguments == head


KERNEL = "encoder/transformer_block_1/output/kernel"
WITHOUT_KERNEL = {path: array for path, array in arrays_of().items() if path != KERNEL}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"arrays": WITHOUT_KERNEL}, f"{KERNEL} is missing"),
        ({"arrays": {**arrays_of(), "logits/bias": np.zeros(3)}}, "logits/bias is not a variable of such a model"),
        ({"arrays": {**arrays_of(), KERNEL: np.zeros([4, 6])}}, r"must have the shape \[6, 4\], but has \[4, 6\]"),
        ({"arrays": {**arrays_of(), KERNEL: np.zeros([6, 4], int)}}, "but is int64"),
        ({"arrays": {}}, r"and \d+ more"),
        ({"dtype": "float16"}, r"stored as one of \('float32', 'bfloat16', 'int8'\); got dtype='float16'"),
        ({"tokenizer": TokenizerSettings(WORDS[:-1], True)}, "has 5 entries, but vocab_size is 6"),
        ({"tokenizer": TokenizerSettings([*WORDS[:-1], " a"], True)}, r"their white space: \[' a'\]"),
        ({"encoder_arguments": {**SIZES, "hidden_act": "swish"}}, "hidden_act must be one of"),
        (
            {"encoder_arguments": {**SIZES, "attention_direction": "up"}},
            "attention_direction must be one of .* found 'up'",
        ),
        (
            {"arrays": arrays_of(HEAD), "classifier_arguments": {**HEAD, "label_names": ["a", "a", "b"]}},
            "3 distinct label_names",
        ),
    ],
)
def test_rejects_invalid_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        write_hugging_face(tmp_path / "bert", **{"encoder_arguments": SIZES, "arrays": arrays_of(), **arguments})
    assert not list(tmp_path.iterdir())


def test_does_not_overwrite(tmp_path):
    (tmp_path / "bert").mkdir()
    os.symlink(tmp_path / "nowhere", tmp_path / "link")
    for name in ("bert", "link"):
        with pytest.raises(FileExistsError, match="is not overwritten"):
            write_hugging_face(tmp_path / name, SIZES, arrays_of())


def assert_same_weights(one, two):
    two = two.variables_by_path()
    for path, variable in one.variables_by_path().items():
        np.testing.assert_array_equal(np.asarray(variable).astype("float32"), np.asarray(two[path]))


@pytest.mark.parametrize(
    ("labels", "problem_type"),
    [
        (("negative", "positive"), "single_label_classification"),
        (["дешево", "срочно", "3"], "multi_label_classification"),
        (4, "single_label_classification"),
    ],
)
def test_classifier_is_read_back(tmp_path, labels, problem_type):
    classifier = toy_classifier(labels, problem_type=problem_type, dropout=0.3)
    loaded = BertClassifier.from_checkpoint(classifier.save_checkpoint(tmp_path / "saved"), sequence_length=16)
    assert_same_weights(classifier, loaded)
    assert (loaded.labels, loaded.problem_type) == (classifier.labels, problem_type)
    assert loaded.dropout.rate == 0.3
    assert not loaded.checkpoint_report.random
    assert not loaded.checkpoint_report.unused
    assert loaded.preprocessor.get_config() == classifier.preprocessor.get_config()
    texts, _ = toy_reviews(8)
    np.testing.assert_array_equal(loaded.predict(texts, verbose=0), classifier.predict(texts, verbose=0))


def test_writes_bfloat16_model_as_float32(tmp_path):
    classifier = toy_classifier(encoder_arguments={"dtype": "bfloat16", "num_hidden_layers": 2})
    folder = classifier.save_checkpoint(tmp_path / "saved")
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {np.dtype("float32")}
    assert_same_weights(classifier, BertClassifier.from_checkpoint(folder, sequence_length=16))


@pytest.mark.parametrize("with_pooler", [True, False])
def test_encoder_is_read_back(tmp_path, with_pooler):
    encoder = toy_encoder(with_pooler=with_pooler, hidden_act="gelu", layer_norm_eps=1e-6)
    folder = encoder.save_checkpoint(tmp_path / "saved", BertTokenizer(VOCABULARY, lower_case=True))
    loaded = BertEncoder.from_checkpoint(folder)
    assert_same_weights(encoder, loaded)
    assert set(loaded.checkpoint_report.random) == (set() if with_pooler else set(POOLER_PATHS))
    own = {"seed", "name", "dtype", "trainable", "with_pooler"}
    configs = [{key: value for key, value in one.get_config().items() if key not in own} for one in (encoder, loaded)]
    assert configs[0] == configs[1]


def test_marks_encoder_of_one_direction(tmp_path):
    encoder = {"attention_direction": "left_to_right"}
    folder = toy_classifier(encoder_arguments=encoder).save_checkpoint(tmp_path / "one")
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "keras_bert"
    names = load_file(folder / "model.safetensors").keys() - {"classifier.weight", "classifier.bias"}
    assert all(name.startswith("left_to_right.") for name in names)
    (folder / "config.json").write_text(json.dumps({**config, "attention_direction": 1}))
    with pytest.raises(ValueError, match=r"config.json: attention_direction must be one of .* found 1"):
        read_checkpoint(folder)
