import json
import os

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.weights import google_bert
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.layout import expected_encoder_shapes, expected_pretraining_shapes
from tests.weights.conftest import GOOGLE_NAMES, assert_encoder_equals_file

DATA = "bert_model.ckpt.data-00000-of-00001"
INDEX = "bert_model.ckpt.index"


def load_tensors(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def rewrite(folder, change):
    """Applies `change` to the dict of all tensors of a checkpoint and writes it back."""
    prefix = str(folder / "bert_model.ckpt")
    tensors = load_tensors(prefix)
    change(tensors)
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=list(tensors), shape_and_slices=[""] * len(tensors), tensors=list(tensors.values())
    )


def test_reads_arrays_of_reference_checkpoint(shared):
    folder = shared / "data" / "checkpoints" / "tf1_tiny"
    checkpoint, tensors = read_checkpoint(folder), load_tensors(folder / "bert_model.ckpt")
    arrays = checkpoint.arrays
    assert checkpoint.source == "google_bert" and checkpoint.path == folder / "bert_model.ckpt"
    for path in (folder, folder / "bert_model.ckpt", folder / INDEX):
        assert google_bert.find(path) == folder / "bert_model.ckpt"
    sizes = checkpoint.encoder_arguments
    assert (sizes["hidden_act"], sizes["layer_norm_eps"]) == ("gelu_new", 1e-12)
    assert checkpoint.classifier_arguments is None and checkpoint.lower_case is None
    expected = {**expected_encoder_shapes(sizes), **expected_pretraining_shapes(sizes)}
    assert {path: array.shape for path, array in arrays.items()} == expected
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    assert_encoder_equals_file(arrays, tensors, GOOGLE_NAMES, transposed=False)


def test_reads_pretraining_heads_and_counts_optimizer_slots(shared):
    folder = shared / "data" / "checkpoints" / "tf1_tiny"
    checkpoint, tensors = read_checkpoint(folder), load_tensors(folder / "bert_model.ckpt")
    slots = {name for name in tensors if name.endswith(("/adam_m", "/adam_v"))} | {"global_step"}
    assert checkpoint.skipped_optimizer_slots == len(slots) > 2
    heads = {name for name in tensors if name.startswith("cls/")} - slots
    read = {path: names for path, names in checkpoint.tensor_names.items() if not path.startswith("encoder/")}
    assert {name for names in read.values() for name in names} == heads and len(heads) == len(read) == 7
    assert checkpoint.unused == ()
    kernel = tensors["cls/predictions/transform/dense/kernel"]
    np.testing.assert_array_equal(checkpoint.arrays["masked_lm/transform/kernel"], kernel)
    np.testing.assert_array_equal(
        checkpoint.arrays["next_sentence/kernel"], tensors["cls/seq_relationship/output_weights"].T
    )


@pytest.mark.parametrize(("num_outputs", "stored", "ours"), [(3, "output", "logits"), (2, "cls/squad/output", "spans")])
def test_reads_heads_slots_and_half_precision(tf1_tiny, num_outputs, stored, ours):
    before = read_checkpoint(tf1_tiny).skipped_optimizer_slots
    weights = np.arange(4 * num_outputs, dtype=np.float32).reshape(-1, 4)
    bias = np.arange(num_outputs, dtype=np.float32)
    slots = {f"{stored}_weights/adam_m": weights, f"{stored}_bias/lamb_v": bias, f"{stored}_bias/Adam_1": bias}
    half = {"bert/pooler/dense/bias": tf.zeros([4], tf.bfloat16)}
    head = {f"{stored}_weights": weights, f"{stored}_bias": bias}
    rewrite(tf1_tiny, lambda tensors: tensors.update(head | slots | half))
    checkpoint = read_checkpoint(tf1_tiny)
    np.testing.assert_array_equal(checkpoint.arrays[f"{ours}/kernel"], weights.T)
    np.testing.assert_array_equal(checkpoint.arrays[f"{ours}/bias"], bias)
    assert checkpoint.tensor_names[f"{ours}/kernel"] == (f"{stored}_weights",)
    assert checkpoint.skipped_optimizer_slots == before + len(slots)
    assert not any("squad" in name for name in checkpoint.unused)
    assert checkpoint.arrays["encoder/pooler/bias"].dtype == np.float32
    if ours == "logits":
        arguments = {"num_labels": 3, "label_names": None, "problem_type": None, "classifier_dropout": 0.1}
        assert checkpoint.classifier_arguments == arguments


