import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from keras_bert.text.preprocessor import BertPreprocessor

GOLDEN_NAMES = {"token_ids": "input_ids", "segment_ids": "segment_ids", "padding_mask": "input_mask"}


@pytest.fixture(scope="module")
def golden_pairs(shared):
    path = shared / "golden" / "tokenizer" / "pair_packing_uncased.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def test_golden_rows(tokenizers, golden_pairs):
    assert len(golden_pairs) == 200
    for length in {row["max_seq_length"] for row in golden_pairs}:
        rows = [row for row in golden_pairs if row["max_seq_length"] == length]
        # An empty second text is packed like a missing one.
        inputs = {name: [row[name] or "" for row in rows] for name in ("text_a", "text_b")}
        packed = BertPreprocessor(tokenizers["uncased"], length)(inputs)
        width = packed["token_ids"].shape[1]
        assert width == max(sum(row["input_mask"]) for row in rows)
        for name, golden_name in GOLDEN_NAMES.items():
            np.testing.assert_array_equal(packed[name], [row[golden_name][:width] for row in rows])


@pytest.mark.parametrize(
    "inputs",
    [
        ["play", "playing!"],
        tf.constant(["play", "playing!"]),
        {"text": ["play", "playing!"]},
        pd.DataFrame({"text": ["play", "playing!"]}, index=[5, 2]),
    ],
)
def test_forms_of_single_texts(toy, inputs):
    preprocessor = BertPreprocessor(toy)
    assert preprocessor(inputs)["token_ids"].numpy().tolist() == [[2, 5, 3, 0, 0], [2, 5, 6, 7, 3]]
    assert preprocessor.token_counts(inputs).numpy().tolist() == [3, 5]


@pytest.mark.parametrize(
    "inputs",
    [
        (["play"], ["!"]),
        (tf.constant(["play"]), pd.Series(["!"])),
        pd.DataFrame({"text_b": ["!"], "text_a": ["play"]}),
    ],
)
def test_forms_of_pairs(toy, inputs):
    preprocessor = BertPreprocessor(toy)
    assert preprocessor(inputs)["token_ids"].numpy().tolist() == [[2, 5, 3, 7, 3]]
    assert preprocessor.token_counts(inputs).numpy().tolist() == [5]


def test_counts_tokens_before_truncation(toy):
    preprocessor = BertPreprocessor(toy, sequence_length=4)
    assert preprocessor.token_counts(["play " * 10, ""]).numpy().tolist() == [12, 2]
    assert preprocessor(["play " * 10, ""])["token_ids"].numpy().tolist() == [[2, 5, 5, 3], [2, 3, 0, 0]]


def test_keeps_the_fixed_length_in_tf_data(toy):
    preprocessor = BertPreprocessor(toy, sequence_length=6, pad_to="max_length")
    data = {"text_a": ["play", "café", ""], "text_b": ["playing", "!", "!"]}
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(2).map(preprocessor)
    assert dataset.element_spec["token_ids"].shape.as_list() == [None, 6]
    batches = [batch["token_ids"].numpy().tolist() for batch in dataset]
    assert batches == [[[2, 5, 3, 5, 6, 3], [2, 8, 3, 7, 3, 0]], [[2, 3, 7, 3, 0, 0]]]


def test_config_survives_json(toy):
    preprocessor = BertPreprocessor(toy, 9, "max_length")
    config = json.loads(json.dumps(preprocessor.get_config()))
    copy = BertPreprocessor.from_config(config)
    assert copy.get_config() == config
    np.testing.assert_array_equal(copy(["playing"])["token_ids"], preprocessor(["playing"])["token_ids"])


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ([1, 2], TypeError, "text must be text"),
        ((["a"], None), TypeError, "text_b must be text. Received: None"),
        ({"texts": ["a"]}, ValueError, r"Received: \['texts'\]"),
        ({"text_a": ["a"]}, ValueError, '"text_a" and "text_b"'),
        ({"text": ["a"], "label": [1]}, ValueError, "Rename or drop"),
        ((["a"], ["b"], ["c"]), ValueError, "Received: 3 elements"),
        (("a", "b"), ValueError, "text_a must be a batch of texts"),
        ("a", ValueError, "Put it into a list"),
        ((["a", "b"], ["c"]), ValueError, "Received: 2 and 1"),
    ],
)
def test_invalid_inputs_are_refused(toy, inputs, error, message):
    with pytest.raises(error, match=message):
        BertPreprocessor(toy)(inputs)


def test_invalid_arguments_are_refused(toy):
    with pytest.raises(TypeError, match=r"must be a BertTokenizer\. Received: str"):
        BertPreprocessor("vocab.txt")
    with pytest.raises(ValueError, match="at least 2"):
        BertPreprocessor(toy, sequence_length=1)
    with pytest.raises(ValueError, match="pad_to"):
        BertPreprocessor(toy, pad_to="max")
    with pytest.raises(ValueError, match="long_texts must be one of"):
        BertPreprocessor(toy, long_texts="split")
    with pytest.raises(ValueError, match="needs long_texts='windows'"):
        BertPreprocessor(toy, window_stride=4)
    with pytest.raises(ValueError, match="at least 3"):
        BertPreprocessor(toy, sequence_length=2)((["play"], ["play"]))
