import json
import struct

import numpy as np
import pytest

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.weights import google_bert, model_garden
from keras_bert.weights.checkpoint_reader import read_checkpoint
from keras_bert.weights.crc32c import masked_crc32c
from tests.weights.conftest import SIZES
from tests.weights.tensor_bundles import (
    STRING,
    encode_entry,
    encode_field,
    encode_varint,
    make_object,
    write_bundle,
)

FORMATS = "golden/formats"
FOLDERS = ["encoder", "encoder_model_key", "pretrainer", "classifier"]
HIDDEN, HEADS, SIZE, INTERMEDIATE = 4, 2, 2, 6


def make_encoder(generator, functional):
    """Returns nested attributes of an encoder of the Model Garden with random weights."""

    def layer(**shapes):
        return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    def layer_norm():
        return layer(gamma=(HIDDEN,), beta=(HIDDEN,))

    def block():
        parts = {
            f"_{name}_dense": layer(kernel=(HIDDEN, HEADS, SIZE), bias=(HEADS, SIZE))
            for name in ("query", "key", "value")
        }
        output = {"_output_dense": layer(kernel=(HEADS, SIZE, HIDDEN), bias=(HIDDEN,))}
        return {
            "_attention_layer": parts | (output if functional else {}),
            **({} if functional else {"_attention_output_dense": output["_output_dense"]}),
            "_attention_layer_norm": layer_norm(),
            "_intermediate_dense": layer(kernel=(HIDDEN, INTERMEDIATE), bias=(INTERMEDIATE,)),
            "_output_dense": layer(kernel=(INTERMEDIATE, HIDDEN), bias=(HIDDEN,)),
            "_output_layer_norm": layer_norm(),
        }

    layers = [layer(embeddings=(rows, HIDDEN)) for rows in (7, 8, 2)] + [layer_norm()]
    blocks, pooler = [block(), block()], layer(kernel=(HIDDEN, HIDDEN), bias=(HIDDEN,))
    if functional:
        return {f"layer_with_weights-{index}": part for index, part in enumerate([*layers, *blocks, pooler])}
    names = ("_embedding_layer", "_position_embedding_layer", "_type_embedding_layer", "_embedding_norm_layer")
    numbered = {str(index): part for index, part in enumerate(blocks)}
    return {**dict(zip(names, layers, strict=True)), "_transformer_layers": numbered, "_pooler_layer": pooler}


def write(folder, attributes):
    """Writes a checkpoint of nested attributes, with its configuration."""
    (folder / "bert_config.json").write_text(json.dumps({**SIZES, "hidden_act": "gelu"}))
    make_object(attributes).write(str(folder / "bert_model.ckpt"))
    return folder


@pytest.fixture
def generator():
    return np.random.default_rng(0)


# === What the original wrote ===


@pytest.mark.parametrize("name", FOLDERS)
def test_reads_the_weights_of_the_original(shared, name):
    folder = shared / FORMATS / "tensorflow_models_tf2" / name
    checkpoint, expected = read_checkpoint(folder), read_checkpoint(shared / FORMATS / "google_tf1" / "pretrained")
    assert checkpoint.source == "model_garden" and google_bert.find(folder) is None
    assert model_garden.find(checkpoint.path.with_name(f"{checkpoint.path.name}.index")) == checkpoint.path
    assert checkpoint.encoder_arguments == expected.encoder_arguments
    for path, array in checkpoint.arrays.items():
        if path in expected.arrays:
            np.testing.assert_array_equal(array, expected.arrays[path])
    others = {path for path in checkpoint.arrays if not path.startswith("encoder/")}
    masked_lm = {path for path in expected.arrays if path.startswith("masked_lm/")}
    assert others == {"pretrainer": masked_lm, "classifier": {"logits/kernel", "logits/bias"}}.get(name, set())
    pooler = {f"encoder/layer_with_weights-7/{leaf}/.ATTRIBUTES/VARIABLE_VALUE" for leaf in ("kernel", "bias")}
    assert set(checkpoint.unused) == (pooler if name == "pretrainer" else set())
    assert checkpoint.skipped_optimizer_slots == {"encoder_model_key": 1, "classifier": 2}.get(name, 0)
    assert checkpoint.vocabulary == folder / "vocab.txt"


