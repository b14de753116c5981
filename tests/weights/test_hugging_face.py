import json
import os

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_bert.weights import hugging_face
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.layout import POOLER_PATHS, expected_encoder_shapes, expected_pretraining_shapes
from tests.weights.conftest import HUGGING_FACE_NAMES, assert_encoder_equals_file

# Name and number of outputs of each head, and the name of its tensors.
HEADS = {
    "pretraining": None,
    "sequence_classification": ("logits", 3, "classifier"),
    "token_classification": ("token_logits", 5, "classifier"),
    "question_answering": ("spans", 2, "qa_outputs"),
    "multiple_choice": ("choice_logits", 1, "classifier"),
}


def assert_equals_file(checkpoint, tensors):
    assert_encoder_equals_file(checkpoint.arrays, tensors, HUGGING_FACE_NAMES, transposed=True)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
@pytest.mark.parametrize("head", HEADS)
def test_reads_arrays_of_reference_models(shared, activation, head):
    folder = shared / "golden" / "hf_tiny" / activation / head
    tensors = load_file(folder / "model.safetensors")
    checkpoint = read_checkpoint(folder)
    assert checkpoint.source == "hugging_face"
    assert checkpoint.encoder_arguments["hidden_act"] == activation
    assert checkpoint.encoder_arguments["initializer_range"] == 0.2
    assert_equals_file(checkpoint, tensors)
    wanted = expected_encoder_shapes(checkpoint.encoder_arguments)
    if head in ("token_classification", "question_answering"):
        wanted = {path: shape for path, shape in wanted.items() if path not in POOLER_PATHS}
    if head == "pretraining":
        wanted |= expected_pretraining_shapes(checkpoint.encoder_arguments)
    else:
        name, outputs, stored = HEADS[head]
        wanted |= {f"{name}/kernel": (32, outputs), f"{name}/bias": (outputs,)}
        np.testing.assert_array_equal(checkpoint.arrays[f"{name}/kernel"], tensors[f"{stored}.weight"].T)
    assert {path: array.shape for path, array in checkpoint.arrays.items()} == wanted
    used = {name for names in checkpoint.tensor_names.values() for name in names}
    assert used == set(tensors) and checkpoint.unused == ()
    for name in ("logits", "token_logits", "choice_logits"):
        assert bool(checkpoint.head_arguments(name)) == (f"{name}/kernel" in wanted)


def test_reads_old_names_and_ignores_extra_tensors(shared):
    folder = shared / "golden" / "hf_tiny" / "gelu"
    plain = read_checkpoint(folder / "pretraining")
    legacy = read_checkpoint(folder / "pretraining_legacy_keys")
    extra = read_checkpoint(folder / "pretraining_extra_keys")
    assert legacy.tensor_names["encoder/embeddings/layer_norm/gamma"] == ("bert.embeddings.LayerNorm.gamma",)
    for path, array in plain.arrays.items():
        np.testing.assert_array_equal(legacy.arrays[path], array)
        np.testing.assert_array_equal(extra.arrays[path], array)
    assert set(extra.unused) - set(plain.unused) == {
        "bert.embeddings.position_ids",
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
    }


def test_reads_minilm(minilm):
    checkpoint = read_checkpoint(minilm)
    assert_equals_file(checkpoint, load_file(minilm / "model.safetensors"))
    assert checkpoint.encoder_arguments["num_attention_heads"] == 12
    assert checkpoint.encoder_arguments["hidden_act"] == "gelu"
    assert checkpoint.unused == ("embeddings.position_ids",)
    assert (checkpoint.lower_case, checkpoint.strip_accents) == (True, None)
    assert checkpoint.vocabulary == minilm / "vocab.txt"
    assert checkpoint.classifier_arguments is None


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_reads_half_precision_as_float32(hugging_face_folder, dtype):
    tensors = {name: tensor.astype(dtype) for name, tensor in hugging_face_folder.tensors.items()}
    hugging_face_folder.tensors = tensors
    checkpoint = read_checkpoint(hugging_face_folder.write())
    assert {array.dtype for array in checkpoint.arrays.values()} == {np.dtype(np.float32)}
    assert_equals_file(checkpoint, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})


