import gzip
import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.pack import pack
from keras_bert.text.questions import split_questions
from keras_bert.text.words import tokenize_words
from tests.reference.max_context import is_max_context
from tests.reference.windows import windows_of


def ragged(rows):
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1, inner_shape=())


@pytest.mark.parametrize(
    "sequence_length, stride, max_query_length", [(8, 2, 4), (12, 3, 2), (30, 128, 5), (60, 7, 20)]
)
def test_windows_are_those_of_the_reference(sequence_length, stride, max_query_length):
    generator = np.random.default_rng(0)
    questions = [generator.integers(0, 100, size).tolist() for size in (0, 1, 4, 5, 21, 3)]
    contexts = [generator.integers(0, 100, size).tolist() for size in (1, 40, 100, 0, 57, 8)]
    result = split_questions(ragged(questions), ragged(contexts), sequence_length, stride, max_query_length)
    window = 0
    for row, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        question = question[:max_query_length]
        room = sequence_length - 3 - len(question)
        expected = windows_of(context, room, min(stride, room))
        begins = [i * min(stride, room) for i in range(len(expected))]
        of_row = slice(window, window + len(expected))
        window += len(expected)
        assert result.rows[of_row].numpy().tolist() == [row] * len(expected)
        assert result.questions[of_row].to_list() == [question] * len(expected)
        assert result.contexts[of_row].to_list() == expected
        assert result.first_tokens[of_row].numpy().tolist() == begins
        spans = list(zip(begins, map(len, expected), strict=True))
        assert result.is_max_context[of_row].to_list() == is_max_context(spans)
    assert window == result.rows.shape[0]


def test_every_token_has_most_context_once():
    result = split_questions(ragged([[5]] * 3), ragged([list(range(size)) for size in (500, 1, 77)]), 40, 9, 3)
    assert tf.reduce_sum(tf.cast(result.is_max_context.values, tf.int32)).numpy() == 578


def test_a_batch_without_questions():
    none = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int32), [0])
    assert split_questions(none, none, 40, 9, 3).rows.shape == [0]


@pytest.mark.parametrize("name", ["v1.1_train", "v1.1_predict", "v2.0_train", "v2.0_predict"])
@pytest.mark.parametrize("sequence_length, stride", [(128, 64), (384, 128)])
def test_features_equal_the_golden_ones(shared, tokenizers, name, sequence_length, stride):
    def read(file):
        lines = gzip.decompress((shared / "golden" / "squad" / file).read_bytes()).decode().split("\n")
        return [json.loads(line) for line in lines if line]

    examples = read(f"{name}_examples.jsonl.gz")
    features = read(f"{name}_uncased_len{sequence_length}_stride{stride}_features.jsonl.gz")
    tokenizer = tokenizers["uncased"]
    contexts = tokenize_words(tokenizer, [" ".join(example["doc_tokens"]) for example in examples])
    questions = tokenizer.tokenize([example["question_text"] for example in examples])
    windows = split_questions(questions, contexts.token_ids, sequence_length, stride, 64)
    packed = pack(
        windows.questions,
        windows.contexts,
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        pad_id=tokenizer.pad_id,
        sequence_length=sequence_length,
    )
    for ours, theirs in (
        ("token_ids", "input_ids"),
        ("segment_ids", "segment_ids"),
        ("padding_mask", "input_mask"),
    ):
        assert packed[ours].numpy().tolist() == [feature[theirs] for feature in features]
    assert windows.rows.numpy().tolist() == [feature["example_index"] for feature in features]
    words = contexts.words.to_list()
    for window, feature in enumerate(features):
        row, first = feature["example_index"], int(windows.first_tokens[window])
        of_window = words[row][first : first + int(windows.contexts.row_lengths()[window])]
        assert of_window == list(feature["token_to_orig_map"].values())
        assert windows.is_max_context[window].numpy().tolist() == list(feature["token_is_max_context"].values())
