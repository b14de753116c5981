import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.windows import split_into_windows, split_pairs_into_windows, split_questions
from tests.reference import windows as reference


def ragged(rows):
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1, inner_shape=())


@pytest.mark.parametrize("window_length, stride", [(1, 1), (4, 4), (4, 1), (7, 3), (50, 25)])
def test_windows_equal_the_reference(window_length, stride):
    generator = np.random.default_rng(0)
    rows = [generator.integers(0, 100, size).tolist() for size in [0, 1, 3, 4, 5, 8, 13, 40, 0, 50, 51]]
    windows, row_ids = split_into_windows(ragged(rows), window_length, stride)
    expected = [
        (window, i) for i, row in enumerate(rows) for window in reference.split_into_windows(row, window_length, stride)
    ]
    assert list(zip(windows.to_list(), row_ids.numpy().tolist(), strict=True)) == expected


@pytest.mark.parametrize("max_windows", [1, 3, 100])
def test_windows_beyond_the_maximum_are_dropped(max_windows):
    rows = [list(range(10, 10 + size)) for size in (0, 3, 40, 8, 11)]
    windows, row_ids = split_into_windows(ragged(rows), 4, 2, max_windows)
    expected = [
        (window, i) for i, row in enumerate(rows) for window in reference.split_into_windows(row, 4, 2)[:max_windows]
    ]
    assert list(zip(windows.to_list(), row_ids.numpy().tolist(), strict=True)) == expected


def test_windows_of_single_segments_equal_the_reference():
    rows = [list(range(10, 10 + size)) for size in (0, 3, 4, 5, 11)]
    windows, none, row_ids = split_pairs_into_windows(ragged(rows), None, 6, stride=None)
    expected = [(window, i) for i, row in enumerate(rows) for window in reference.split_into_windows(row, 4, 2)]
    assert none is None
    assert list(zip(windows.to_list(), row_ids.numpy().tolist(), strict=True)) == expected


def test_windows_of_pairs_repeat_a_and_cover_b():
    segment_a = ragged([[1, 2], [1, 2, 3, 4, 5, 6, 7, 8], [], [1]])
    b_rows = [list(range(20, 31)), list(range(40, 52)), list(range(60, 69)), []]
    a, b, row_ids = split_pairs_into_windows(segment_a, ragged(b_rows), 11, stride=3)
    # Of the 8 positions, an a of 2 leaves 6; an a of 8 is truncated to 4; an empty a leaves 8.
    expected_a, lengths = [[1, 2], [1, 2, 3, 4], [], [1]], [6, 4, 8, 1]
    expected = [
        (expected_a[i], window, i)
        for i, row in enumerate(b_rows)
        for window in reference.split_into_windows(row, lengths[i], 3)
    ]
    assert list(zip(a.to_list(), b.to_list(), row_ids.numpy().tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    "sequence_length, stride, max_query_length", [(8, 2, 4), (12, 3, 2), (30, 128, 5), (60, 7, 20)]
)
def test_question_windows_equal_the_reference(sequence_length, stride, max_query_length):
    generator = np.random.default_rng(0)
    questions = [generator.integers(0, 100, size).tolist() for size in (0, 1, 4, 5, 21, 3)]
    contexts = [generator.integers(0, 100, size).tolist() for size in (1, 40, 100, 0, 57, 8)]
    result = split_questions(ragged(questions), ragged(contexts), sequence_length, stride, max_query_length)
    window = 0
    for row, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        question = question[:max_query_length]
        room = sequence_length - 3 - len(question)
        expected = reference.split_into_windows(context, room, min(stride, room))
        first_tokens = [i * min(stride, room) for i in range(len(expected))]
        rows = slice(window, window + len(expected))
        window += len(expected)
        assert result.rows[rows].numpy().tolist() == [row] * len(expected)
        assert result.questions[rows].to_list() == [question] * len(expected)
        assert result.contexts[rows].to_list() == expected
        assert result.first_tokens[rows].numpy().tolist() == first_tokens
        spans = list(zip(first_tokens, map(len, expected), strict=True))
        assert result.is_max_context[rows].to_list() == reference.is_max_context(spans)
    assert window == result.rows.shape[0]
