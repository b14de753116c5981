"""Examples that were tokenized once and are kept as ids: two bytes per token, and no texts."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS, text_column
from keras_bert.io.row_errors import quotation
from keras_bert.text.preprocessor import BertPreprocessor

# Texts tokenized per call: enough to keep all cores busy, few enough that they take little memory.
_CHUNK_SIZE = 2048
NO_LABEL = -1  # for tokens without a label
# Static lengths are multiples of it, for the vector units.
_STATIC_LENGTH_MULTIPLE = 8


class TokenizedExamples:
    """Token ids of many texts or pairs with their labels, from which batches are assembled in the graph.

    Rows are stored one after another in flat arrays, without padding. With windows (see `BertPreprocessor`) a text has
    several rows; with choices an example has one row per choice.

    Args:
        token_ids: int array [tokens of all rows].
        row_lengths: int array [rows], tokens per row, special tokens included.
        first_segment_lengths: int array [rows], how many of them are in segment 0.
        labels: array [examples, ...]; or int array [tokens of all rows], a label per token, -1 for none; or None.
        rows_per_example: int array [examples], or None if every example has one row.
        token_counts: int array [examples], tokens of each text before truncation. Defaults to the lengths.
        pad_id: id of [PAD].
        num_choices: rows per example, one per choice, or per text of a group; None if an example has one row.
    """

    def __init__(
        self,
        token_ids: np.ndarray | Sequence[int],
        row_lengths: np.ndarray | Sequence[int],
        first_segment_lengths: np.ndarray | Sequence[int],
        labels: np.ndarray | None = None,
        rows_per_example: np.ndarray | None = None,
        token_counts: np.ndarray | None = None,
        pad_id: int = 0,
        num_choices: int | None = None,
    ):
        self._row_lengths = np.asarray(row_lengths, "int32")
        self._rows_per_example = None if rows_per_example is None else np.asarray(rows_per_example, "int64")
        self.pad_id = pad_id
        self.num_choices = num_choices
        self.token_counts = self.lengths if token_counts is None else np.asarray(token_counts)
        self._check_rows(len(token_ids), len(first_segment_lengths))
        # Tensors, which a dataset's functions capture; arrays would be copied into their graphs.
        self._token_ids = tf.constant(token_ids)
        self._starts = tf.constant(np.cumsum(self._row_lengths, dtype="int64") - self._row_lengths)
        self._lengths = tf.constant(self._row_lengths)
        self._first_segment_lengths = tf.constant(first_segment_lengths, tf.int32)
        if self._rows_per_example is not None:
            self._row_counts = tf.constant(self._rows_per_example)
            self._first_rows = tf.constant(np.cumsum(self._rows_per_example) - self._rows_per_example)
        # The index of the caller's example for each row, where long examples may have several rows.
        self.caller_rows: np.ndarray | None = None
        self.set_labels(labels)

    def _check_rows(self, num_ids: int, num_first_segments: int) -> None:
        num_rows = len(self._row_lengths)
        if self._row_lengths.sum(dtype="int64") != num_ids or num_first_segments != num_rows:
            raise ValueError(
                f"{num_ids} ids do not fit {num_rows} rows of {self._row_lengths.sum()} tokens with "
                f"{num_first_segments} first segments"
            )
        if self._rows_per_example is not None and self._rows_per_example.sum() != num_rows:
            raise ValueError(f"the examples have {self._rows_per_example.sum()} rows, but there are {num_rows}")
        if self.num_choices is not None and num_rows % self.num_choices:
            raise ValueError(f"{num_rows} rows cannot be {self.num_choices} per example")

    def set_labels(self, labels: np.ndarray | None, sample_weight: np.ndarray | Sequence[float] | None = None) -> None:
        """Sets labels, and how much each of them counts in the loss; raises ValueError for a wrong number of them.

        `sample_weight` is [examples], or [tokens of all rows] for token labels; None weights all equally.
        """
        num_tokens = len(self._token_ids)
        if labels is not None and len(labels) not in (len(self), num_tokens):
            raise ValueError(
                f"there are {len(self)} examples and {num_tokens} tokens, but {len(labels)} labels; give one per "
                "example or one per token"
            )
        # Every row has [CLS] and [SEP], so there are more tokens than examples.
        self._has_token_labels = labels is not None and len(labels) == num_tokens != len(self)
        self.labels = labels
        self._label_tensor: Any = None if labels is None else tf.constant(labels)
        self._weight_tensor: tf.Tensor | None = None
        if sample_weight is None:
            return
        weights = np.asarray(sample_weight, "float32")
        if weights.shape == (len(self),) and self._has_token_labels:
            weights = np.repeat(weights, self._row_lengths)
        if weights.shape != (num_tokens if self._has_token_labels else len(self),):
            raise ValueError(f"sample_weight must have the shape [examples] = [{len(self)}], got {weights.shape}")
        self._weight_tensor = tf.constant(weights)

    def all_labels(self) -> tuple[Any, Any]:
        """Returns all labels as one batch for a head's `loss_weights`, and the sample weights (or None).

        Token labels are [tokens, 1]: every token is a row of its own.
        """
        labels = self._label_tensor
        return labels[:, None] if self._has_token_labels else labels, self._weight_tensor

    def __len__(self) -> int:
        """Returns the number of examples."""
        if self.num_choices is not None:
            return len(self._row_lengths) // self.num_choices
        return len(self._row_lengths if self._rows_per_example is None else self._rows_per_example)

    @property
    def lengths(self) -> np.ndarray:
        """int32 array [examples]: tokens per example, of its longest window or choice."""
        if self.num_choices is not None:
            return self._row_lengths.reshape([-1, self.num_choices]).max(axis=1)
        if self._rows_per_example is None or not len(self):
            return self._row_lengths
        return np.maximum.reduceat(self._row_lengths, np.cumsum(self._rows_per_example) - self._rows_per_example)

    @property
    def token_ids(self) -> np.ndarray:
        """int array [tokens of all rows], one row after another."""
        return self._token_ids.numpy()

    @property
    def row_lengths(self) -> np.ndarray:
        """int32 array [rows]: tokens per row."""
        return self._row_lengths

    @property
    def first_segment_lengths(self) -> np.ndarray:
        """int32 array [rows]: tokens of each row in segment 0."""
        return self._first_segment_lengths.numpy()

    @property
    def has_windows(self) -> bool:
        """Whether an example may have several rows."""
        return self._rows_per_example is not None

    def fingerprint(self) -> str:
        """Returns a checksum of ids, labels and the order of the examples: eight hexadecimal digits."""
        arrays = (self.token_ids, self._row_lengths, self.first_segment_lengths, self.labels)
        checksum = 0
        for array in arrays:
            if array is not None:
                checksum = zlib.crc32(np.ascontiguousarray(array).tobytes(), checksum)
        return f"{checksum:08x}"

    def batch(self, indices: tf.Tensor, length_multiple: int = 1) -> Any:
        """Assembles `inputs`, `(inputs, labels)` or `(inputs, labels, sample_weight)`; runs in `tf.data.Dataset.map`.

        Inputs are int32 [rows, length] `token_ids`, `segment_ids`, `padding_mask`, with windows also `window_text_ids`
        [rows]; with choices they are [examples, choices, length]. Token labels are [rows, length], -1 for padding. Rows
        are padded to the next multiple of `length_multiple` that holds the longest of them, but not beyond the longest
        row of all examples.
        """
        rows, windows = self._rows(indices), {}
        if self.has_windows:
            first, counts = tf.gather(self._first_rows, indices), tf.gather(self._row_counts, indices)
            rows_of_texts = tf.ragged.range(first, first + counts)
            rows = rows_of_texts.values
            windows = {"window_text_ids": tf.cast(rows_of_texts.value_rowids(), tf.int32)}
        lengths = tf.gather(self._lengths, rows)[:, None]
        longest = tf.maximum(tf.reduce_max(lengths), 1)  # a worker's share of a small batch may have no rows
        padded_length = -(-longest // length_multiple) * length_multiple
        inputs, *rest = self._gather(indices, rows, lengths, tf.minimum(padded_length, self._row_lengths.max()))
        inputs |= windows
        return (inputs, *rest) if rest else inputs

    def static_batch(self, indices: tf.Tensor, num_rows: int) -> Any:
        """Assembles `(inputs, labels, sample_weight)`, or unlabeled inputs, of one static shape, for XLA on a TPU.

        Tensors are [num_rows, length of the longest row of all examples, rounded up to a multiple of 8]; rows beyond
        the examples are padding, with weight 0. Raises ValueError with windows, whose number differs between texts.
        """
        if self.has_windows:
            raise ValueError("a batch of windows has no static shape; use long_texts='truncate'")
        is_example = tf.range(num_rows) < tf.size(indices)
        indices = tf.ensure_shape(tf.pad(indices, [[0, num_rows - tf.size(indices)]]), [num_rows])
        rows = self._rows(indices)
        has_tokens = tf.repeat(is_example, self.num_choices or 1)
        lengths = tf.where(has_tokens, tf.gather(self._lengths, rows), 0)[:, None]
        padded_length = -(-int(self._row_lengths.max()) // _STATIC_LENGTH_MULTIPLE) * _STATIC_LENGTH_MULTIPLE
        inputs, *rest = self._gather(indices, rows, lengths, padded_length)
        if not rest:
            return inputs
        weights = tf.cast(is_example, tf.float32)
        if len(rest) == 2:
            weights = rest[1] * (weights[:, None] if self._has_token_labels else weights)
        return inputs, rest[0], weights

    def _rows(self, indices: tf.Tensor) -> tf.Tensor:
        """Returns the rows of some examples: one each, or one per choice."""
        if self.num_choices is None:
            return indices
        first = tf.cast(indices, tf.int64)[:, None] * self.num_choices
        return tf.reshape(first + tf.range(self.num_choices, dtype=tf.int64), [-1])

    def _gather(
        self, indices: tf.Tensor, rows: tf.Tensor, lengths: tf.Tensor, padded_length: int | tf.Tensor
    ) -> tuple[Any, ...]:
        """Returns inputs, labels and weights of the first `lengths` [rows, 1] tokens of some rows."""
        positions = tf.range(padded_length)[None]  # [1, length]
        is_token = positions < lengths  # [rows, length]
        # Padding points at the row's own first token, so that every position is inside the array.
        offsets = tf.cast(tf.where(is_token, positions, 0), tf.int64)
        token_indices = tf.gather(self._starts, rows)[:, None] + offsets
        ids = tf.cast(tf.gather(self._token_ids, token_indices), tf.int32)
        is_second = positions >= tf.gather(self._first_segment_lengths, rows)[:, None]
        inputs = {
            "token_ids": tf.where(is_token, ids, self.pad_id),
            "segment_ids": tf.cast(is_token & is_second, tf.int32),
            "padding_mask": tf.cast(is_token, tf.int32),
        }
        if self.num_choices is not None:
            inputs = {name: tf.reshape(ids, [-1, self.num_choices, padded_length]) for name, ids in inputs.items()}
        if self._label_tensor is None:
            return (inputs,)
        if self._has_token_labels:
            result = [tf.where(is_token, tf.gather(self._label_tensor, token_indices), NO_LABEL)]
            if self._weight_tensor is not None:
                result.append(tf.where(is_token, tf.gather(self._weight_tensor, token_indices), 0.0))
        else:
            result = [tf.gather(self._label_tensor, indices)]
            if self._weight_tensor is not None:
                result.append(tf.gather(self._weight_tensor, indices))
        return inputs, *result


def tokenize_examples(
    examples: Iterable[Mapping[str, Any]],
    preprocessor: BertPreprocessor,
    encode_labels: Callable[[list[Any]], np.ndarray] | None = None,
) -> TokenizedExamples:
    """Tokenizes a stream of dicts with `text`, or `text_a` and `text_b`, and keeps ids, lengths and labels.

    `encode_labels` turns a list of the dicts' `label`s into an array of numbers; None leaves labels out. Raises
    ValueError if there are no examples, or they have other names.
    """
    parts: list[Any] = []
    examples = iter(examples)
    names = None
    while chunk := list(itertools.islice(examples, _CHUNK_SIZE)):
        names = names or _text_names(chunk[0])
        columns = {name: tf.constant([example[name] for example in chunk], tf.string) for name in names}
        packed, counts = preprocessor.with_token_counts(columns)
        rows_per_example = None
        if "window_text_ids" in packed:
            rows_per_example = np.bincount(packed["window_text_ids"].numpy(), minlength=len(counts))
        labels = None if encode_labels is None else encode_labels([example["label"] for example in chunk])
        flat = flatten_rows(packed, preprocessor.tokenizer.vocab_size)
        parts.append((*flat, labels, rows_per_example, counts.numpy()))
    if not parts:
        raise ValueError("there are no examples")
    arrays: list[Any] = [None if column[0] is None else np.concatenate(column) for column in zip(*parts, strict=True)]
    ids, lengths, first_segments, all_labels, rows_per_example, counts = arrays
    pad_id = preprocessor.tokenizer.pad_id
    return TokenizedExamples(ids, lengths, first_segments, all_labels, rows_per_example, counts, pad_id)


def tokenize_choices(
    prompts: Any, choices: Any, preprocessor: BertPreprocessor, labels: Sequence[int] | None = None
) -> TokenizedExamples:
    """Tokenizes prompts with their choices, one row per pair (paper, section 4.4).

    Every prompt has at least two choices, the same number for all; `labels` are the indices of the correct ones.
    """
    prompts, choices = text_column(prompts, "prompt"), list(choices)
    if not len(prompts) == len(choices) == (len(prompts) if labels is None else len(labels)):
        raise ValueError(
            f"every prompt needs choices and a label; got {len(prompts)} prompts, {len(choices)} lists of choices and "
            f"{'no' if labels is None else len(labels)} labels"
        )
    choices = [text_column(texts, f"choices[{question}]").tolist() for question, texts in enumerate(choices)]
    num_choices = len(choices[0]) if choices else 0
    for question, texts in enumerate(choices):
        if len(texts) < 2 or len(texts) != num_choices:
            raise ValueError(
                f"choices must be at least two texts, the same number for all prompts; question 0 has {num_choices}, "
                f"and question {question} has {texts!r}"
            )
    pairs = zip(prompts, choices, strict=True)
    rows = tokenize_examples(
        ({"text_a": prompt, "text_b": choice} for prompt, texts in pairs for choice in texts), preprocessor
    )
    return _grouped(rows, num_choices, None if labels is None else _choice_labels(labels, num_choices))


def tokenize_groups(
    columns: Sequence[Iterable[Any]], preprocessor: BertPreprocessor, labels: np.ndarray | None = None
) -> TokenizedExamples:
    """Tokenizes examples of several single texts, such as a question and its answer: one row per text.

    Every column has a text per example.
    """
    rows = tokenize_examples(({"text": text} for texts in zip(*columns, strict=True) for text in texts), preprocessor)
    return _grouped(rows, len(columns), labels)


def _grouped(rows: TokenizedExamples, number: int, labels: np.ndarray | None) -> TokenizedExamples:
    """Returns examples of `number` rows each."""
    return TokenizedExamples(
        rows.token_ids,
        rows.row_lengths,
        rows.first_segment_lengths,
        labels,
        token_counts=rows.token_counts,
        pad_id=rows.pad_id,
        num_choices=number,
    )


def _choice_labels(labels: Any, num_choices: int) -> np.ndarray:
    labels, rule = np.reshape(labels, -1), f"labels must be indices of choices, from 0 to {num_choices - 1}"
    if labels.dtype.kind not in "biuf":
        raise ValueError(f"{rule}; got {quotation(labels.tolist())}")
    wrong = np.flatnonzero((labels < 0) | (labels >= num_choices) | (labels != np.floor(labels)))
    if len(wrong):
        raise ValueError(f"{rule}; label {wrong[0]} is {labels[wrong[0]]}")
    return labels.astype("int32")


def _text_names(example: Mapping[str, Any]) -> tuple[str, ...]:
    for names in (TEXT_COLUMNS, PAIR_COLUMNS):
        if set(names) <= set(example):
            return names
    raise ValueError(f"an example needs `text`, or `text_a` and `text_b`; got one with {sorted(example)}")


def flatten_rows(packed: Mapping[str, tf.Tensor], vocab_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Removes the padding of packed rows: flat ids (in two bytes if the vocabulary allows), lengths of the rows, and
    of their first segments."""
    is_token = packed["padding_mask"].numpy() != 0
    ids = packed["token_ids"].numpy()[is_token]
    return (
        ids.astype("uint16") if vocab_size <= 1 << 16 else ids,
        is_token.sum(axis=1),
        (is_token & (packed["segment_ids"].numpy() == 0)).sum(axis=1),
    )


def warn_of_cut_texts(is_cut: Any, preprocessor: Any) -> None:
    """Warns of texts, bool [texts], of which windows after the preprocessor's `max_windows` were dropped."""
    num_cut = int(np.sum(is_cut))
    if num_cut:
        logging.warning(
            "%d of %d texts have more than max_windows=%d windows; the rest of them is not read",
            num_cut,
            len(is_cut),
            preprocessor.max_windows,
        )


def log_long_texts(token_counts: np.ndarray, preprocessor: BertPreprocessor) -> int:
    """Warns of texts with more tokens, special ones included, than the model takes; returns their number."""
    num_long = int(np.sum(np.asarray(token_counts) > preprocessor.sequence_length))
    if num_long:
        is_truncated = getattr(preprocessor, "long_texts", "truncate") == "truncate"
        limit = getattr(preprocessor, "max_windows", None)
        windows = "windows" if limit is None else f"windows, of which the first {limit} of each text are read"
        logging.warning(
            "%d of %d texts are longer than %d tokens and were %s (the longest has %d)",
            num_long,
            len(token_counts),
            preprocessor.sequence_length,
            "truncated" if is_truncated else f"split into {windows} (the second text of a pair)",
            int(np.max(token_counts)),
        )
    return num_long