OTHER_ACTIVATIONS = {"gelu_python": "gelu", "gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new", "relu": "relu"}


@pytest.mark.parametrize(("theirs", "ours"), OTHER_ACTIVATIONS.items())
def test_maps_activations(hugging_face_folder, theirs, ours):
    hugging_face_folder.config["hidden_act"] = theirs
    assert read_checkpoint(hugging_face_folder.write()).encoder_arguments["hidden_act"] == ours


# === The head ===


@pytest.mark.parametrize(
    ("dropout", "expected"), [({"classifier_dropout": 0.3}, 0.3), ({"classifier_dropout": None}, 0.25), ({}, 0.25)]
)
def test_reads_label_names_problem_type_and_dropout(hugging_face_folder, dropout, expected):
    hugging_face_folder.with_classifier().config.update(
        id2label={"1": "neutral", "0": "good", "2": "bad"},
        problem_type="multi_label_classification",
        hidden_dropout_prob=0.25,
        **dropout,
    )
    assert read_checkpoint(hugging_face_folder.write()).classifier_arguments == {
        "num_labels": 3,
        "label_names": ["good", "neutral", "bad"],
        "problem_type": "multi_label_classification",
        "classifier_dropout": expected,
    }


@pytest.mark.parametrize(("num_labels", "problem_type"), [(1, "regression"), (2, None)])
def test_reads_number_of_labels_without_names(hugging_face_folder, num_labels, problem_type):
    arguments = read_checkpoint(hugging_face_folder.with_classifier(num_labels).write()).classifier_arguments
    assert (arguments["num_labels"], arguments["label_names"]) == (num_labels, None)
    assert arguments["problem_type"] == problem_type


def test_rejects_classifier_without_pooler(hugging_face_folder):
    hugging_face_folder.with_classifier()
    for leaf in ("weight", "bias"):
        del hugging_face_folder.tensors[f"bert.pooler.dense.{leaf}"]
    with pytest.raises(ValueError, match=r"'bert.pooler.dense.weight' .*found no such tensor"):
        read_checkpoint(hugging_face_folder.write())


# === Tokenizer files ===


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"do_lower_case": False, "strip_accents": True}, (False, True)),
        ({"do_lower_case": True}, (True, None)),
        ({}, (None, None)),
        (None, (None, None)),
    ],
)
def test_reads_lower_casing(hugging_face_folder, settings, expected):
    folder = hugging_face_folder.write()
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    checkpoint = read_checkpoint(folder)
    assert (checkpoint.lower_case, checkpoint.strip_accents) == expected


# === Shards ===


def write_shards(folder, tensors):
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    (folder / "model.safetensors").unlink()
    for shard, members in shards.items():
        save_file({name: tensors[name] for name in members}, folder / shard)
    weight_map = {name: shard for shard, members in shards.items() for name in members}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_reads_shards(hugging_face_folder):
    folder = hugging_face_folder.write()
    write_shards(folder, hugging_face_folder.tensors)
    checkpoint = read_checkpoint(folder)
    assert checkpoint.path == folder / "model.safetensors.index.json" and checkpoint.unused == ()
    assert_equals_file(checkpoint, hugging_face_folder.tensors)


def test_names_missing_shard(hugging_face_folder):
    folder = hugging_face_folder.write()
    write_shards(folder, hugging_face_folder.tensors)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"index.json: lists the shards \['model-00002-of-00002.safetensors'\]"):
        read_checkpoint(folder)


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": ["a"]}])
def test_rejects_index_without_map(hugging_face_folder, index):
    folder = hugging_face_folder.write()
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="expected an object weight_map"):
        read_checkpoint(folder)


# === Broken files ===


