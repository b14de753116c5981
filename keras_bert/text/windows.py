"""Segments that are too long for the model, as overlapping windows."""

import tensorflow as tf


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
