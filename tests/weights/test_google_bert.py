import json
import os

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.google_bert import find_google_bert_prefix
from keras_bert.weights.layout import expected_encoder_shapes, expected_pretraining_shapes, split_query_key_value

DATA = "bert_model.ckpt.data-00000-of-00001"
INDEX = "bert_model.ckpt.index"


def load_tensors(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def save_tensors(prefix, tensors):
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )


def rewrite(folder, change):
    """Applies `change` to the dict of all tensors of a checkpoint and writes it back."""
    tensors = load_tensors(folder / "bert_model.ckpt")
    change(tensors)
    save_tensors(folder / "bert_model.ckpt", tensors)


def test_reads_arrays_of_reference_checkpoint(shared):
    folder = shared / "data" / "checkpoints" / "tf1_tiny"
    checkpoint, tensors = read_checkpoint(folder), load_tensors(folder / "bert_model.ckpt")
    arrays = checkpoint.arrays
    assert checkpoint.source == "google_bert" and checkpoint.path == folder / "bert_model.ckpt"
    sizes = checkpoint.encoder_arguments
    assert (sizes["hidden_act"], sizes["layer_norm_eps"]) == ("gelu_new", 1e-12)
    assert checkpoint.classifier_arguments is None and checkpoint.lower_case is None
    expected = {**expected_encoder_shapes(sizes), **expected_pretraining_shapes(sizes)}
    assert {path: array.shape for path, array in arrays.items()} == expected
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    for path, name in {
        "embeddings/token_embeddings": "embeddings/word_embeddings",
        "embeddings/segment_embeddings": "embeddings/token_type_embeddings",
        "embeddings/position_embeddings": "embeddings/position_embeddings",
        "embeddings/layer_norm/gamma": "embeddings/LayerNorm/gamma",
        "transformer_block_0/self_attention/output/kernel": "encoder/layer_0/attention/output/dense/kernel",
        "transformer_block_1/self_attention_layer_norm/beta": "encoder/layer_1/attention/output/LayerNorm/beta",
        "transformer_block_1/intermediate/kernel": "encoder/layer_1/intermediate/dense/kernel",
        "transformer_block_0/output/kernel": "encoder/layer_0/output/dense/kernel",
        "transformer_block_0/output/bias": "encoder/layer_0/output/dense/bias",
        "transformer_block_0/output_layer_norm/gamma": "encoder/layer_0/output/LayerNorm/gamma",
        "pooler/kernel": "pooler/dense/kernel",
    }.items():
        np.testing.assert_array_equal(arrays[f"encoder/{path}"], tensors[f"bert/{name}"])
    for leaf in ("kernel", "bias"):
        parts = split_query_key_value(arrays[f"encoder/transformer_block_1/self_attention/query_key_value/{leaf}"])
        for name, part in zip(["query", "key", "value"], parts, strict=True):
            np.testing.assert_array_equal(part, tensors[f"bert/encoder/layer_1/attention/self/{name}/{leaf}"])


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


def test_counts_slots_of_other_optimizers(tf1_tiny):
    before = read_checkpoint(tf1_tiny).skipped_optimizer_slots

    def add(tensors):
        pooler = tensors["bert/pooler/dense/kernel"]
        tensors.update({"bert/pooler/dense/kernel/lamb_v": pooler, "bert/pooler/dense/kernel/Adam_1": pooler})

    rewrite(tf1_tiny, add)
    assert read_checkpoint(tf1_tiny).skipped_optimizer_slots == before + 2


def test_reads_head_of_run_classifier(tf1_tiny):
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    head = {"output_weights": weights, "output_bias": np.arange(3, dtype=np.float32), "output_weights/adam_m": weights}
    rewrite(tf1_tiny, lambda tensors: tensors.update(head))
    checkpoint = read_checkpoint(tf1_tiny)
    assert checkpoint.classifier_arguments == {
        "num_labels": 3,
        "label_names": None,
        "problem_type": None,
        "classifier_dropout": 0.1,
    }
    np.testing.assert_array_equal(checkpoint.arrays["logits/kernel"], weights.T)
    np.testing.assert_array_equal(checkpoint.arrays["logits/bias"], [0, 1, 2])
    assert checkpoint.tensor_names["logits/kernel"] == ("output_weights",)


def test_reads_head_of_run_squad(tf1_tiny):
    weights = np.arange(8, dtype=np.float32).reshape(2, 4)
    head = {"cls/squad/output_weights": weights, "cls/squad/output_bias": np.arange(2, dtype=np.float32)}
    rewrite(tf1_tiny, lambda tensors: tensors.update(head))
    checkpoint = read_checkpoint(tf1_tiny)
    np.testing.assert_array_equal(checkpoint.arrays["spans/kernel"], weights.T)
    np.testing.assert_array_equal(checkpoint.arrays["spans/bias"], [0, 1])
    assert not any("squad" in name for name in checkpoint.unused)