def test_reads_checkpoint_without_pooler(tf1_tiny):
    names = [f"bert/pooler/dense/{leaf}" for leaf in ("kernel", "bias")]
    rewrite(tf1_tiny, lambda tensors: [tensors.pop(name) for name in names])
    arrays = read_checkpoint(tf1_tiny).arrays
    assert "encoder/pooler/kernel" not in arrays and "encoder/transformer_block_1/output/bias" in arrays


# === Broken files ===


@pytest.mark.parametrize(("file", "keep"), [(DATA, 0), (DATA, 4000), (INDEX, 100)])
def test_rejects_truncated_file(tf1_tiny, file, keep):
    os.truncate(tf1_tiny / file, keep)
    with pytest.raises(ValueError, match=rf"bert_model.ckpt: cannot be read .*'{file}': {keep}\b"):
        read_checkpoint(tf1_tiny)


def test_rejects_damaged_files(tf1_tiny):
    data, config = tf1_tiny / DATA, tf1_tiny / "bert_config.json"
    size = data.stat().st_size
    data.write_bytes(bytes(size // 2) + data.read_bytes()[size // 2 :])
    with pytest.raises(ValueError, match="Checksum does not match"):
        read_checkpoint(tf1_tiny)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"hidden_act": "gelu_new"}))
    with pytest.raises(ValueError, match=r"hidden_act must be one of .*; found 'gelu_new'"):
        read_checkpoint(tf1_tiny)
    data.unlink()
    with pytest.raises(FileNotFoundError, match=r"bert_model.ckpt: cannot be read.*No such file"):
        read_checkpoint(tf1_tiny)


def test_compares_the_layers_with_the_file_before_anything_is_built(tf1_tiny):
    config = tf1_tiny / "bert_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": 10**8}))
    with pytest.raises(
        ValueError, match=r"num_hidden_layers is 100000000, but .*bert_model.ckpt has the tensors of \d "
    ):
        read_checkpoint(tf1_tiny)


def test_leaves_object_based_checkpoints_to_other_readers(tmp_path):
    tf.train.Checkpoint(step=tf.Variable(1)).write(str(tmp_path / "bert_model.ckpt"))
    assert google_bert.find(tmp_path) is None


# === Finding the checkpoint ===


def test_state_file_selects_the_checkpoint(tf1_tiny):
    for path in list(tf1_tiny.glob("bert_model.ckpt.*")):
        path.rename(tf1_tiny / path.name.replace("bert_model.ckpt", "model.ckpt-343"))
    assert google_bert.find(tf1_tiny) == tf1_tiny / "model.ckpt-343"
    (tf1_tiny / "model.ckpt-0.index").write_bytes(b"")
    with pytest.raises(ValueError, match=r"several checkpoints, \['model.ckpt-0', 'model.ckpt-343'\]"):
        google_bert.find(tf1_tiny)
    lines = {"model_checkpoint_path": "model.ckpt-343", "all_model_checkpoint_paths": "model.ckpt-0"}
    state = tf1_tiny / "checkpoint"
    state.write_text("".join(f'{key}: "/home/someone/{name}"\n' for key, name in lines.items()))
    assert google_bert.find(tf1_tiny) == google_bert.find(state) == tf1_tiny / "model.ckpt-343"
    assert len(read_checkpoint(state).arrays) == 38


def test_rejects_state_file_without_checkpoint(tf1_tiny):
    (tf1_tiny / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
    with pytest.raises(FileNotFoundError, match=r"names 'model.ckpt-9', but .*model.ckpt-9.index does not exist"):
        google_bert.find(tf1_tiny)
    (tf1_tiny / "checkpoint").write_text("")
    with pytest.raises(ValueError, match="expected a line model_checkpoint_path"):
        google_bert.find(tf1_tiny)
