"""Segments of ids into BERT's input sequence."""

import tensorflow as tf

from keras_bert.text.windows import split_into_windows

# [CLS] a [SEP], and [CLS] a [SEP] b [SEP].
ADDED_TO_ONE_SEGMENT = 2
ADDED_TO_TWO_SEGMENTS = 3

PAD_TO_CHOICES = ("max_length", "longest")


def pack(
    segment_a: tf.RaggedTensor,
    segment_b: tf.RaggedTensor | None,
    *,
    cls_id: int,
    sep_id: int,
    pad_id: int,
    sequence_length: int,
    pad_to: str = "max_length",
) -> dict[str, tf.Tensor]:
    """Packs one or two segments a row as `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, trimmed and padded.

    Source: `convert_single_example` and `_truncate_seq_pair` in google-research/bert `run_classifier.py`; arXiv
    1810.04805, section 3 and figure 2. What is too long loses tokens from the end of its longer segment, one at a
    time, from b on a tie. A b without tokens gets no second `[SEP]`.

    Args:
        segment_a: ragged integer ids `[batch, (tokens)]`.
        segment_b: the same for the second segment, or None.
        cls_id: int, id of `[CLS]`.
        sep_id: int, id of `[SEP]`.
        pad_id: int, id of `[PAD]`.
        sequence_length: int, most ids a row; at least 2, with a second segment 3.
        pad_to: "max_length" pads all rows to `sequence_length`, "longest" to the longest row of the batch (at least 2,
            also where the batch has no rows). Defaults to "max_length".

    Returns:
        dict of int32 tensors `[batch, length]`: `token_ids`, `segment_ids` (1 for b and its `[SEP]`, else 0) and
        `padding_mask` (1 for ids, 0 for padding).

    Raises:
        TypeError: a segment is not a `RaggedTensor` of integers.
        ValueError: `sequence_length` is too small, `pad_to` is neither of the two, or the segments differ in their
            numbers of rows (InvalidArgumentError where these are known at run time only).

    Example:
        >>> a, b = tf.ragged.constant([[5, 6, 7, 8]]), tf.ragged.constant([[9, 9]])
        >>> packed = pack(a, b, cls_id=2, sep_id=3, pad_id=0, sequence_length=8)
        >>> packed["token_ids"].numpy().tolist(), packed["segment_ids"].numpy().tolist()
        ([[2, 5, 6, 7, 3, 9, 9, 3]], [[0, 0, 0, 0, 0, 1, 1, 1]])
    """
    check_pad_to(pad_to)
    check_sequence_length(sequence_length, pair=segment_b is not None)
    _check_segment(segment_a, "segment_a")
    length_a = _row_lengths(segment_a)
    if segment_b is None:
        segment_b, length_b = segment_a, tf.zeros_like(length_a)
    else:
        _check_segment(segment_b, "segment_b")
        _check_equal_rows(segment_a, segment_b)
        length_b = _row_lengths(segment_b)
    kept_a, kept_b = _kept_lengths(length_a, length_b, sequence_length)
    # [batch, 1]: the places of the two separators; a row's length is one past its last separator.
    separator_a = (kept_a + 1)[:, tf.newaxis]
    separator_b = tf.where(kept_b > 0, kept_a + kept_b + 2, kept_a + 1)[:, tf.newaxis]

    length = sequence_length
    if pad_to == "longest":
        length = tf.reduce_max(tf.concat([separator_b[:, 0] + 1, [ADDED_TO_ONE_SEGMENT]], axis=0))
    position = tf.range(length)[tf.newaxis, :]  # [1, length]
    # Later choices overwrite earlier ones, from the end of the row to its beginning.
    token_ids = tf.where(position < separator_b, _ids_at(segment_b, position - separator_a - 1), pad_id)
    token_ids = tf.where(position == separator_b, sep_id, token_ids)
    token_ids = tf.where(position < separator_a, _ids_at(segment_a, position - 1), token_ids)
    token_ids = tf.where(position == separator_a, sep_id, token_ids)
    token_ids = tf.where(position == 0, cls_id, token_ids)
    padding_mask = position <= separator_b
    return {
        "token_ids": token_ids,
        "segment_ids": tf.cast(tf.logical_and(position > separator_a, padding_mask), tf.int32),
        "padding_mask": tf.cast(padding_mask, tf.int32),
    }


