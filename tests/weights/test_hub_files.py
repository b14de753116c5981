import pytest

from keras_bert.weights.hub_files import select_files

JSON_FILES = {
    "config.json": {"model_type": "bert"},
    "model.safetensors.index.json": {"weight_map": {"a": "model-2.safetensors", "b": "model-1.safetensors"}},
}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["tf_model.h5", "pytorch_model.bin"], ["pytorch_model.bin"]),
        (["tf_model.h5"], ["tf_model.h5"]),
        (
            ["model-1.safetensors", "model-2.safetensors", "model.safetensors.index.json", "pytorch_model.bin"],
            ["model.safetensors.index.json", "model-1.safetensors", "model-2.safetensors"],
        ),
        (
            ["model.safetensors", "onnx/model.onnx", "modules.json", "1_Pooling/config.json", "tokenizer.json"],
            ["tokenizer.json", "modules.json", "1_Pooling/config.json", "model.safetensors"],
        ),
    ],
)
def test_order_of_the_weights(names, expected):
    assert select_files([*names, "config.json"], JSON_FILES.__getitem__, "it") == ["config.json", *expected]


@pytest.mark.parametrize(
    ("names", "tokenizer_only", "message"),
    [
        (["config.json"], False, r"it has none of the weights \['model.safetensors', "),
        (["model.safetensors"], False, "it has no config.json"),
        (["config.json", "model.safetensors"], True, r"it has no vocabulary \(vocab.txt or tokenizer.json"),
        (
            ["config.json", "model.safetensors.index.json"],
            False,
            r"names \['model-1.safetensors', .*, which are missing",
        ),
    ],
)
def test_missing_files(names, tokenizer_only, message):
    with pytest.raises(FileNotFoundError, match=message):
        select_files(names, JSON_FILES.__getitem__, "it", tokenizer_only)


@pytest.mark.parametrize("shards", [{}, {"a": 5}, {"a": "../../secret"}, {"a": "/etc/passwd"}, []])
@pytest.mark.parametrize("is_listed", [False, True])
def test_index_that_leads_elsewhere(shards, is_listed):
    files = {**JSON_FILES, "model.safetensors.index.json": {"weight_map": shards}}
    names = [*files, *(map(str, shards.values()) if is_listed and shards else ())]
    with pytest.raises(FileNotFoundError, match=r"model.safetensors.index.json names"):
        select_files(names, files.__getitem__, "it")
