import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_bert
from keras_bert.weights.safetensors_file import open_safetensors


@pytest.fixture
def encoder():
    return keras_bert.BertEncoder(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, seed=3)


def test_weights_are_read_as_close_as_the_steps_between_integers(encoder, tmp_path):
    kernel = encoder.variables_by_path()["embeddings/token_embeddings"]
    kernel.assign(np.concatenate([np.zeros([1, 8]), kernel.numpy()[1:]]))  # a row without a largest value
    encoder.save_checkpoint(tmp_path / "int8", dtype="int8")
    restored = keras_bert.BertEncoder.from_checkpoint(tmp_path / "int8").variables_by_path()
    stored = load_file(tmp_path / "int8" / "model.safetensors")
    matrices = {name for name, array in stored.items() if array.ndim == 2 and not name.endswith("_scale")}
    assert {name for name, array in stored.items() if array.dtype == np.int8} == matrices
    assert {name.removesuffix("_scale") for name in stored if name.endswith("_scale")} == matrices
    for path, variable in encoder.variables_by_path().items():
        values, other = variable.numpy(), restored[path].numpy()
        # A kernel's rows in the file are its outputs, the last axis or axes here; the largest step is a bound for all.
        step = np.abs(values).max() / 127 if values.ndim > 1 else 0
        assert np.abs(values - other).max() <= step / 2 + 1e-7, path


def test_other_libraries_refuse_the_folder_and_pooling_is_kept(encoder, tmp_path):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
    tokenizer = keras_bert.BertTokenizer(vocabulary, lower_case=True)
    embedder = keras_bert.BertTextEmbedder(encoder, keras_bert.BertPreprocessor(tokenizer, 8), pooling="max")
    embedder.save_checkpoint(tmp_path / "int8", dtype="int8")
    assert json.loads((tmp_path / "int8" / "config.json").read_text())["model_type"] == "keras_bert"
    assert keras_bert.BertTextEmbedder.from_checkpoint(tmp_path / "int8").pooling == "max"


@pytest.mark.parametrize("change", ["missing", "shape", "type", "zero_point"])
def test_integers_without_a_fitting_scale_are_refused(encoder, tmp_path, change):
    encoder.save_checkpoint(tmp_path / "int8", dtype="int8")
    weights = tmp_path / "int8" / "model.safetensors"
    tensors = load_file(weights)
    name = "embeddings.word_embeddings.weight_scale"
    scale = tensors.pop(name)
    if change != "missing":
        tensors[name] = {"shape": scale[:-1], "type": scale.astype(np.int32)}.get(change, scale)
    if change == "zero_point":  # of other programs, whose integers are not symmetric
        tensors[name.replace("_scale", "_zero_point")] = np.ones(scale.shape, np.int8)
    save_file(tensors, weights)
    with pytest.raises(ValueError, match=r"word_embeddings\.weight.*I8"):
        keras_bert.BertEncoder.from_checkpoint(tmp_path / "int8")


@pytest.mark.parametrize("shape", [(), (5,), (2, 1, 3)])
def test_only_matrices_have_scales(shape, tmp_path):
    tensors = {"x": np.ones(shape, np.int8), "x_scale": np.ones((*shape[:1], 1), np.float32)}
    save_file(tensors, tmp_path / "model.safetensors")
    with open_safetensors(tmp_path / "model.safetensors") as file:
        assert file.entries["x"].dtype == "I8"
        assert file.read("x").shape == shape  # a product with the scales would have another


def test_a_nan_as_scale_is_refused(encoder, tmp_path):
    encoder.save_checkpoint(tmp_path / "int8", dtype="int8")
    tensors = load_file(tmp_path / "int8" / "model.safetensors")
    tensors["embeddings.word_embeddings.weight_scale"][3] = np.nan
    save_file(tensors, tmp_path / "int8" / "model.safetensors")
    with pytest.raises(ValueError, match=r"NaN or infinite: embeddings\.word_embeddings"):
        keras_bert.BertEncoder.from_checkpoint(tmp_path / "int8")


def test_keras_hub_has_no_such_format(encoder, tmp_path):
    with pytest.raises(ValueError, match=r"one of .*bfloat16.*got dtype='int8'"):
        encoder.save_checkpoint(tmp_path / "hub", dtype="int8", format="keras_hub")
