import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_bert.weights.encoder_kinds import ONE_BERT
from keras_bert.weights.layout import expected_classifier_shapes, expected_encoder_shapes
from keras_bert.weights.peft_adapter import Adapter, read_adapter, target_parts, write_adapter

ARGUMENTS = {
    "vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 6,
    "max_position_embeddings": 8, "type_vocab_size": 2,
}  # fmt: skip
SHAPES = {**expected_encoder_shapes(ARGUMENTS), **expected_classifier_shapes(4, 3)}
HEAD = ("logits/kernel", "logits/bias")
QUERY = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def make(targets=("query", "value"), rank=2):
    generator = np.random.default_rng(0)

    def array(*shape):
        return generator.normal(size=shape).astype("float32")

    matrices = {}
    for layer, parts in target_parts(targets).items():
        paths = [f"encoder/transformer_block_{block}/{layer}/kernel" for block in range(2)]
        for path in ["encoder/pooler/kernel"] if layer == "pooler" else paths:
            size_in, size_out = SHAPES[path]
            width = size_out // len(parts)
            matrices[path] = (array(size_in, rank * sum(parts)), array(rank, width * sum(parts)))
    return Adapter(rank, 4, 0.1, tuple(targets), matrices, {path: array(*SHAPES[path]) for path in HEAD})


def read(folder):
    return read_adapter(folder, ONE_BERT, ARGUMENTS, SHAPES, HEAD)


@pytest.fixture
def folder(tmp_path):
    return write_toy_adapter(tmp_path)


def write_toy_adapter(parent):
    return write_adapter(parent / "adapter", make(), ONE_BERT, ARGUMENTS, "bert")


def change_config(folder, **changes):
    config = json.loads((folder / CONFIG).read_text())
    config.update(changes)
    (folder / CONFIG).write_text(json.dumps(config))


def change_tensors(folder, change):
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


@pytest.mark.parametrize(
    ("targets", "written"),
    [
        (("query", "value"), ["query", "value"]),
        (("key", "attention.output.dense", "output.dense"), ["key", "attention.output.dense", "output.dense"]),
        (("key", "output.dense"), r".*\.(?:attention\.self\.key|layer\.\d+\.output\.dense)"),
        (("intermediate.dense", "pooler.dense"), ["intermediate.dense", "pooler.dense"]),
    ],
)
def test_reads_what_it_writes(targets, written, tmp_path):
    adapter = make(targets)
    again = read(write_adapter(tmp_path / "adapter", adapter, ONE_BERT, ARGUMENTS))
    assert (again.rank, again.alpha, again.dropout, again.targets) == (2, 4, 0.1, targets)
    assert again.matrices.keys() == adapter.matrices.keys()
    for path, pair in adapter.matrices.items():
        for one, two in zip(pair, again.matrices[path], strict=True):
            np.testing.assert_array_equal(one, two)
    for path in HEAD:
        np.testing.assert_array_equal(again.head[path], adapter.head[path])
    config = json.loads((tmp_path / "adapter" / CONFIG).read_text())
    assert config["target_modules"] == written
    assert (config["task_type"], config["modules_to_save"]) == ("SEQ_CLS", ["classifier"])


