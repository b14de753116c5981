"""Examples that were tokenized once and are kept as ids: two bytes a token, and no texts."""

import itertools
import zlib

import numpy as np
import tensorflow as tf

from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS, text_column
from keras_bert.io.row_errors import quotation

# Texts tokenized at once: enough to keep all cores busy, few enough that their text takes no memory to speak of.
_CHUNK_SIZE = 2048
NO_LABEL = -1  # of a token
# A static length is a multiple of it, for the sake of the vector units.
_STATIC_LENGTH_MULTIPLE = 8


class TokenizedExamples:
    """The ids of many texts or pairs, with their labels, from which batches are put together in the graph.

    The rows lie one after another in flat arrays, without padding. With windows (see `BertPreprocessor`) a text has
    several rows, and with choices an example has a row for each.

    Args:
        token_ids: int array [tokens of all rows].
        row_lengths: int array [rows]. Tokens of each row, with the special ones.
        first_segment_lengths: int array [rows]. How many of them are of segment 0.
        rows_of_example: int array [examples], or None where every example has one row.
        labels: array [examples, ...]; or int array [tokens of all rows], a label for each token, -1 where there is
            none; or None.
        token_counts: int array [examples]. The tokens that a text had before anything was cut off.
        pad_id: int. The id of [PAD].
        choices: int, the rows of every example, one for each of its choices; or None.
        labels_of_tokens: bool. Whether the labels are those of tokens.

    Raises:
        ValueError: if the arrays do not belong together.

    Example:

    >>> examples = TokenizedExamples([2, 7, 3, 2, 3], [3, 2], [3, 2], labels=np.array([0, 1]))
    >>> len(examples), examples.lengths.tolist()
    (2, [3, 2])
    >>> inputs, labels = examples.batch(tf.constant([1, 0]))
    >>> inputs["token_ids"].numpy().tolist(), labels.numpy().tolist()
    ([[2, 3, 0], [2, 7, 3]], [1, 0])
    """

    def __init__(
        self,
        token_ids,
        row_lengths,
        first_segment_lengths,
        rows_of_example=None,
        labels=None,
        token_counts=None,
        pad_id=0,
        choices=None,
        labels_of_tokens=False,
    ):
        self._row_lengths = np.asarray(row_lengths, "int32")
        self._rows_of_example = None if rows_of_example is None else np.asarray(rows_of_example, "int64")
        self.labels = labels
        self.pad_id = pad_id
        self.choices = choices
        self._labels_of_tokens = labels_of_tokens
        self.token_counts = self.lengths if token_counts is None else np.asarray(token_counts)
        self._check(len(token_ids), len(first_segment_lengths))
        # Tensors, which a dataset's functions hold as they are: arrays would be copied into their graphs.
        self._token_ids = tf.constant(token_ids)
        self._starts = tf.constant(np.cumsum(self._row_lengths, dtype="int64") - self._row_lengths)
        self._lengths = tf.constant(self._row_lengths)
        self._first_segment_lengths = tf.constant(first_segment_lengths, tf.int32)
        self._label_tensor = None if labels is None else tf.constant(labels)
        if self.has_windows:
            self._row_numbers = tf.constant(self._rows_of_example)
            self._first_rows = tf.constant(np.cumsum(self._rows_of_example) - self._rows_of_example)

    def _check(self, ids, first_segments):
        rows = len(self._row_lengths)
        if self._row_lengths.sum(dtype="int64") != ids or first_segments != rows:
            raise ValueError(
                f"{ids} ids do not belong to {rows} rows of {self._row_lengths.sum()} tokens with {first_segments} "
                "first segments"
            )
        if self._rows_of_example is not None and self._rows_of_example.sum() != rows:
            raise ValueError(f"the examples have {self._rows_of_example.sum()} rows, but there are {rows}")
        if self.choices is not None and rows % self.choices:
            raise ValueError(f"{rows} rows are not {self.choices} for each example")
        number = ids if self._labels_of_tokens else len(self)
        if self.labels is not None and len(self.labels) != number:
            what = "tokens" if self._labels_of_tokens else "examples"
            raise ValueError(f"there are {number} {what}, but {len(self.labels)} labels")

    def __len__(self):
        """The number of examples."""
        if self.choices is not None:
            return len(self._row_lengths) // self.choices
        return len(self._row_lengths if self._rows_of_example is None else self._rows_of_example)

    @property
    def lengths(self):
        """int32 array [examples]: the tokens of each, as a batch will hold them (of its longest window or choice)."""
        if self.choices is not None:
            return self._row_lengths.reshape([-1, self.choices]).max(axis=1)
        if self._rows_of_example is None or not len(self):
            return self._row_lengths
        return np.maximum.reduceat(self._row_lengths, np.cumsum(self._rows_of_example) - self._rows_of_example)

    @property
    def token_ids(self):
        """int array [tokens of all rows], one row after another."""
        return self._token_ids.numpy()

    @property
    def first_segment_lengths(self):
        """int32 array [rows]: how many tokens of each are of segment 0."""
        return self._first_segment_lengths.numpy()

    @property
    def has_windows(self):
        """Whether an example may have several rows."""
        return self._rows_of_example is not None

    def fingerprint(self):
        """A number that changes when an id, a label or the order of the examples does.

        Returns:
            str, eight hexadecimal digits.
        """
        arrays = (self._token_ids.numpy(), self._row_lengths, self._first_segment_lengths.numpy(), self.labels)
        checksum = 0
        for array in arrays:
            if array is not None:
                checksum = zlib.crc32(np.ascontiguousarray(array).tobytes(), checksum)
        return f"{checksum:08x}"

    def batch(self, indices, length_multiple=1):
        """Puts a batch together; it can run in `tf.data.Dataset.map`.

        Args:
            indices: int tensor [batch]. Numbers of the examples.
            length_multiple: int. The rows are padded to the next multiple of it that holds the longest of them, but
                not beyond the longest row of all.

        Returns:
            `(inputs, labels)`, or the inputs alone where there are no labels. The inputs are int32 tensors [rows,
            length] `token_ids`, `segment_ids`, `padding_mask`, and with windows `window_text_ids` [rows]; with choices
            they are [examples, choices, length]. Labels of tokens are [rows, length], -1 for padding.
        """
        rows, windows = self._rows(indices), {}
        if self.has_windows:
            first, number = tf.gather(self._first_rows, indices), tf.gather(self._row_numbers, indices)
            of_text = tf.ragged.range(first, first + number)
            rows, windows = of_text.values, {"window_text_ids": tf.cast(of_text.value_rowids(), tf.int32)}
        lengths = tf.gather(self._lengths, rows)[:, None]
        longest = tf.maximum(tf.reduce_max(lengths), 1)  # a worker's part of a small batch may have no rows
        padded_length = -(-longest // length_multiple) * length_multiple
        inputs, labels = self._inputs(rows, lengths, tf.minimum(padded_length, self._row_lengths.max()))
        inputs |= windows
        return inputs if self.labels is None else (inputs, self._labels(indices, labels))

    def static_batch(self, indices, rows):
        """Puts a batch together that has one shape whatever is in it, as XLA wants it on a TPU.

        Args:
            indices: int tensor [at most rows]. Numbers of the examples.
            rows: int. Rows of the batch; those beyond the examples are padding throughout, with weight 0.

        Returns:
            `(inputs, labels, sample_weight)`, or the inputs alone where there are no labels: int32 tensors [rows,
            length of the longest row of all, rounded up to a multiple of 8], and float32 [rows].

        Raises:
            ValueError: if the examples have windows, of which texts have different numbers.
        """
        if self.has_windows:
            raise ValueError("a batch of windows has no static shape; use long_texts='truncate'")
        is_example = tf.range(rows) < tf.size(indices)
        indices = tf.ensure_shape(tf.pad(indices, [[0, rows - tf.size(indices)]]), [rows])
        numbers = self._rows(indices)
        has_tokens = tf.repeat(is_example, self.choices or 1)
        lengths = tf.where(has_tokens, tf.gather(self._lengths, numbers), 0)[:, None]
        padded_length = -(-int(self._row_lengths.max()) // _STATIC_LENGTH_MULTIPLE) * _STATIC_LENGTH_MULTIPLE
        inputs, labels = self._inputs(numbers, lengths, padded_length)
        if self.labels is None:
            return inputs
        return inputs, self._labels(indices, labels), tf.cast(is_example, tf.float32)

    def _rows(self, indices):
        """The rows of some examples: one of each, or one for each choice."""
        if self.choices is None:
            return indices
        first = tf.cast(indices, tf.int64)[:, None] * self.choices
        return tf.reshape(first + tf.range(self.choices, dtype=tf.int64), [-1])

    def _labels(self, indices, of_tokens):
        return of_tokens if self._labels_of_tokens else tf.gather(self._label_tensor, indices)

    def _inputs(self, rows, lengths, padded_length):
        """The inputs of some rows, of which the first `lengths` [rows, 1] tokens are taken, and their tokens' labels,
        if there are any."""
        positions = tf.range(padded_length)[None]  # [1, length]
        is_token = positions < lengths  # [rows, length]
        # Places of padding point at the row's own first token, so that every place is inside the array.
        offsets = tf.cast(tf.where(is_token, positions, 0), tf.int64)
        places = tf.gather(self._starts, rows)[:, None] + offsets
        ids = tf.cast(tf.gather(self._token_ids, places), tf.int32)
        second = positions >= tf.gather(self._first_segment_lengths, rows)[:, None]
        inputs = {
            "token_ids": tf.where(is_token, ids, self.pad_id),
            "segment_ids": tf.cast(is_token & second, tf.int32),
            "padding_mask": tf.cast(is_token, tf.int32),
        }
        labels = None
        if self._labels_of_tokens and self.labels is not None:
            labels = tf.where(is_token, tf.gather(self._label_tensor, places), NO_LABEL)
        if self.choices is not None:
            inputs = {name: tf.reshape(ids, [-1, self.choices, padded_length]) for name, ids in inputs.items()}
        return inputs, labels


def tokenize_examples(examples, preprocessor, encode_labels=None):
    """Tokenizes a stream of examples; what is kept of them is ids, lengths and labels.

    Args:
        examples: iterable of dicts with `text`, or `text_a` and `text_b`, and `label` if `encode_labels` is given.
        preprocessor: a `BertPreprocessor`.
        encode_labels: a function from a list of labels to an array of numbers, or None to leave labels out.

    Returns:
        `TokenizedExamples`.

    Raises:
        ValueError: if there are no examples, or their texts are not named alike.

    Example:

    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad"], lower_case=True)
    >>> preprocessor = keras_bert.BertPreprocessor(tokenizer)
    >>> examples = [{"text": "good", "label": 1}, {"text": "bad bad", "label": 0}]
    >>> tokenize_examples(examples, preprocessor, np.array).lengths.tolist()
    [3, 4]
    """
    parts = []
    examples = iter(examples)
    names = None
    while chunk := list(itertools.islice(examples, _CHUNK_SIZE)):
        names = names or _text_names(chunk[0])
        columns = {name: tf.constant([example[name] for example in chunk], tf.string) for name in names}
        labels = None if encode_labels is None else encode_labels([example["label"] for example in chunk])
        parts.append((*_flatten(*preprocessor.with_token_counts(columns), preprocessor.tokenizer.vocab_size), labels))
    if not parts:
        raise ValueError("there are no examples")
    ids, row_lengths, first_segments, rows_of_example, counts, labels = (
        None if column[0] is None else np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return TokenizedExamples(
        ids, row_lengths, first_segments, rows_of_example, labels, counts, preprocessor.tokenizer.pad_id
    )


def tokenize_choices(prompts, choices, preprocessor, labels=None):
    """Tokenizes prompts with their choices, a row for each pair of them (paper, section 4.4).

    Args:
        prompts: list of str.
        choices: list of lists of str, equally many for each prompt.
        preprocessor: a `BertPreprocessor`.
        labels: list of int, the number of each prompt's right choice, from 0; or None.

    Returns:
        `TokenizedExamples` with choices.

    Raises:
        ValueError: if there are no prompts, they are a single text, the numbers of prompts, choices and labels do not
            fit, or a label is no number of a choice.
        TypeError: if a prompt or a choice is not a string.

    Example:

    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "it", "rains"], lower_case=True)
    >>> examples = tokenize_choices(["it"], [["rains", "it"]], keras_bert.BertPreprocessor(tokenizer), [0])
    >>> examples.batch(tf.constant([0]))[0]["token_ids"].numpy().tolist()
    [[[2, 4, 3, 5, 3], [2, 4, 3, 4, 3]]]
    """
    prompts, choices = text_column(prompts, "prompt"), list(choices)
    if not len(prompts) == len(choices) == (len(prompts) if labels is None else len(labels)):
        raise ValueError(
            f"there must be choices and a label for each prompt; got {len(prompts)} prompts, {len(choices)} lists of "
            f"choices and {'no' if labels is None else len(labels)} labels"
        )
    choices = [text_column(of_prompt, f"choices[{row}]").tolist() for row, of_prompt in enumerate(choices)]
    number = len(choices[0]) if choices else 0
    for row, of_prompt in enumerate(choices):
        if len(of_prompt) < 2 or len(of_prompt) != number:
            raise ValueError(
                f"choices are a list of at least two texts, equally many for all prompts; question 0 has {number}, and "
                f"question {row} has {of_prompt!r}"
            )
    pairs = zip(prompts, choices, strict=True)
    rows = tokenize_examples(
        ({"text_a": prompt, "text_b": choice} for prompt, of_prompt in pairs for choice in of_prompt), preprocessor
    )
    if labels is not None:
        labels = np.reshape(labels, -1)
        if labels.dtype.kind not in "biuf":
            raise ValueError(f"labels are numbers of choices, from 0 to {number - 1}; got {quotation(labels.tolist())}")
        wrong = np.flatnonzero((labels < 0) | (labels >= number) | (labels != np.floor(labels)))
        if len(wrong):
            raise ValueError(
                f"labels are numbers of choices, from 0 to {number - 1}; label {wrong[0]} is {labels[wrong[0]]}"
            )
        labels = labels.astype("int32")
    return TokenizedExamples(
        rows.token_ids,
        rows.lengths,
        rows.first_segment_lengths,
        labels=labels,
        token_counts=rows.token_counts,
        pad_id=rows.pad_id,
        choices=number,
    )


def _text_names(example):
    for names in (TEXT_COLUMNS, PAIR_COLUMNS):
        if set(names) <= set(example):
            return names
    raise ValueError(f"an example needs `text`, or `text_a` and `text_b`; got one with {sorted(example)}")


def _flatten(packed, counts, vocab_size):
    rows_of_example = None
    if "window_text_ids" in packed:
        rows_of_example = np.bincount(packed["window_text_ids"].numpy(), minlength=len(counts))
    return (*flatten_rows(packed, vocab_size), rows_of_example, counts.numpy())


def flatten_rows(packed, vocab_size):
    """Packed rows as `TokenizedExamples` keeps them, without padding.

    Args:
        packed: dict of int tensors [rows, length], as `keras_bert.text.pack.pack` gives.
        vocab_size: int. Ids of a small vocabulary are kept in two bytes.

    Returns:
        `(token_ids, row_lengths, first_segment_lengths)`, arrays [tokens of all rows], [rows], [rows].

    Example:

    >>> from keras_bert.text.pack import pack
    >>> packed = pack(tf.ragged.constant([[7]]), None, cls_id=2, sep_id=3, pad_id=0, sequence_length=5)
    >>> [array.tolist() for array in flatten_rows(packed, vocab_size=10)]
    [[2, 7, 3], [3], [3]]
    """
    is_token = packed["padding_mask"].numpy() != 0
    ids = packed["token_ids"].numpy()[is_token]
    return (
        ids.astype("uint16") if vocab_size <= 1 << 16 else ids,
        is_token.sum(axis=1),
        (is_token & (packed["segment_ids"].numpy() == 0)).sum(axis=1),
    )