@pytest.mark.parametrize("keep", [0, 100, -3])
def test_rejects_truncated_file(hugging_face_folder, keep):
    folder = hugging_face_folder.write()
    path = folder / "model.safetensors"
    size = keep if keep >= 0 else path.stat().st_size + keep
    os.truncate(path, size)
    with pytest.raises(ValueError, match=rf"model.safetensors: not a complete safetensors file .*it has {size} bytes"):
        read_checkpoint(folder)


def test_requires_every_tensor(hugging_face_folder):
    whole = hugging_face_folder.tensors
    for missing in whole:
        hugging_face_folder.tensors = {name: tensor for name, tensor in whole.items() if name != missing}
        folder = hugging_face_folder.write()
        with pytest.raises(ValueError) as caught:
            read_checkpoint(folder)
        assert f"{folder / 'model.safetensors'}: tensor '{missing}'" in str(caught.value)
        assert f"expected shape {list(whole[missing].shape)}, found no such tensor" in str(caught.value)


CLASSIFIER = {"architectures": ["BertForSequenceClassification"]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "roberta"}, r"model_type must be 'bert'; found 'roberta'"),
        ({"position_embedding_type": "relative_key"}, r"must be 'absolute'; found 'relative_key'"),
        ({"is_decoder": True}, r"is_decoder must be false"),
        ({"add_cross_attention": True}, r"add_cross_attention must be false"),
        ({"architectures": 5}, r"architectures must be a list of names, .*; found 5"),
        ({"architectures": [["BertModel"]]}, r"architectures must be a list of names"),
        ({"num_hidden_layers": 10**8}, r"num_hidden_layers is 100000000, but .* has the tensors of 2 layers"),
        ({"problem_type": ["x"], **CLASSIFIER}, r"problem_type must be one of .*; found \['x'\]"),
        ({"id2label": {"0": "a", "1": ["b"]}, **CLASSIFIER}, "the labels of id2label must be strings"),
        (
            {"model_type": "keras_bert", "encoder_family": "bilstm", "bilstm_units": 1, "bilstm_layers": 10**8},
            r"bilstm_layers is 100000000, but .* has 39 tensors",
        ),
        ({"classifier_dropout": 2, **CLASSIFIER}, r"classifier_dropout must be"),
        *(
            ({"id2label": labels, **CLASSIFIER}, "id2label must have consecutive keys")
            for labels in ({"0": "a", "2": "b"}, {}, ["a", "b"])
        ),
    ],
)
def test_rejects_other_configurations(hugging_face_folder, changes, message):
    hugging_face_folder.config.update(changes)
    with pytest.raises(ValueError, match=rf"config.json: .*{message}"):
        read_checkpoint(hugging_face_folder.write())


def test_rejects_other_files(hugging_face_folder):
    hugging_face_folder.tensors["bert.pooler.dense.weight"] = np.zeros((4, 4), np.int8)
    folder = hugging_face_folder.write()
    with pytest.raises(ValueError, match=r"'bert.pooler.dense.weight' .*expected a float type.*found I8"):
        read_checkpoint(folder)
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(ValueError, match="Git LFS pointer"):
        read_checkpoint(folder)
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": "yes"}')
    with pytest.raises(ValueError, match=r"tokenizer_config.json: do_lower_case must be true or false; found 'yes'"):
        read_checkpoint(folder)


# === Finding the weights ===


def test_prefers_single_file_to_shards(hugging_face_folder):
    folder = hugging_face_folder.write()
    (folder / "model.safetensors.index.json").write_text("{}")
    assert hugging_face.find(folder) == folder / "model.safetensors"
    assert hugging_face.find(folder / "model.safetensors") == folder / "model.safetensors"
    assert hugging_face.find(folder / "model.safetensors.index.json").name == "model.safetensors.index.json"
    assert hugging_face.find(folder / "config.json") is None
    assert hugging_face.find(folder / "absent") is None