def test_takes_names_settings_and_types_of_other_writers(folder):
    expected = read(folder)
    change_config(folder, target_modules=["self.query", "value", "absent"], modules_to_save=["classifier", "score"])
    change_config(folder, eva_config=None, alora_invocation_tokens=None, corda_config={}, use_qalora=False)
    np.testing.assert_array_equal(read(folder).head["logits/bias"], expected.head["logits/bias"])
    change_config(folder, use_rslora=True, r=2, lora_alpha=4)
    assert read(folder).alpha == pytest.approx(4 * 2**0.5)  # divided by the root of the rank

    def to_encoder_in_float16(tensors):  # an adapter of BertModel, without a head
        for name in list(tensors):
            array = tensors.pop(name).astype("float16")
            if "classifier" not in name:
                tensors[name.replace(".bert.", ".")] = array

    change_tensors(folder, to_encoder_in_float16)
    change_config(folder, modules_to_save=None)
    again = read(folder)
    assert not again.head
    for path, (a, _) in expected.matrices.items():
        np.testing.assert_allclose(again.matrices[path][0], a, rtol=1e-2)
        assert again.matrices[path][0].dtype == "float32"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type must be 'LORA'; found 'IA3'"),
        ({"bias": "all"}, "bias must be 'none'; found 'all'"),
        ({"use_dora": True}, "use_dora is not supported"),
        ({"rank_pattern": {"query": 8}}, "rank_pattern is not supported"),
        ({"alpha_pattern": {"query": 8}}, "alpha_pattern is not supported"),
        ({"layers_to_transform": [0]}, "layers_to_transform is not supported"),
        ({"layer_replication": [[0, 1]]}, "layer_replication is not supported"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out is not supported"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices is not supported"),
        ({"a_setting_of_the_future": 1}, "a_setting_of_the_future is not supported"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights must be true, false or 'gaussian'; found 'pissa'"),
        ({"r": 3}, r"expected shape \[3, 4\], found \[2, 4\]"),
        ({"r": 0}, "r must be an integer of at least 1; found 0"),
        ({"r": True}, "r must be an integer"),
        ({"r": 10**30}, "expected shape"),
        ({"r": [2]}, "r must be an integer"),
        ({"lora_alpha": 0}, "lora_alpha must be a number above 0"),
        ({"lora_alpha": 10**400}, "an integer of 401 characters"),
        ({"lora_alpha": float("inf")}, "'Infinity' is not finite"),
        ({"lora_dropout": 10**39}, r"lora_dropout must be a number in \[0, 1\)"),
        ({"lora_dropout": "0.1"}, r"lora_dropout must be a number in \[0, 1\)"),
        ({"use_rslora": True, "r": 10**39}, "r must be an integer of at most"),
        ({"use_rslora": "yes"}, "use_rslora must be true or false"),
        ({"target_modules": 5}, "target_modules must be a list of names"),
        ({"target_modules": [["query"]]}, "target_modules must be a list of names"),
        ({"target_modules": ["q_proj"]}, "has adapters of .*attention.self.query.*which target_modules"),
        ({"target_modules": ["query"]}, "has adapters of .*value.* does not name"),
        ({"target_modules": ["query", "value", "output.dense"]}, "found no such tensor"),
        ({"target_modules": ["layer.0.attention.self.query", "value"]}, "does not name"),
        ({"modules_to_save": "classifier"}, "modules_to_save must be a list of names"),
        ({"modules_to_save": ["classifier", "pooler"]}, "modules_to_save must be modules of the head; found 'pooler'"),
    ],
)
def test_refuses_settings_by_name(folder, changes, message):
    change_config(folder, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        read(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(QUERY), "found no such tensor"),
        (lambda tensors: tensors.update({QUERY: np.zeros([2, 5], "float32")}), r"expected shape \[2, 4\]"),
        (lambda tensors: tensors.update({QUERY: np.zeros([2, 4], "int8")}), "expected a float type"),
        (lambda tensors: tensors.update({QUERY: np.full([2, 4], np.nan, "float32")}), "NaN or infinite values"),
        (
            lambda tensors: tensors.update({QUERY.replace("lora_A.weight", "lora_magnitude_vector"): np.ones(4)}),
            "lora_magnitude_vector' do not belong",
        ),
        (
            lambda tensors: tensors.update({"base_model.model.bert.pooler.dense.weight": np.ones([4, 4])}),
            "pooler.dense.weight' do not belong",
        ),
        (lambda tensors: tensors.pop("base_model.model.classifier.bias"), "there is no tensor .*classifier.bias"),
        (lambda tensors: [tensors.pop(name) for name in list(tensors) if "lora" in name], "found no such tensor"),
        (lambda tensors: [tensors.pop(name) for name in list(tensors) if "layer.1." in name], "found no such tensor"),
    ],
)
def test_refuses_tensors_by_name(folder, change, message):
    change_tensors(folder, change)
    with pytest.raises(ValueError, match=message):
        read(folder)


def test_refuses_an_adapter_of_some_layers(folder):
    change_config(folder, target_modules=r".*layer\.0\..*query")
    change_tensors(folder, lambda tensors: [tensors.pop(n) for n in list(tensors) if "layer.1." in n or "value" in n])
    with pytest.raises(ValueError, match=r"adapts some layers, but not 'bert.encoder.layer.1.attention.self.query'"):
        read(folder)


def test_refuses_missing_and_damaged_files(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="give the folder of a PEFT adapter"):
        read(tmp_path)
    stored = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(stored[:-10])
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        read(folder)
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    with pytest.raises(FileNotFoundError, match="read from safetensors alone"):
        read(folder)
    (folder / CONFIG).write_text("[1]")
    with pytest.raises(ValueError, match="expected a JSON object"):
        read(folder)


def test_does_not_overwrite(folder):
    with pytest.raises(FileExistsError):
        write_adapter(folder, make(), ONE_BERT, ARGUMENTS)
    with pytest.raises(ValueError, match=r"must be any of query, key, .*; got dense"):
        target_parts(["dense"])
