"""Splitting of long sequences into windows (`convert_examples_to_features` in google-research/bert `run_squad.py`)."""

from typing import NamedTuple

import tensorflow as tf

from keras_bert.text.pack import (
    ADDED_TO_ONE_SEGMENT,
    ADDED_TO_TWO_SEGMENTS,
    check_int,
    keep_first,
    row_lengths,
    truncated_lengths,
)

# Added to a window's length in `_check_is_max_context` of google-research/bert run_squad.py: of two windows that give
# a token the same context, the longer one is better.
_LENGTH_WEIGHT = 0.01

# With the default of 128 tokens per window about 4,000 tokens, ten pages. A text of a megabyte has thousands of
# windows, which the encoder would compute at once.
MAX_WINDOWS = 64


def check_max_windows(max_windows: int | None) -> None:
    """Raises an error unless `max_windows` is None or an int of at least 1."""
    if max_windows is not None:
        check_int("max_windows", max_windows, minimum=1)


def count_windows(lengths: tf.Tensor, window_length: tf.Tensor | int, stride: tf.Tensor | int) -> tf.Tensor:
    """Counts the windows that cover rows of these lengths, int32 `[rows]`."""
    beyond_first = tf.maximum(lengths - window_length, 0)
    return 1 + (beyond_first + stride - 1) // stride


