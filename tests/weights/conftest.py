"""Toy checkpoints with seeded random weights, and copies of the reference ones that a test may break."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_bert.weights.hugging_face import map_bert
from keras_bert.weights.layout import expected_encoder_shapes

SIZES = {
    "vocab_size": 7,
    "hidden_size": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "max_position_embeddings": 8,
    "type_vocab_size": 2,
}


# Substitutions that turn the path of a variable into the name of a tensor of google-research/bert, without "bert/".
GOOGLE_NAMES = [
    ("^encoder/transformer_block_", "encoder/layer_"),
    ("^encoder/(embeddings|pooler)", r"\1"),
    ("token_embeddings", "word_embeddings"),
    ("segment_embeddings", "token_type_embeddings"),
    ("self_attention_layer_norm", "attention/output/LayerNorm"),
    ("self_attention/output", "attention/output/dense"),
    ("self_attention", "attention/self"),
    ("output_layer_norm", "output/LayerNorm"),
    ("layer_norm", "LayerNorm"),
    (r"(pooler|intermediate|layer_\d+/output)/(kernel|bias)", r"\1/dense/\2"),
]
HUGGING_FACE_NAMES = [
    *GOOGLE_NAMES,
    ("_embeddings$", "_embeddings.weight"),
    ("layer_", "layer."),
    ("/(kernel|gamma)$", ".weight"),
    ("/beta$", ".bias"),
    ("/", "."),
]


def assert_encoder_equals_file(arrays, tensors, names, transposed):
    """Compares the arrays of an encoder with the tensors of a file, which may store kernels as [outputs, inputs]."""
    tensors = {re.sub("^bert[/.]", "", name): tensor for name, tensor in tensors.items()}
    for path in [path for path in arrays if path.startswith("encoder/")]:
        parts = []
        for part in ["query", "key", "value"] if "query_key_value" in path else [""]:
            name = path.replace("query_key_value", part)
            for pattern, replacement in names:
                name = re.sub(pattern, replacement, name)
            parts.append(tensors[name].T if transposed and path.endswith("/kernel") else tensors[name])
        np.testing.assert_array_equal(arrays[path], np.concatenate(parts, axis=-1))


class HuggingFaceFolder:
    """A checkpoint that a test may change before `write` puts it on the disk."""

    def __init__(self, path: Path):
        random = np.random.default_rng(0)
        shapes = expected_encoder_shapes(SIZES)
        self.path = path
        self.config = {**SIZES, "model_type": "bert", "hidden_act": "gelu", "architectures": ["BertModel"]}
        self.tensors = {
            name: random.standard_normal(shape).astype(np.float32)
            for variable, stored in map_bert(SIZES["num_hidden_layers"], names=["bert."]).items()
            for name, shape in stored.file_shapes(shapes[variable]).items()
        }

    def with_classifier(self, num_labels=3):
        self.config["architectures"] = ["BertForSequenceClassification"]
        self.tensors["classifier.weight"] = np.arange(4 * num_labels, dtype=np.float32).reshape(num_labels, 4)
        self.tensors["classifier.bias"] = np.arange(num_labels, dtype=np.float32)
        return self

    def write(self) -> Path:
        self.path.mkdir(exist_ok=True)
        (self.path / "config.json").write_text(json.dumps(self.config))
        (self.path / "vocab.txt").write_text("".join(f"word{index}\n" for index in range(SIZES["vocab_size"])))
        save_file(self.tensors, self.path / "model.safetensors")
        return self.path


@pytest.fixture
def hugging_face_folder(tmp_path):
    return HuggingFaceFolder(tmp_path / "hugging_face")


@pytest.fixture
def tf1_tiny(shared, tmp_path) -> Path:
    """A copy of the reference TF1 checkpoint, to break."""
    return Path(shutil.copytree(shared / "data" / "checkpoints" / "tf1_tiny", tmp_path / "tf1_tiny"))
