import json
import os
import re

import h5py
import ml_dtypes
import numpy as np
import pytest

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.encoder import BertEncoder
from keras_bert.weights import hugging_face, keras_hub
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.layout import expected_classifier_shapes, expected_encoder_shapes
from tests.weights.conftest import SIZES

# Substitutions that turn the path of a variable of ours into KerasHub's.
NAMES = [
    ("encoder/transformer_block_0/", "layers/transformer_encoder/"),
    ("encoder/transformer_block_", "layers/transformer_encoder_"),
    ("self_attention_layer_norm", "_self_attention_layer_norm"),
    ("self_attention/(query|key|value|output)/", r"_self_attention_layer/\1_dense/"),
    ("/intermediate/", "/_feedforward_intermediate_dense/"),
    ("/output_layer_norm", "/_feedforward_layer_norm"),
    ("/output/", "/_feedforward_output_dense/"),
    ("encoder/embeddings/token_embeddings", "layers/reversible_embedding/vars/0"),
    ("encoder/embeddings/segment_embeddings", "layers/embedding/vars/0"),
    ("encoder/embeddings/position_embeddings", "layers/position_embedding/vars/0"),
    ("encoder/embeddings/layer_norm", "layers/layer_normalization"),
    ("encoder/pooler", "layers/dense"),
    ("^logits", "layers/dense"),
    ("/(kernel|gamma)$", "/vars/0"),
    ("/(bias|beta)$", "/vars/1"),
]


def their_tensors(arrays):
    """Returns the arrays of our variables as KerasHub stores them, with an axis for the 2 heads of size 2."""
    tensors = {}
    for path, array in arrays.items():
        is_fused = "query_key_value" in path
        for part, tensor in zip(
            ("query", "key", "value"), np.split(array, 3, axis=-1) if is_fused else [array], strict=False
        ):
            name = path.replace("query_key_value", part)
            for pattern, replacement in NAMES:
                name = re.sub(pattern, replacement, name)
            if is_fused:
                tensor = tensor.reshape(*tensor.shape[:-1], 2, 2)
            elif name.endswith("_layer/output_dense/vars/0"):
                tensor = tensor.reshape(2, 2, 4)
            tensors[name] = tensor
    return tensors


def serialized(class_name, /, **config):
    return {"module": "m", "class_name": class_name, "config": config, "registered_name": f"keras_hub>{class_name}"}


class Preset:
    """A preset folder with a classifier that a test may change before `write` puts it on the disk."""

    def __init__(self, path):
        self.path, random = path, np.random.default_rng(0)
        shapes = {"encoder": expected_encoder_shapes(SIZES), "logits": expected_classifier_shapes(4, 3)}
        self.arrays = {
            path: random.standard_normal(shape).astype("f4") for part in shapes.values() for path, shape in part.items()
        }
        self.tensors = {
            part: their_tensors({path: self.arrays[path] for path in shapes[part]}) for part in ("encoder", "logits")
        }
        sizes = {
            "vocabulary_size": 7,
            "num_layers": 2,
            "num_heads": 2,
            "hidden_dim": 4,
            "intermediate_dim": 6,
            "max_sequence_length": 8,
            "num_segments": 2,
        }
        backbone = serialized("BertBackbone", name="bert_backbone", trainable=True, dtype={}, dropout=0.2, **sizes)
        self.files = {
            "config.json": backbone,
            "task.json": serialized(
                "BertTextClassifier",
                backbone=json.loads(json.dumps(backbone)),
                num_classes=3,
                activation="linear",
                dropout=0.3,
            ),
            "tokenizer.json": serialized("BertTokenizer", lowercase=True, strip_accents=False, split=True),
        }

    def write(self):
        (self.path / "assets" / "tokenizer").mkdir(parents=True, exist_ok=True)
        (self.path / "assets" / "tokenizer" / "vocabulary.txt").write_text("a\nb\nc\nd\ne\nf\ng\n")
        for name, value in self.files.items():
            (self.path / name).write_text(json.dumps(value))
        for name, part in (("model.weights.h5", "encoder"), ("task.weights.h5", "logits")):
            with h5py.File(self.path / name, "w") as file:
                for tensor, values in self.tensors[part].items():
                    file[tensor] = values
                file.create_group("layers/add/vars").attrs["name"] = "embeddings_add"
        return self.path


