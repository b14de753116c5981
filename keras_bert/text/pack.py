"""Packing of token ids into BERT's input rows, and the base class of the preprocessors."""

from typing import Any, Self

import tensorflow as tf

from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.typing import PathLike

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
    """Packs one or two segments per row as `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, truncated and padded.

    A row that is too long loses tokens from the end of its longer segment, one at a time, from b on a tie. An empty b
    gets no second `[SEP]`. Source: `convert_single_example` and `_truncate_seq_pair` in google-research/bert
    `run_classifier.py`; arXiv 1810.04805, section 3 and figure 2.
    """
    check_pad_to(pad_to)
    check_sequence_length(sequence_length, pair=segment_b is not None)
    _check_segment(segment_a, "segment_a")
    length_a = row_lengths(segment_a)
    if segment_b is None:
        segment_b, length_b = segment_a, tf.zeros_like(length_a)
    else:
        _check_segment(segment_b, "segment_b")
        _check_equal_rows(segment_a, segment_b)
        length_b = row_lengths(segment_b)
    kept_a, kept_b = truncated_lengths(length_a, length_b, sequence_length)
    # [batch, 1]: the positions of the two separators; a row ends at its last separator.
    separator_a = (kept_a + 1)[:, tf.newaxis]
    separator_b = tf.where(kept_b > 0, kept_a + kept_b + 2, kept_a + 1)[:, tf.newaxis]

    length = sequence_length
    if pad_to == "longest":
        length = tf.reduce_max(tf.concat([separator_b[:, 0] + 1, [ADDED_TO_ONE_SEGMENT]], axis=0))
    position = tf.range(length)[tf.newaxis, :]  # [1, length]
    # Each line overwrites part of the previous one, from the end of the row to its beginning.
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
    """Counts the ids that each row would have without truncation, special tokens included, int32 `[batch]`."""
    length_a = row_lengths(segment_a)
    if segment_b is None:
        return length_a + ADDED_TO_ONE_SEGMENT
    _check_equal_rows(segment_a, segment_b)
    length_b = row_lengths(segment_b)
    return length_a + length_b + tf.where(length_b > 0, ADDED_TO_TWO_SEGMENTS, ADDED_TO_ONE_SEGMENT)