def packed_lengths(segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor | None) -> tf.Tensor:
    """Counts the ids that a row would have if nothing were trimmed, `[CLS]` and `[SEP]` included.

    Source: `convert_single_example` in google-research/bert `run_classifier.py`.

    Args:
        segment_a: ragged integer ids `[batch, (tokens)]`.
        segment_b: the same for the second segment, or None.

    Returns:
        int32 tensor `[batch]`.

    Raises:
        ValueError: the segments differ in their numbers of rows (InvalidArgumentError where these are known at run time
            only).

    Example:
        >>> packed_lengths(tf.ragged.constant([[5, 6], [5]]), tf.ragged.constant([[7], []])).numpy().tolist()
        [6, 3]
    """
    length_a = _row_lengths(segment_a)
    if segment_b is None:
        return length_a + ADDED_TO_ONE_SEGMENT
    _check_equal_rows(segment_a, segment_b)
    length_b = _row_lengths(segment_b)
    return length_a + length_b + tf.where(length_b > 0, ADDED_TO_TWO_SEGMENTS, ADDED_TO_ONE_SEGMENT)


def split_pairs_into_windows(
    segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor | None, sequence_length: int, stride: int | None
) -> tuple[tf.RaggedTensor, tf.RaggedTensor | None, tf.Tensor]:
    """Cuts what is too long for a row into windows, each of which `pack` leaves whole.

    Source: the document spans of google-research/bert `run_squad.py`. Of a pair, b is cut and a is repeated before each
    of its windows; an a that leaves b less than half of the room is first trimmed to the other half, as `pack` would.

    Args:
        segment_a: ragged integer ids `[batch, (tokens)]`.
        segment_b: the same for the second segment, or None.
        sequence_length: int, most ids a row, special tokens included.
        stride: int, tokens from one window's beginning to the next one's (at most a whole window, so that none is left
            out), or None for half a window.

    Returns:
        The segments of the windows, `[windows, (tokens)]` each (the second None where `segment_b` is), and int32
        `[windows]`, ascending: the row that each window is of.

    Example:
        >>> a, _, rows = split_pairs_into_windows(tf.ragged.constant([[5, 6, 7, 8, 9]]), None, 6, stride=2)
        >>> a.to_list(), rows.numpy().tolist()
        ([[5, 6, 7, 8], [7, 8, 9]], [0, 0])
    """
    if segment_b is None:
        room = sequence_length - ADDED_TO_ONE_SEGMENT
        windows, rows = split_into_windows(segment_a, max(room, 1), _stride_within(max(room, 1), stride))
        return windows, None, rows
    kept_a, kept_b = _kept_lengths(_row_lengths(segment_a), _row_lengths(segment_b), sequence_length)
    first = tf.cast(segment_a.row_starts(), tf.int32)
    kept = tf.ragged.range(first, first + kept_a)  # [batch, (tokens)], places in the flat values
    segment_a = kept.with_values(tf.gather(segment_a.values, kept.values))
    # Where b is trimmed at all, what is kept of it fills the room; where it is not, it is its own only window.
    window_length = tf.maximum(kept_b, 1)
    windows, rows = split_into_windows(segment_b, window_length, _stride_within(window_length, stride))
    return tf.gather(segment_a, rows), windows, rows