@pytest.mark.parametrize(
    ("name", "model"), [("encoder", BertEncoder), ("classifier", BertClassifier), ("pretrainer", BertPretrainer)]
)
def test_reproduces_the_outputs_of_the_original(shared, name, model):
    folder = shared / FORMATS / "tensorflow_models_tf2" / name
    with np.load(folder / "expected.npz") as file:
        expected = dict(file)
    inputs = {key: expected[key] for key in ("token_ids", "segment_ids", "padding_mask")}
    mask = inputs["padding_mask"] == 1
    loaded = model.from_checkpoint(folder)
    if name == "encoder":
        outputs = loaded(inputs)
        np.testing.assert_allclose(outputs["sequence_output"][mask], expected["sequence_output"][mask], atol=1e-5)
        np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], atol=1e-5)
    elif name == "classifier":
        np.testing.assert_allclose(loaded(inputs), expected["logits"], atol=1e-5)
    else:
        positions = np.tile(np.arange(mask.shape[1], dtype=np.int32), (len(mask), 1))
        outputs = loaded({**inputs, "masked_positions": positions})
        np.testing.assert_allclose(outputs["masked_logits"][mask], expected["mlm_logits"][mask], atol=1e-5)


# === Own files ===


@pytest.mark.parametrize("functional", [True, False])
def test_attributes_of_both_kinds_of_encoders(tmp_path, generator, functional):
    attributes = make_encoder(generator, functional)
    checkpoint = read_checkpoint(write(tmp_path, {"encoder": attributes}))
    arrays = checkpoint.arrays
    assert len(arrays) == 31 and not checkpoint.unused
    block = attributes["layer_with_weights-5"] if functional else attributes["_transformer_layers"]["1"]
    attention = block["_attention_layer"]
    output = attention["_output_dense"] if functional else block["_attention_output_dense"]
    ours = "encoder/transformer_block_1/self_attention"
    kernels, biases = (
        [attention[f"_{name}_dense"][leaf] for name in ("query", "key", "value")] for leaf in ("kernel", "bias")
    )
    kernel = np.concatenate([kernel.reshape(HIDDEN, HIDDEN) for kernel in kernels], axis=1)
    np.testing.assert_array_equal(arrays[f"{ours}/query_key_value/kernel"], kernel)
    np.testing.assert_array_equal(arrays[f"{ours}/query_key_value/bias"], np.concatenate(biases).reshape(-1))
    np.testing.assert_array_equal(arrays[f"{ours}/output/kernel"], output["kernel"].reshape(HIDDEN, HIDDEN))


def test_variables_of_the_attention_are_split_as_they_are_joined():
    stored = model_garden.HeadsVariable(("q", "k", "v"), num_heads=2, heads_axis=1)
    array = np.arange(48, dtype=np.float32).reshape(4, 12)
    parts = stored.split(array)
    assert {name: part.shape for name, part in parts.items()} == stored.file_shapes((4, 12))
    np.testing.assert_array_equal(stored.join(list(parts.values())), array)


@pytest.mark.parametrize("inner", [True, False])
def test_classifier_has_its_own_pooler_or_the_one_of_the_encoder(tmp_path, generator, inner):
    def dense(units):
        return {"kernel": generator.standard_normal((4, units)).astype("float32"), "bias": np.zeros(units, "float32")}

    encoder, own = make_encoder(generator, functional=True), dense(4)
    head = {"out_proj": dense(3), **({"dense": own} if inner else {})}
    slots = {"optimizer": {"iter": np.int64(3)}}
    checkpoint = read_checkpoint(write(tmp_path, {"model": {"_network": encoder, "classifier": head}, **slots}))
    pooler = own if inner else encoder["layer_with_weights-6"]
    np.testing.assert_array_equal(checkpoint.arrays["encoder/pooler/kernel"], pooler["kernel"])
    np.testing.assert_array_equal(checkpoint.arrays["logits/kernel"], head["out_proj"]["kernel"])
    assert checkpoint.classifier_arguments["num_labels"] == 3
    assert len(checkpoint.unused) == (2 if inner else 0) and checkpoint.skipped_optimizer_slots == 1


