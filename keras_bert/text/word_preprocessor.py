"""`BertWordPreprocessor`: sequences of words to the encoder's inputs."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.text.pack import ADDED_TO_ONE_SEGMENT, PackingPreprocessor, check_sequence_length
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.windows import (
    MAX_WINDOWS,
    check_max_windows,
    count_by_row,
    first_tokens_of_windows,
    has_max_context,
    split_into_windows,
)


class WordInputs(NamedTuple):
    """The encoder's inputs for windows of sequences, and the position of each word's first wordpiece."""

    inputs: dict[str, tf.Tensor]  # int32 [windows, length]: token_ids, segment_ids, padding_mask
    windows: tf.Tensor  # int32 [words of all sequences]: the window that gives the first wordpiece the most context
    positions: tf.Tensor  # int32 [words of all sequences]: position of the first wordpiece in that window's row
    num_words: tf.Tensor  # int32 [sequences]: how many words were read, from the first; the others have no window
    num_windows: tf.Tensor  # int32 [sequences]


class BertWordPreprocessor(PackingPreprocessor):
    """Tokenizes sequences of words and packs them into the windows that `BertEncoder` takes.

    A sequence that is longer than the model is split into overlapping windows, and no word is lost. A word without any
    token becomes one `[UNK]`, so that every word has a first wordpiece, at which its label is predicted. Runs in the
    TensorFlow graph: in `tf.function` and inside an exported SavedModel.

    Source: arXiv 1810.04805, section 5.3; the windows are those of google-research/bert `run_squad.py`.

    Args:
        tokenizer: the tokenizer.
        sequence_length: maximum number of ids per window, `[CLS]` and `[SEP]` included.
        stride: number of wordpieces between the beginnings of windows. Defaults to None: half a window.
        max_windows: maximum number of windows of a raw text, for `BertTokenClassifier.tag` and exported models; the
            words after them get no tag. It limits time and memory, which grow with the longest text. None is no limit:
            do not use it on untrusted texts. Sequences of words are read to their end.

    Inputs: string `RaggedTensor` `[sequences, (words)]`, and optionally a `max_windows` for them.

    Outputs: named tuple of `inputs`, a dict of int32 tensors `[windows, length]` padded to the longest window:
        `token_ids`, `segment_ids`, `padding_mask`; int32 `windows` and `positions` `[words of all sequences]`, the
        window and the position in it of each word's first wordpiece; and int32 `num_words` and `num_windows`
        `[sequences]`, of which `num_words` is smaller than the sequence if it was cut.

    Raises:
        TypeError: `tokenizer` is not a BertTokenizer, or `sequence_length` is not an int.
        ValueError: `sequence_length` is below 3, or `stride` or `max_windows` is not an int of at least 1.

    Example:
        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "a"], lower_case=True)
        >>> prepared = BertWordPreprocessor(tokenizer)(tf.ragged.constant([["playing", "a"]]))
        >>> prepared.inputs["token_ids"].numpy().tolist(), prepared.positions.numpy().tolist()
        ([[2, 4, 5, 6, 3]], [1, 3])
    """

    def __init__(
        self,
        tokenizer: BertTokenizer,
        sequence_length: int = 128,
        stride: int | None = None,
        max_windows: int | None = MAX_WINDOWS,
    ) -> None:
        super().__init__(tokenizer, sequence_length)
        check_sequence_length(sequence_length, pair=True)  # room for one wordpiece between [CLS] and [SEP]
        if stride is not None and (isinstance(stride, bool) or not isinstance(stride, int) or stride < 1):
            raise ValueError(f"stride must be an int of at least 1, or None. Received: {stride!r}.")
        check_max_windows(max_windows)
        self.stride = stride
        self.max_windows = max_windows

    def __call__(self, words: tf.RaggedTensor, max_windows: int | None = None) -> WordInputs:
        """Tokenizes and packs a batch of sequences; see the class for inputs, outputs and errors."""
        wordpieces = self._tokenize_words(words.values)  # [words, (wordpieces)]
        is_first = tf.equal(tf.ragged.range(wordpieces.row_lengths()).values, 0)
        # Windows hold wordpiece indices, by which all properties of a wordpiece are looked up afterwards.
        indices = words.with_values(wordpieces.with_values(tf.range(tf.size(wordpieces.values)))).merge_dims(1, 2)
        room = self.sequence_length - ADDED_TO_ONE_SEGMENT
        stride = min(max(room // 2, 1) if self.stride is None else self.stride, room)
        windows, rows = split_into_windows(indices, room, stride, max_windows)
        inputs = self.pack(windows.with_values(tf.gather(wordpieces.values, windows.values)))
        first_tokens = first_tokens_of_windows(rows, stride) + tf.cast(tf.gather(indices.row_starts(), rows), tf.int32)
        is_read = tf.logical_and(has_max_context(windows, first_tokens).values, tf.gather(is_first, windows.values))
        read = tf.where(is_read)[:, 0]
        # In the order of the words: windows overlap, so that a later one may contain an earlier word.
        read = tf.gather(read, tf.argsort(tf.gather(windows.values, read)))
        window = tf.gather(windows.value_rowids(), read)
        num_sequences = words.nrows(tf.int32)
        return WordInputs(
            inputs,
            tf.cast(window, tf.int32),
            tf.cast(read - tf.gather(windows.row_starts(), window) + 1, tf.int32),  # 1 for [CLS]
            count_by_row(tf.gather(rows, window), num_sequences),
            count_by_row(rows, num_sequences),
        )

    def _tokenize_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes each word to at least one wordpiece, int32 [words, (wordpieces)]."""
        wordpieces = self.tokenizer.tokenize(words)
        unknown = tf.fill([tf.size(words), 1], self.tokenizer.unk_id)
        is_empty = tf.cast(tf.equal(wordpieces.row_lengths(), 0), tf.int64)
        return tf.concat([wordpieces, tf.RaggedTensor.from_tensor(unknown, lengths=is_empty)], axis=1)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments in a form that JSON can hold, the tokenizer as its own config."""
        return {**super().get_config(), "stride": self.stride, "max_windows": self.max_windows}
