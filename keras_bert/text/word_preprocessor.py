"""Sequences of words, whatever their length, as packed windows, and where each word is read in them."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.text.pack import ADDED_TO_ONE_SEGMENT, check_sequence_length
from keras_bert.text.packing_preprocessor import PackingPreprocessor
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.windows import first_tokens_of_windows, has_max_context, split_into_windows


class WordInputs(NamedTuple):
    """Windows of ids, and the place of each word.

    Source: arXiv 1810.04805, section 5.3: a word is read at its first piece.

    Args:
        inputs: dict of int32 tensors [windows, length]: `token_ids`, `segment_ids`, `padding_mask`.
        windows: int32 tensor [words of all sequences], the window in which a word is read: the one in which its first
            piece has most context.
        places: int32 tensor [words of all sequences], the place of that piece in the window's row.

    Example:
        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "a"], lower_case=True)
        >>> prepared = BertWordPreprocessor(tokenizer)(tf.ragged.constant([["playing", "a"]]))
        >>> prepared.inputs["token_ids"].numpy().tolist(), prepared.places.numpy().tolist()
        ([[2, 4, 5, 6, 3]], [1, 3])
    """

    inputs: dict[str, tf.Tensor]
    windows: tf.Tensor
    places: tf.Tensor


class BertWordPreprocessor(PackingPreprocessor):
    """Turns sequences of words into the packed windows that `BertEncoder` takes.

    A sequence that is longer than the model is read in overlapping windows, and none of its words is lost. A word of
    which the tokenizer leaves nothing is one `[UNK]`, so that every word has a piece at which it is read. It works on
    tensors in `tf.function` and inside an exported SavedModel.

    Source: arXiv 1810.04805, section 5.3; the windows are those of google-research/bert `run_squad.py`.

    Args:
        tokenizer: `BertTokenizer`.
        sequence_length: int, most ids of a window, `[CLS]` and `[SEP]` included.
        stride: int, pieces from one window's beginning to the next one's; None is half a window.

    Raises:
        TypeError: `tokenizer` is no `BertTokenizer`, or a number no int.
        ValueError: a `sequence_length` below 3, or a `stride` below 1.

    Example: as for `WordInputs`.
    """

    def __init__(self, tokenizer: BertTokenizer, sequence_length: int = 128, stride: int | None = None):
        super().__init__(tokenizer, sequence_length)
        check_sequence_length(sequence_length, pair=True)  # room for a piece beside [CLS] and [SEP]
        if stride is not None and (isinstance(stride, bool) or not isinstance(stride, int) or stride < 1):
            raise ValueError(f"stride must be a whole number of at least 1, or None. Received: {stride!r}.")
        self.stride = stride

    def __call__(self, words: tf.RaggedTensor) -> WordInputs:
        """Tokenizes and packs a batch of sequences.

        Args:
            words: string `RaggedTensor` [sequences, (words)].

        Returns:
            `WordInputs`, each window padded to the longest.
        """
        pieces = self._pieces(words.values)  # [words, (pieces)]
        sequences = words.with_values(pieces)  # [sequences, (words), (pieces)]
        is_first = tf.equal(tf.ragged.range(pieces.row_lengths()).values, 0)
        # The pieces travel by their numbers, so that whatever is known of them can be looked up behind the windows.
        numbers = sequences.with_flat_values(tf.range(tf.size(pieces.values))).merge_dims(1, 2)
        room = self.sequence_length - ADDED_TO_ONE_SEGMENT
        stride = min(max(room // 2, 1) if self.stride is None else self.stride, room)
        windows, rows = split_into_windows(numbers, room, stride)
        inputs = self.pack(windows.with_values(tf.gather(pieces.values, windows.values)))
        first_tokens = first_tokens_of_windows(rows, stride) + tf.cast(tf.gather(numbers.row_starts(), rows), tf.int32)
        is_read = tf.logical_and(has_max_context(windows, first_tokens).values, tf.gather(is_first, windows.values))
        read = tf.where(is_read)[:, 0]
        # In the order of the words: windows overlap, so that a later one may hold what comes before.
        read = tf.gather(read, tf.argsort(tf.gather(windows.values, read)))
        of_window = tf.gather(windows.value_rowids(), read)
        return WordInputs(
            inputs,
            tf.cast(of_window, tf.int32),
            tf.cast(read - tf.gather(windows.row_starts(), of_window) + 1, tf.int32),  # [CLS] is before it
        )

    def _pieces(self, words: tf.Tensor) -> tf.RaggedTensor:
        """The pieces of each word, at least one, int32 [words, (pieces)]."""
        pieces = self.tokenizer.tokenize(words)
        unknown = tf.fill([tf.size(words), 1], self.tokenizer.unk_id)
        lacks = tf.cast(tf.equal(pieces.row_lengths(), 0), tf.int64)
        return tf.concat([pieces, tf.RaggedTensor.from_tensor(unknown, lengths=lacks)], axis=1)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, fit for JSON: dict with the tokenizer's config under "tokenizer"."""
        return {**super().get_config(), "stride": self.stride}
