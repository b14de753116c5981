"""Toy checkpoints with seeded random weights, and copies of the reference ones that a test may break."""

import json
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


class HuggingFaceFolder:
    """A folder that a test changes stored by stored; `write` puts it on the disk."""

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