def keep_first(ragged: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first values of each row, of which it has at least `counts`, int32 `[rows]`."""
    first = tf.cast(ragged.row_starts(), tf.int32)
    kept = tf.ragged.range(first, first + counts)  # indices of the flat values
    return kept.with_values(tf.gather(ragged.values, kept.values))


def row_lengths(segment: tf.RaggedTensor) -> tf.Tensor:
    """Returns the number of tokens of each row, int32 `[batch]`."""
    return tf.cast(segment.row_lengths(), tf.int32)


def truncated_lengths(length_a: tf.Tensor, length_b: tf.Tensor, sequence_length: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes how many tokens of each segment `pack` keeps, int32 `[batch]`, in closed form."""
    added = tf.where(length_b > 0, ADDED_TO_TWO_SEGMENTS, ADDED_TO_ONE_SEGMENT)
    room = sequence_length - added
    kept_a = tf.minimum(length_a, tf.maximum(room - length_b, room - room // 2))
    return kept_a, tf.minimum(length_b, room - kept_a)


def check_pad_to(pad_to: str) -> None:
    """Raises a ValueError unless `pad_to` is one of `PAD_TO_CHOICES`."""
    if pad_to not in PAD_TO_CHOICES:
        raise ValueError(f"pad_to must be one of {PAD_TO_CHOICES}. Received: {pad_to!r}.")


def check_sequence_length(sequence_length: int, pair: bool) -> None:
    """Checks that a sequence length is an int with room for the special tokens."""
    check_int("sequence_length", sequence_length)
    minimum = ADDED_TO_TWO_SEGMENTS if pair else ADDED_TO_ONE_SEGMENT
    if sequence_length < minimum:
        what = "a pair of segments ([CLS], [SEP], [SEP])" if pair else "one segment ([CLS], [SEP])"
        raise ValueError(f"sequence_length must be at least {minimum} for {what}. Received: {sequence_length}.")


def check_int(name: str, value: int, minimum: int | None = None) -> None:
    """Checks that an argument is an int, and at least the minimum if one is given."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int. Received: {value!r}.")
    if minimum is not None and value < minimum:
        raise ValueError(f"{name} must be at least {minimum}. Received: {value}.")


def _check_segment(segment: tf.RaggedTensor, name: str) -> None:
    if not isinstance(segment, tf.RaggedTensor) or not segment.dtype.is_integer or segment.shape.rank != 2:
        what = f"{type(segment).__name__} of {segment.dtype.name}" if tf.is_tensor(segment) else repr(segment)[:80]
        raise TypeError(
            f"{name} must be a RaggedTensor of integer ids [batch, (tokens)]. Received: {what}. "
            "Create it with BertTokenizer.tokenize(texts) or tf.ragged.constant(lists)."
        )


def _check_equal_rows(segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor) -> None:
    # Without this check a single row would be broadcast to all rows of the other segment.
    rule = "The two segments (text_a and text_b) must have the same number of rows; an empty text gives an empty row."
    rows_a, rows_b = segment_a.shape[0], segment_b.shape[0]
    if rows_a is None or rows_b is None:
        tf.debugging.assert_equal(segment_a.nrows(), segment_b.nrows(), message=rule)
    elif rows_a != rows_b:
        raise ValueError(f"{rule} Received: {rows_a} and {rows_b}.")


def _ids_at(segment: tf.RaggedTensor, position: tf.Tensor) -> tf.Tensor:
    """Looks up the id at each position of each row, int32 `[batch, length]`; arbitrary beyond the row's tokens."""
    values = tf.pad(tf.cast(segment.values, tf.int32), [[0, 1]])  # so that there is always something to gather
    index = tf.cast(segment.row_starts(), tf.int32)[:, tf.newaxis] + position
    return tf.gather(values, tf.clip_by_value(index, 0, tf.size(values) - 1))


class PackingPreprocessor:
    """Base class of the preprocessors: packs with the special ids of its tokenizer, and serializes its arguments."""

    def __init__(self, tokenizer: BertTokenizer, sequence_length: int) -> None:
        if not isinstance(tokenizer, BertTokenizer):
            raise TypeError(
                f"tokenizer must be a BertTokenizer. Received: {type(tokenizer).__name__}. "
                "Create one with BertTokenizer(vocabulary, lower_case=...)."
            )
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length

    def pack(
        self, segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor | None = None, pad_to: str = "longest"
    ) -> dict[str, tf.Tensor]:
        """Packs one or two segments per row as `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, truncated and padded.

        Args:
            segment_a: ragged ids `[rows, (tokens)]`.
            segment_b: ragged ids `[rows, (tokens)]`, or None.
            pad_to: "longest" or "max_length".

        Returns:
            Dict of int32 tensors `[rows, length]`: `token_ids`, `segment_ids`, `padding_mask`.
        """
        return pack(
            segment_a,
            segment_b,
            cls_id=self.tokenizer.cls_id,
            sep_id=self.tokenizer.sep_id,
            pad_id=self.tokenizer.pad_id,
            sequence_length=self.sequence_length,
            pad_to=pad_to,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments in a form that JSON can hold, the tokenizer as its own config."""
        return {"tokenizer": self.tokenizer.get_config(), "sequence_length": self.sequence_length}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a preprocessor from the dict that `get_config` returned."""
        return cls(**{**config, "tokenizer": BertTokenizer.from_config(config["tokenizer"])})

    @classmethod
    def from_preset(cls, name: PathLike, lower_case: bool | None = None, **kwargs: Any) -> Self:
        """Creates a preprocessor with the tokenizer of a published model; its weights are not downloaded.

        Args:
            name, lower_case: as for `BertTokenizer.from_preset`, also for the errors.
            **kwargs: further arguments of the constructor, such as `sequence_length`.

        Returns:
            A preprocessor of this class.
        """
        return cls(BertTokenizer.from_preset(name, lower_case), **kwargs)