@pytest.fixture
def preset(tmp_path):
    return Preset(tmp_path / "preset")


def test_reads_classifier(preset):
    preset.tensors["logits"] |= {"optimizer/vars/0": np.int64(3), "layers/other/vars/0": np.zeros(2, "f4")}
    checkpoint = read_checkpoint(preset.write())
    assert (checkpoint.source, checkpoint.path) == ("keras_hub", preset.path / "model.weights.h5")
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
    fixed = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12, "initializer_range": 0.02}
    assert checkpoint.encoder_arguments == {**SIZES, **rates, **fixed}
    assert checkpoint.arrays.keys() == preset.arrays.keys()
    for path, array in preset.arrays.items():
        np.testing.assert_array_equal(checkpoint.arrays[path], array)
    head = {"num_labels": 3, "label_names": None, "problem_type": None, "classifier_dropout": 0.3}
    assert checkpoint.classifier_arguments == checkpoint.head_arguments("logits") == head
    assert (checkpoint.lower_case, checkpoint.strip_accents) == (True, False)
    assert checkpoint.vocabulary == preset.path / "assets" / "tokenizer" / "vocabulary.txt"
    assert (checkpoint.unused, checkpoint.skipped_optimizer_slots) == (("task.weights.h5/layers/other/vars/0",), 1)
    assert checkpoint.tensor_names["logits/bias"] == ("task.weights.h5/layers/dense/vars/1",)


def test_reads_backbone_in_bfloat16_and_another_task(preset):
    del preset.files["tokenizer.json"]
    preset.files["task.json"] = serialized("BertMaskedLM")
    halved = {path: array.astype(ml_dtypes.bfloat16) for path, array in preset.arrays.items() if "logits" not in path}
    preset.tensors["encoder"] = {name: tensor.view("V2") for name, tensor in their_tensors(halved).items()}
    checkpoint = read_checkpoint(preset.write())
    assert checkpoint.classifier_arguments is None and checkpoint.lower_case is None
    assert checkpoint.unused == tuple(f"task.weights.h5/layers/dense/vars/{index}" for index in (0, 1))
    for path, array in checkpoint.arrays.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, halved[path].astype("f4"))


def test_is_found_by_its_contents(preset, hugging_face_folder):
    folder = preset.write()
    assert hugging_face.find(folder) is None
    for path in (folder, folder / "model.weights.h5", folder / "task.weights.h5"):
        assert keras_hub.find(path) == folder / "model.weights.h5"
    assert keras_hub.find(folder / "config.json") is None
    assert keras_hub.find(hugging_face_folder.write()) is None
    (hugging_face_folder.path / "model.weights.h5").write_bytes(b"")
    assert keras_hub.find(hugging_face_folder.path) is None
    assert read_checkpoint(hugging_face_folder.path).source == "hugging_face"
    os.remove(folder / "config.json")
    assert keras_hub.find(folder) is None


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config.json", {"registered_name": "keras_hub>RobertaBackbone"}, "found 'keras_hub>RobertaBackbone'. Only"),
        ("config.json", {"registered_name": "own>BertBackbone"}, "keras_hub>BertBackbone; found 'own>BertBackbone'"),
        ("config.json", {"registered_name": None, "class_name": "Functional"}, "found 'Functional'"),
        ("config.json", {"registered_name": 5}, "found '5'"),
        ("config.json", {"config": [1]}, "expected an object config for BertBackbone; found list"),
        ("config.json", {"config": {"num_layers": 2}}, r"the fields \['vocabulary_size', .* are missing"),
        ("task.json", {"registered_name": "keras_hub>BertTagger"}, "found 'keras_hub>BertTagger'"),
        ("tokenizer.json", {"registered_name": "keras_hub>GPT2Tokenizer"}, "keras_hub>BertTokenizer; found"),
    ],
)
def test_rejects_other_objects(preset, file, changes, message):
    preset.files[file].update(changes)
    with pytest.raises(ValueError, match=rf"{file}: .*{message}"):
        read_checkpoint(preset.write())


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config.json", {"num_layers": 100_000_000}, "num_layers is 100000000, but .* tensors"),
        ("config.json", {"num_layers": True}, "must be an integer"),
        ("config.json", {"num_heads": 3}, "must be a multiple of num_attention_heads"),
        ("config.json", {"num_heads": 4}, r"query_dense/vars/0' .*expected shape \[4, 4\], found \[4, 2, 2\]"),
        ("config.json", {"vocabulary_size": 8}, r"vocabulary.txt: expected 8 lines"),
        ("config.json", {"dropout": 1.5}, r"dropout must be a number in \[0, 1\)"),
        ("config.json", {"rotary": True}, r"\['rotary'\] are unknown"),
        ("task.json", {"num_classes": 2_000_000_000}, r"logits.* expected shape \[4, 2000000000\], found \[4, 3\]"),
        ("task.json", {"num_classes": "3"}, "num_classes must be an integer of at least 1; found '3'"),
        ("task.json", {"activation": {"class_name": "f"}}, "activation must be one of"),
        ("task.json", {"dropout": "no"}, "dropout must be a number"),
        ("tokenizer.json", {"lowercase": "yes"}, "lowercase must be true or false; found 'yes'"),
        ("tokenizer.json", {"suffix_indicator": "@@"}, "suffix_indicator must be '##'; found '@@'"),
        ("tokenizer.json", {"split": False}, "split must be True; found 'False'"),
    ],
)
def test_rejects_other_settings(preset, file, changes, message):
    preset.files[file]["config"].update(changes)
    if file == "config.json":
        preset.files["task.json"]["config"]["backbone"]["config"].update(changes)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        read_checkpoint(preset.write())