def test_reads_half_precision_as_float32(tf1_tiny):
    name = "bert/pooler/dense/bias"
    rewrite(tf1_tiny, lambda tensors: tensors.update({name: tf.cast(tensors[name], tf.bfloat16)}))
    assert read_checkpoint(tf1_tiny).arrays["encoder/pooler/bias"].dtype == np.float32


def test_reads_checkpoint_without_pooler(tf1_tiny):
    def remove(tensors):
        for name in [name for name in tensors if name.startswith("bert/pooler/")]:
            del tensors[name]

    rewrite(tf1_tiny, remove)
    arrays = read_checkpoint(tf1_tiny).arrays
    assert "encoder/pooler/kernel" not in arrays and "encoder/transformer_block_1/output/bias" in arrays


# === Broken files ===


def test_names_missing_tensor(tf1_tiny):
    rewrite(tf1_tiny, lambda tensors: tensors.pop("bert/encoder/layer_1/attention/self/key/kernel"))
    with pytest.raises(ValueError) as caught:
        read_checkpoint(tf1_tiny)
    assert (
        f"{tf1_tiny / 'bert_model.ckpt'}: tensor 'bert/encoder/layer_1/attention/self/key/kernel' (our "
        "'encoder/transformer_block_1/self_attention/query_key_value/kernel'): expected shape [4, 4], found no such"
    ) in str(caught.value)


@pytest.mark.parametrize(("file", "keep"), [(DATA, 0), (DATA, 4000), (INDEX, 100)])
def test_rejects_truncated_file(tf1_tiny, file, keep):
    os.truncate(tf1_tiny / file, keep)
    with pytest.raises(ValueError, match=rf"bert_model.ckpt: cannot be read .*'{file}': {keep}\b"):
        read_checkpoint(tf1_tiny)


def test_rejects_corrupt_bytes(tf1_tiny):
    path = tf1_tiny / DATA
    content = bytearray(path.read_bytes())
    content[: len(content) // 2] = bytes(len(content) // 2)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="Checksum does not match"):
        read_checkpoint(tf1_tiny)


def test_rejects_missing_data_file(tf1_tiny):
    (tf1_tiny / DATA).unlink()
    with pytest.raises(ValueError, match=r"bert_model.ckpt: cannot be read .*No such file"):
        read_checkpoint(tf1_tiny)


def test_rejects_activation_names_of_hugging_face(tf1_tiny):
    path = tf1_tiny / "bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_act": "gelu_new"}))
    with pytest.raises(ValueError, match=r"hidden_act must be one of .*; found 'gelu_new'"):
        read_checkpoint(tf1_tiny)


def test_rejects_object_based_checkpoint(tf1_tiny):
    for path in tf1_tiny.glob("bert_model.ckpt.*"):
        path.unlink()
    tf.train.Checkpoint(step=tf.Variable(1)).write(str(tf1_tiny / "bert_model.ckpt"))
    with pytest.raises(ValueError, match="object-based checkpoint of TensorFlow 2"):
        read_checkpoint(tf1_tiny)


# === Finding the checkpoint ===


@pytest.mark.parametrize("name", ["", "bert_model.ckpt", INDEX])
def test_accepts_folder_prefix_and_index(shared, name):
    folder = shared / "data" / "checkpoints" / "tf1_tiny"
    assert find_google_bert_prefix(folder / name) == folder / "bert_model.ckpt"


def rename_checkpoint(folder, name):
    for path in list(folder.glob("bert_model.ckpt.*")):
        path.rename(folder / path.name.replace("bert_model.ckpt", name))


def test_accepts_any_checkpoint_name(tf1_tiny):
    rename_checkpoint(tf1_tiny, "model.ckpt-343")
    assert find_google_bert_prefix(tf1_tiny) == tf1_tiny / "model.ckpt-343"


def test_state_file_selects_the_checkpoint(tf1_tiny):
    rename_checkpoint(tf1_tiny, "model.ckpt-343")
    (tf1_tiny / "model.ckpt-0.index").write_bytes(b"")
    with pytest.raises(ValueError, match=r"several checkpoints, \['model.ckpt-0', 'model.ckpt-343'\]"):
        find_google_bert_prefix(tf1_tiny)
    state = tf1_tiny / "checkpoint"
    state.write_text(
        'model_checkpoint_path: "/home/someone/model.ckpt-343"\n'
        'all_model_checkpoint_paths: "/home/someone/model.ckpt-0"\n'
    )
    assert find_google_bert_prefix(tf1_tiny) == find_google_bert_prefix(state) == tf1_tiny / "model.ckpt-343"
    assert len(read_checkpoint(state).arrays) == 38


def test_rejects_state_file_without_checkpoint(tf1_tiny):
    (tf1_tiny / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
    with pytest.raises(FileNotFoundError, match=r"names 'model.ckpt-9', but .*model.ckpt-9.index does not exist"):
        find_google_bert_prefix(tf1_tiny)
    (tf1_tiny / "checkpoint").write_text("")
    with pytest.raises(ValueError, match="expected a line model_checkpoint_path"):
        find_google_bert_prefix(tf1_tiny)