def _stride_within(window_length: tf.Tensor | int, stride: int | None) -> tf.Tensor:
    if stride is None:
        return tf.maximum(window_length // 2, 1)
    return tf.minimum(window_length, stride)


def check_pad_to(pad_to: str) -> None:
    """Checks the name of a way to pad.

    Source: none in BERT, which always pads to the full length.

    Args:
        pad_to: str, "max_length" or "longest".

    Raises:
        ValueError: anything else.

    Example:
        >>> check_pad_to("longest")
    """
    if pad_to not in PAD_TO_CHOICES:
        raise ValueError(f"pad_to must be one of {PAD_TO_CHOICES}. Received: {pad_to!r}.")


def check_sequence_length(sequence_length: int, pair: bool) -> None:
    """Checks that a sequence length has room for the special tokens.

    Source: `convert_single_example` in google-research/bert `run_classifier.py`.

    Args:
        sequence_length: int, most ids a row.
        pair: bool, whether there are two segments.

    Raises:
        TypeError: not an int.
        ValueError: less than 2, or less than 3 for a pair.

    Example:
        >>> check_sequence_length(2, pair=False)
    """
    if not isinstance(sequence_length, int) or isinstance(sequence_length, bool):
        raise TypeError(f"sequence_length must be an int. Received: {sequence_length!r}.")
    least = ADDED_TO_TWO_SEGMENTS if pair else ADDED_TO_ONE_SEGMENT
    if sequence_length < least:
        what = "a pair of segments ([CLS], [SEP], [SEP])" if pair else "one segment ([CLS], [SEP])"
        raise ValueError(f"sequence_length must be at least {least} for {what}. Received: {sequence_length}.")


def _check_segment(segment: tf.RaggedTensor, name: str) -> None:
    if not isinstance(segment, tf.RaggedTensor) or not segment.dtype.is_integer or segment.shape.rank != 2:
        what = f"{type(segment).__name__} of {segment.dtype.name}" if tf.is_tensor(segment) else repr(segment)[:80]
        raise TypeError(
            f"{name} must be a RaggedTensor of integer ids [batch, (tokens)]. Received: {what}. "
            "Make it with BertTokenizer.tokenize(texts), or with tf.ragged.constant(lists)."
        )


def _check_equal_rows(segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor) -> None:
    # Without this check a single row would be taken for every row of the other segment.
    rule = "The two segments (text_a and text_b) must have the same number of rows; an empty text gives an empty row."
    rows_a, rows_b = segment_a.shape[0], segment_b.shape[0]
    if rows_a is None or rows_b is None:
        tf.debugging.assert_equal(segment_a.nrows(), segment_b.nrows(), message=rule)
    elif rows_a != rows_b:
        raise ValueError(f"{rule} Received: {rows_a} and {rows_b}.")


def _row_lengths(segment: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(segment.row_lengths(), tf.int32)


def _kept_lengths(length_a: tf.Tensor, length_b: tf.Tensor, sequence_length: int) -> tuple[tf.Tensor, tf.Tensor]:
    """How many tokens of each segment remain, int32 `[batch]`, in closed form.

    Taking tokens one by one from the longer segment, from b on a tie, ends with b no longer than the smaller half of
    the room, unless a leaves it more; and with a in what b leaves, or the larger half.
    """
    added = tf.where(length_b > 0, ADDED_TO_TWO_SEGMENTS, ADDED_TO_ONE_SEGMENT)
    room = sequence_length - added
    kept_a = tf.minimum(length_a, tf.maximum(room - length_b, room - room // 2))
    return kept_a, tf.minimum(length_b, room - kept_a)


def _ids_at(segment: tf.RaggedTensor, position: tf.Tensor) -> tf.Tensor:
    """The id at each position of each row; any id where the row has no such position. int32 `[batch, length]`."""
    values = tf.pad(tf.cast(segment.values, tf.int32), [[0, 1]])  # so that there is something to gather
    index = tf.cast(segment.row_starts(), tf.int32)[:, tf.newaxis] + position
    return tf.gather(values, tf.clip_by_value(index, 0, tf.size(values) - 1))