def test_rejects_contradictions(preset):
    preset.files["task.json"]["config"]["backbone"]["config"]["num_heads"] = 1
    with pytest.raises(ValueError, match=r"task.json: its backbone differs from that of .*config.json"):
        read_checkpoint(preset.write())
    del preset.files["task.json"]["config"]["backbone"]
    preset.files["metadata.json"] = {"label_names": ["a", "b"]}
    with pytest.raises(ValueError, match="label_names must be 3 distinct strings"):
        read_checkpoint(preset.write())
    preset.files["metadata.json"] = {"label_names": ["a", "b", "c"], "problem_type": "other"}
    with pytest.raises(ValueError, match="problem_type is unknown: 'other'"):
        read_checkpoint(preset.write())


def test_requires_every_tensor(preset):
    for part, name in (("encoder", "layers/dense/vars/1"), ("logits", "layers/dense/vars/0")):
        tensor = preset.tensors[part].pop(name)
        with pytest.raises(ValueError, match=rf"{name}' .*, found no such tensor"):
            read_checkpoint(preset.write())
        preset.tensors[part][name] = tensor
    name = "layers/transformer_encoder/_self_attention_layer/query_dense/vars/0"
    preset.tensors["encoder"][name] = preset.tensors["encoder"][name].astype("i1")
    with pytest.raises(ValueError, match=rf"{name}' .*found int8 \(a quantized file"):
        read_checkpoint(preset.write())
    (preset.path / "task.weights.h5").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"task.weights.h5: expected an HDF5 file"):
        read_checkpoint(preset.path)


@pytest.mark.parametrize("name", ["classifier", "backbone"])
def test_reproduces_outputs(shared, name):
    folder = shared / "golden" / "formats" / "keras_hub_preset" / name
    expected = np.load(folder / "expected.npz")
    ids = {name: expected[name] for name in ("token_ids", "segment_ids", "padding_mask")}
    real = ids["padding_mask"].astype(bool)
    encoder = BertEncoder.from_checkpoint(folder)
    outputs = encoder(ids)
    assert not encoder.checkpoint_report.random
    found, wanted = np.asarray(outputs["sequence_output"]), expected["hidden_states"][-1]
    np.testing.assert_allclose(found[real], wanted[real], rtol=0, atol=1e-5)
    np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], rtol=0, atol=1e-5)
    if name == "classifier":
        classifier = BertClassifier.from_checkpoint(folder, sequence_length=24)
        assert not classifier.checkpoint_report.random and not classifier.checkpoint_report.unused
        np.testing.assert_allclose(classifier(ids), expected["logits"], rtol=0, atol=1e-5)