@pytest.mark.parametrize(
    ("attribute", "units", "ours"), [("classifier", 5, "token_logits"), ("span_labeling", 2, "spans")]
)
def test_heads_of_tokens_and_spans(tmp_path, generator, attribute, units, ours):
    dense = {"kernel": generator.standard_normal((4, units)).astype("float32"), "bias": np.zeros(units, "float32")}
    head = dense if attribute == "classifier" else {"layer_with_weights-0": dense}
    checkpoint = read_checkpoint(write(tmp_path, {"_network": make_encoder(generator, True), attribute: head}))
    np.testing.assert_array_equal(checkpoint.arrays[f"{ours}/kernel"], dense["kernel"])


# === Files that are refused ===


def write_graph(prefix, graph):
    """Writes a checkpoint of a graph of objects only, with right checksums."""
    length = struct.pack("<I", len(graph))
    checksum = struct.pack("<I", masked_crc32c(length))
    data = encode_varint(len(graph)) + checksum + graph
    entry = encode_entry((), len(data), STRING, checksum=masked_crc32c(length + checksum + graph))
    write_bundle(prefix, [(b"_CHECKPOINTABLE_OBJECT_GRAPH", entry)], data)


def test_configuration_must_be_that_of_the_weights(tmp_path, generator):
    write(tmp_path, {"encoder": make_encoder(generator, functional=True)})
    path = tmp_path / "bert_config.json"
    for changed, message in [
        ({"num_hidden_layers": 10**8}, "num_hidden_layers is 100000000, but .* has the tensors of 2 layers"),
        ({"num_attention_heads": 4}, r"expected shape \[4, 4, 1\], found \[4, 2, 2\]"),
        ({"vocab_size": 9}, r"expected shape \[9, 4\], found \[7, 4\]"),
    ]:
        path.write_text(json.dumps({**SIZES, "hidden_act": "gelu", **changed}))
        with pytest.raises(ValueError, match=message):
            read_checkpoint(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"bert_config.json: there is no such file"):
        read_checkpoint(tmp_path)


def test_other_models_are_refused(tmp_path, generator):
    encoder = make_encoder(generator, functional=False)
    projection = {"kernel": np.zeros((4, 4), "float32")}
    for attributes, message in [
        ({"step": np.int64(1)}, "expected one encoder of the TensorFlow Model Garden, found 0"),
        ({"generator": encoder, "discriminator": encoder}, "expected one encoder .* found 2"),
        ({"encoder": {**encoder, "_embedding_projection": projection}}, "not a BERT: .*_embedding_projection/kernel"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_checkpoint(write(tmp_path, attributes))
    del encoder["_transformer_layers"]["0"]["_output_dense"]["kernel"]
    with pytest.raises(
        ValueError, match=r"'\(no attribute kernel\)' \(our 'encoder/transformer_block_0/output/kernel'"
    ):
        read_checkpoint(write(tmp_path, {"encoder": encoder}))


@pytest.mark.parametrize(
    "graph",
    [b"", b"\x0a\x04\x0a\x02\x08\x05", b"\x0a\x0b\x0a\x09\x08" + b"\xff" * 7 + b"\x01", b"\x08\x01", b"\x0a\x50"],
)
def test_damaged_graphs_are_refused(tmp_path, graph):
    (tmp_path / "bert_config.json").write_text(json.dumps({**SIZES, "hidden_act": "gelu"}))
    write_graph(tmp_path / "bert_model.ckpt", graph)
    with pytest.raises(ValueError, match=r"graph of objects, _CHECKPOINTABLE_OBJECT_GRAPH, is damaged"):
        read_checkpoint(tmp_path)


def test_wide_graphs_are_refused_quickly(tmp_path):
    # 40,000 objects, each with a child for every name that the reader looks for.
    (tmp_path / "bert_config.json").write_text(json.dumps({**SIZES, "hidden_act": "gelu"}))
    children = [("_embedding_layer", 0), ("embeddings", 0), ("_attention_layer", 0), ("_transformer_layers", 0)]
    children += [(str(index), index) for index in range(40_000)]
    attribute = encode_field(2, encode_field(1, b"VARIABLE_VALUE") + encode_field(3, b"x"))
    first = b"".join(
        encode_field(1, encode_field(1, number) + encode_field(2, name.encode())) for name, number in children
    )
    others = encode_field(1, encode_field(1, encode_field(2, b"_attention_layer"))) * 39_999
    write_graph(tmp_path / "bert_model.ckpt", encode_field(1, first + attribute) + others)
    with pytest.raises(ValueError, match="expected one encoder"):
        read_checkpoint(tmp_path)