def split_into_windows(
    segment: tf.RaggedTensor,
    window_length: tf.Tensor | int,
    stride: tf.Tensor | int,
    max_windows: int | None = None,
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Splits each row into overlapping windows that cover it; a row that fits, even if empty, is one window.

    With `max_windows`, the tokens of a row beyond its first `max_windows` windows are dropped. Returns ragged ids
    `[windows, (tokens)]` and the row of each window, int32 `[windows]`, ascending.
    """
    lengths = row_lengths(segment)
    window_length = tf.broadcast_to(window_length, tf.shape(lengths))
    stride = tf.broadcast_to(stride, tf.shape(lengths))
    num_windows = count_windows(lengths, window_length, stride)  # [rows]
    if max_windows is not None:
        num_windows = tf.minimum(num_windows, max_windows)

    rows = tf.repeat(tf.range(tf.size(lengths)), num_windows)  # [windows]
    index_in_row = tf.range(tf.size(rows)) - tf.gather(tf.cumsum(num_windows, exclusive=True), rows)
    begin = index_in_row * tf.gather(stride, rows)
    kept = tf.minimum(tf.gather(window_length, rows), tf.gather(lengths, rows) - begin)
    first = tf.gather(tf.cast(segment.row_starts(), tf.int32), rows) + begin
    positions = tf.ragged.range(first, first + kept)  # [windows, (tokens)]
    return positions.with_values(tf.gather(segment.values, positions.values)), rows


def count_by_row(rows: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
    """Counts how often each row occurs in `rows`, int32 `[num_rows]`."""
    return tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, num_rows)  # `tf.math.bincount` has a branch


def first_tokens_of_windows(rows: tf.Tensor, stride: tf.Tensor | int) -> tf.Tensor:
    """Computes the index in its row of the first token of each window of `split_into_windows`, int32 `[windows]`."""
    num_rows = tf.reduce_max(tf.concat([rows + 1, [0]], axis=0))
    first_of_row = tf.gather(tf.math.unsorted_segment_min(tf.range(tf.size(rows)), rows, num_rows), rows)
    return (tf.range(tf.size(rows)) - first_of_row) * tf.gather(tf.broadcast_to(stride, [num_rows]), rows)


def has_max_context(windows: tf.RaggedTensor, first_tokens: tf.Tensor) -> tf.RaggedTensor:
    """Marks each token in the one window that gives it the most context, bool `[windows, (tokens)]`.

    `first_tokens` is the index of each window's first token among the tokens of all rows. Source:
    `_check_is_max_context` of google-research/bert `run_squad.py`.
    """
    lengths = row_lengths(windows)
    window = tf.cast(windows.value_rowids(), tf.int32)
    before = tf.ragged.range(lengths).values
    length = tf.gather(lengths, window)
    # In float64 as in the original, because rounding decides between equal scores.
    score = tf.cast(tf.minimum(before, length - 1 - before), tf.float64)
    score += _LENGTH_WEIGHT * tf.cast(length, tf.float64)

    token = tf.gather(first_tokens, window) + before
    num_tokens = tf.reduce_max(tf.concat([token, [0]], axis=0)) + 1
    is_best = tf.equal(score, tf.gather(tf.math.unsorted_segment_max(score, token, num_tokens), token))
    # On a tie the first window wins.
    first_best = tf.math.unsorted_segment_min(tf.where(is_best, window, tf.size(lengths)), token, num_tokens)
    return windows.with_values(tf.equal(window, tf.gather(first_best, token)))


class _PairSplit(NamedTuple):
    """How a pair of segments is split: the segment that is, and its windows' lengths and strides."""

    segment_a: tf.RaggedTensor | None  # truncated, repeated before each window; None for single segments
    segment: tf.RaggedTensor
    window_length: tf.Tensor  # int32, scalar or [rows]
    stride: tf.Tensor  # the same


def split_pairs_into_windows(
    segment_a: tf.RaggedTensor,
    segment_b: tf.RaggedTensor | None,
    sequence_length: int,
    stride: int | None,
    max_windows: int | None = None,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor | None, tf.Tensor]:
    """Splits segments into windows that `pack` does not truncate; a pair's a is repeated before each window of b.

    An a that leaves b less than half of the room is truncated first, as by `pack`. `stride=None` means half a window.
    `max_windows` is as for `split_into_windows`. Returns the segments of the windows and the row of each window,
    ascending.
    """
    split = _plan_split(segment_a, segment_b, sequence_length, stride)
    windows, rows = split_into_windows(split.segment, split.window_length, split.stride, max_windows)
    if split.segment_a is None:
        return windows, None, rows
    return tf.gather(split.segment_a, rows), windows, rows


def count_windows_of_pairs(
    segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor | None, sequence_length: int, stride: int | None
) -> tf.Tensor:
    """Counts the windows of each row of `split_pairs_into_windows` without `max_windows`, int32 `[batch]`."""
    split = _plan_split(segment_a, segment_b, sequence_length, stride)
    return count_windows(row_lengths(split.segment), split.window_length, split.stride)


def _plan_split(
    segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor | None, sequence_length: int, stride: int | None
) -> _PairSplit:
    if segment_b is None:
        window_length = tf.maximum(sequence_length - ADDED_TO_ONE_SEGMENT, 1)
        return _PairSplit(None, segment_a, window_length, _limit_stride(window_length, stride))
    kept_a, kept_b = truncated_lengths(row_lengths(segment_a), row_lengths(segment_b), sequence_length)
    # If b is truncated at all, the part kept fills the room; if not, it is its own only window.
    window_length = tf.maximum(kept_b, 1)
    kept = keep_first(segment_a, kept_a)
    return _PairSplit(kept, segment_b, window_length, _limit_stride(window_length, stride))


def _limit_stride(window_length: tf.Tensor, stride: int | None) -> tf.Tensor:
    return tf.maximum(window_length // 2, 1) if stride is None else tf.minimum(window_length, stride)


class QuestionWindows(NamedTuple):
    """Questions, each with one window of its context, from `split_questions`."""

    questions: tf.RaggedTensor  # integer [windows, (tokens)]: the truncated question of each window
    contexts: tf.RaggedTensor  # integer [windows, (tokens)]: the window
    rows: tf.Tensor  # int32 [windows], ascending: the question of each window
    first_tokens: tf.Tensor  # int32 [windows]: index of the window's first token in its context
    is_max_context: tf.RaggedTensor  # bool [windows, (tokens)]: True in exactly one window for each token
    is_cut: tf.Tensor  # bool [batch]: whether the context has more than `max_windows`, so that its end was dropped


def split_questions(
    questions: tf.RaggedTensor,
    contexts: tf.RaggedTensor,
    sequence_length: int,
    stride: int,
    max_query_length: int,
    max_windows: int | None = None,
) -> QuestionWindows:
    """Splits contexts into overlapping windows, so that each fits into a row together with its question.

    `max_windows` is as for `split_into_windows`.

    Differs from BERT: an empty context is one empty window; the original has none and then no answer to the question.
    """
    questions = questions[:, :max_query_length]
    room = sequence_length - ADDED_TO_TWO_SEGMENTS - row_lengths(questions)
    stride = tf.minimum(stride, room)
    windows, rows = split_into_windows(contexts, room, stride, max_windows)
    limit = tf.int32.max if max_windows is None else max_windows
    is_cut = count_windows(row_lengths(contexts), room, stride) > limit
    first_tokens = first_tokens_of_windows(rows, stride)
    is_max_context = has_max_context(windows, first_tokens + tf.cast(tf.gather(contexts.row_starts(), rows), tf.int32))
    return QuestionWindows(tf.gather(questions, rows), windows, rows, first_tokens, is_max_context, is_cut)
