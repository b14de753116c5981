"""Segments that are too long for the model, as overlapping windows."""

import tensorflow as tf

# Added to a window's length in `_check_is_max_context` of google-research/bert run_squad.py: of two windows that give
# a token the same context, the longer one is better.
_WEIGHT_OF_LENGTH = 0.01


def split_into_windows(
    segment: tf.RaggedTensor, window_length: tf.Tensor | int, stride: tf.Tensor | int
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Cuts each row into windows that overlap and together cover it.

    Source: the document spans of `convert_examples_to_features` in google-research/bert `run_squad.py`: each window
    begins `stride` tokens after the one before, and the last one ends with the row. A row that fits is one window, an
    empty row too.

    Args:
        segment: ragged ids [rows, (tokens)].
        window_length: int, or int32 tensor [rows]: most tokens in a window, at least 1.
        stride: int, or int32 tensor [rows]: tokens from one window's beginning to the next one's, at least 1 and at
            most `window_length`, or tokens would be left out.

    Returns:
        A pair: ragged ids [windows, (tokens)], and int32 [windows], the row that each window is of, ascending.

    Example:

    >>> windows, rows = split_into_windows(tf.ragged.constant([[1, 2, 3, 4, 5], [6]]), window_length=3, stride=2)
    >>> windows.to_list(), rows.numpy().tolist()
    ([[1, 2, 3], [3, 4, 5], [6]], [0, 0, 1])
    """
    lengths = tf.cast(segment.row_lengths(), tf.int32)
    window_length = tf.broadcast_to(window_length, tf.shape(lengths))
    stride = tf.broadcast_to(stride, tf.shape(lengths))
    beyond_first = tf.maximum(lengths - window_length, 0)
    number = 1 + (beyond_first + stride - 1) // stride  # [rows], windows of each

    rows = tf.repeat(tf.range(tf.size(lengths)), number)  # [windows]
    within_row = tf.range(tf.size(rows)) - tf.gather(tf.cumsum(number, exclusive=True), rows)
    begin = within_row * tf.gather(stride, rows)
    kept = tf.minimum(tf.gather(window_length, rows), tf.gather(lengths, rows) - begin)
    first = tf.gather(tf.cast(segment.row_starts(), tf.int32), rows) + begin
    positions = tf.ragged.range(first, first + kept)  # [windows, (tokens)]
    return positions.with_values(tf.gather(segment.values, positions.values)), rows


def first_tokens_of_windows(rows: tf.Tensor, stride: tf.Tensor | int) -> tf.Tensor:
    """Where in its row each window of `split_into_windows` begins.

    Source: the document spans of `convert_examples_to_features` in google-research/bert `run_squad.py`.

    Args:
        rows: int32 tensor [windows], ascending from 0, the row of each; every row has windows.
        stride: int, or int32 tensor [rows], as `split_into_windows` was given it.

    Returns:
        int32 tensor [windows], the number of the window's first token in its row, from 0.

    Example:

    >>> first_tokens_of_windows(tf.constant([0, 0, 0, 1]), stride=2).numpy().tolist()
    [0, 2, 4, 0]
    """
    number = tf.reduce_max(tf.concat([rows + 1, [0]], axis=0))
    first_of_row = tf.gather(tf.math.unsorted_segment_min(tf.range(tf.size(rows)), rows, number), rows)
    return (tf.range(tf.size(rows)) - first_of_row) * tf.gather(tf.broadcast_to(stride, [number]), rows)


def has_max_context(windows: tf.RaggedTensor, first_tokens: tf.Tensor) -> tf.RaggedTensor:
    """Whether no other window has more around a token; that is so in exactly one window for each token.

    Source: `_check_is_max_context` of google-research/bert `run_squad.py`.

    Args:
        windows: `RaggedTensor` [windows, (tokens)].
        first_tokens: int32 tensor [windows], the number of each window's first token among those of all rows, so that a
            token has the same number in all windows that hold it.

    Returns:
        bool `RaggedTensor` [windows, (tokens)].

    Example:

    >>> has_max_context(tf.ragged.constant([[1, 2, 3], [3, 4, 5]]), tf.constant([0, 2])).to_list()
    [[True, True, True], [False, True, True]]
    """
    lengths = tf.cast(windows.row_lengths(), tf.int32)
    window = tf.cast(windows.value_rowids(), tf.int32)
    before = tf.ragged.range(lengths).values
    length = tf.gather(lengths, window)
    # In float64, as the original's numbers are, since a difference in rounding would decide between equals.
    score = tf.cast(tf.minimum(before, length - 1 - before), tf.float64)
    score += _WEIGHT_OF_LENGTH * tf.cast(length, tf.float64)

    token = tf.gather(first_tokens, window) + before
    number = tf.reduce_max(tf.concat([token, [0]], axis=0)) + 1
    best = tf.math.unsorted_segment_max(score, token, number)
    # Of equals the first window: the others are put behind all.
    is_best = tf.equal(score, tf.gather(best, token))
    first_best = tf.math.unsorted_segment_min(tf.where(is_best, window, tf.size(lengths)), token, number)
    return windows.with_values(tf.equal(window, tf.gather(first_best, token)))
