import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from keras_bert.text.preprocessor import BertPreprocessor
from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
from keras_bert.text.word_preprocessor import BertWordPreprocessor

GOLDEN_NAMES = {"token_ids": "input_ids", "segment_ids": "segment_ids", "padding_mask": "input_mask"}


def test_rows_equal_the_golden_ones(shared, tokenizers):
    path = shared / "golden" / "tokenizer" / "pair_packing_uncased.jsonl"
    golden = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    assert len(golden) == 200
    for length in {row["max_seq_length"] for row in golden}:
        rows = [row for row in golden if row["max_seq_length"] == length]
        # An empty second text is packed like a missing one.
        inputs = {name: [row[name] or "" for row in rows] for name in ("text_a", "text_b")}
        packed = BertPreprocessor(tokenizers["uncased"], length)(inputs)
        width = packed["token_ids"].shape[1]
        assert width == max(sum(row["input_mask"]) for row in rows)
        for name, golden_name in GOLDEN_NAMES.items():
            np.testing.assert_array_equal(packed[name], [row[golden_name][:width] for row in rows])


SINGLE_IDS = [[2, 5, 3, 0, 0], [2, 5, 6, 7, 3]]
PAIR_IDS = [[2, 5, 3, 7, 3]]


@pytest.mark.parametrize(
    ("inputs", "ids", "counts"),
    [
        (["play", "playing!"], SINGLE_IDS, [3, 5]),
        (tf.constant(["play", "playing!"]), SINGLE_IDS, [3, 5]),
        ({"text": ["play", "playing!"]}, SINGLE_IDS, [3, 5]),
        (pd.DataFrame({"text": ["play", "playing!"]}, index=[5, 2]), SINGLE_IDS, [3, 5]),
        ((["play"], ["!"]), PAIR_IDS, [5]),
        ((tf.constant(["play"]), pd.Series(["!"])), PAIR_IDS, [5]),
        (pd.DataFrame({"text_b": ["!"], "text_a": ["play"]}), PAIR_IDS, [5]),
    ],
)
def test_all_forms_of_texts_are_accepted(toy, inputs, ids, counts):
    preprocessor = BertPreprocessor(toy)
    assert preprocessor(inputs)["token_ids"].numpy().tolist() == ids
    assert preprocessor.token_counts(inputs).numpy().tolist() == counts


def test_counts_tokens_before_truncation(toy):
    preprocessor = BertPreprocessor(toy, sequence_length=4)
    assert preprocessor.token_counts(["play " * 10, ""]).numpy().tolist() == [12, 2]
    assert preprocessor(["play " * 10, ""])["token_ids"].numpy().tolist() == [[2, 5, 5, 3], [2, 3, 0, 0]]
    with pytest.raises(ValueError, match="at least 3"):
        BertPreprocessor(toy, sequence_length=2)((["play"], ["play"]))


def test_counts_windows(toy):
    texts = (["play"] * 4, ["", "! " * 5, "! " * 12, "! " * 13])
    preprocessor = BertPreprocessor(toy, 8, long_texts="windows", window_stride=2, max_windows=5)
    ids, num_windows, is_cut = preprocessor.with_window_counts(texts)
    unlimited = BertPreprocessor(toy, 8, long_texts="windows", window_stride=2, max_windows=None)
    needed = np.bincount(unlimited(texts)["window_text_ids"])
    assert needed.tolist() == [1, 2, 5, 6]
    assert num_windows.numpy().tolist() == np.bincount(ids["window_text_ids"]).tolist() == [1, 2, 5, 5]
    assert is_cut.numpy().tolist() == [False, False, False, True]
    for name, values in preprocessor(texts).items():
        np.testing.assert_array_equal(values, ids[name])
    _, num_windows, is_cut = BertPreprocessor(toy, 8).with_window_counts(texts)
    assert num_windows.numpy().tolist() == [1] * 4 and is_cut.numpy().tolist() == [False, True, True, True]


def test_keeps_the_fixed_length_in_tf_data(toy):
    preprocessor = BertPreprocessor(toy, sequence_length=6, pad_to="max_length")
    data = {"text_a": ["play", "café", ""], "text_b": ["playing", "!", "!"]}
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(2).map(preprocessor)
    assert dataset.element_spec["token_ids"].shape.as_list() == [None, 6]
    batches = [batch["token_ids"].numpy().tolist() for batch in dataset]
    assert batches == [[[2, 5, 3, 5, 6, 3], [2, 8, 3, 7, 3, 0]], [[2, 3, 7, 3, 0, 0]]]


def test_configs_survive_json(toy):
    for preprocessor in (
        BertPreprocessor(toy, 9, "max_length", "windows", 4, 7),
        BertQuestionPreprocessor(toy, 12, stride=3, max_query_length=4),
        BertWordPreprocessor(toy, 12, 3),
    ):
        config = json.loads(json.dumps(preprocessor.get_config()))
        assert type(preprocessor).from_config(config).get_config() == config == preprocessor.get_config()


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


@pytest.mark.parametrize(
    ("kind", "arguments", "error", "message"),
    [
        *(
            (kind, {"tokenizer": "vocab.txt"}, TypeError, r"must be a BertTokenizer\. Received: str")
            for kind in (BertPreprocessor, BertQuestionPreprocessor, BertWordPreprocessor)
        ),
        (BertPreprocessor, {"sequence_length": 1}, ValueError, "at least 2"),
        (BertPreprocessor, {"pad_to": "max"}, ValueError, "pad_to"),
        (BertPreprocessor, {"long_texts": "split"}, ValueError, "long_texts must be one of"),
        (BertPreprocessor, {"window_stride": 4}, ValueError, "needs long_texts='windows'"),
        (BertPreprocessor, {"max_windows": 0}, ValueError, "max_windows must be at least 1"),
        (BertPreprocessor, {"max_windows": 4.0}, TypeError, "max_windows must be an int"),
        (BertQuestionPreprocessor, {"sequence_length": 7, "max_query_length": 4}, ValueError, "leaves no room"),
        (BertQuestionPreprocessor, {"stride": 0}, ValueError, "stride must be at least 1"),
        (BertQuestionPreprocessor, {"max_query_length": 4.0}, TypeError, "max_query_length must be an int"),
        (BertWordPreprocessor, {"sequence_length": 2}, ValueError, "at least 3"),
        (BertWordPreprocessor, {"sequence_length": 8, "stride": 0}, ValueError, "stride"),
    ],
)
def test_invalid_arguments_are_refused(toy, kind, arguments, error, message):
    with pytest.raises(error, match=message):
        kind(**{"tokenizer": toy, **arguments})
