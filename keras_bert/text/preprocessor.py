"""`BertPreprocessor`: texts or pairs of texts to the encoder's inputs."""

from typing import Any

import tensorflow as tf

from keras_bert.text.inputs import as_segment_tensors
from keras_bert.text.pack import PackingPreprocessor, check_pad_to, check_sequence_length, packed_lengths
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.windows import (
    MAX_WINDOWS,
    check_max_windows,
    count_windows_of_pairs,
    split_pairs_into_windows,
)

WINDOWS = "windows"
LONG_TEXTS_CHOICES = ("truncate", WINDOWS)


class BertPreprocessor(PackingPreprocessor):
    """Tokenizes texts or pairs of texts and packs them into the ids that `BertEncoder` takes.

    Runs in the TensorFlow graph: in `tf.data.Dataset.map`, in `tf.function` and inside an exported SavedModel.

    Source: `convert_single_example` in google-research/bert `run_classifier.py`; arXiv 1810.04805, section 3.

    Args:
        tokenizer: the tokenizer.
        sequence_length: maximum number of ids per row, special tokens included; longer texts are truncated. At least 2,
            for pairs 3. Defaults to 128, as in `run_classifier.py`.
        pad_to: "longest" pads to the longest row of each batch, "max_length" always to `sequence_length`.
            Differs from BERT: defaults to "longest", which computes less for the same result; "max_length" restores
            the original.
        long_texts: "truncate" drops the tokens that do not fit; "windows" splits the text into overlapping windows,
            whose logits a classifier averages.
        window_stride: number of tokens between the beginnings of windows. Defaults to None: half a window.
        max_windows: maximum number of windows of a text; the tokens after them are dropped. It limits time and memory,
            which grow with the longest text. None is no limit: do not use it on texts from untrusted sources.

    Inputs: one of
        - a list, NumPy array, pandas Series or string tensor `[batch]`: single texts (a list of two strings is a batch
          of two texts);
        - a tuple of two of those: pairs;
        - a dict or pandas DataFrame with the column `text`, or the columns `text_a` and `text_b`.

    Outputs: dict of int32 tensors `[batch, length]`: `token_ids`, `segment_ids`, `padding_mask`. With windows the shape
        is `[windows, length]`, and `window_text_ids` `[windows]` is the index of each window's text, ascending from 0.

    Raises:
        TypeError: `tokenizer` is not a BertTokenizer, `sequence_length` is not an int, or an input is not text.
        ValueError: an argument is out of range, `window_stride` is given without windows, or the inputs have wrong keys
            or shapes, or unequal numbers of first and second texts.

    Example:
        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "!"], lower_case=True)
        >>> preprocessor = BertPreprocessor(tokenizer)
        >>> preprocessor(["Playing!", "Play"])["token_ids"].numpy().tolist()
        [[2, 4, 5, 6, 3], [2, 4, 3, 0, 0]]
        >>> preprocessor((["Play"], ["!"]))["segment_ids"].numpy().tolist()
        [[0, 0, 0, 1, 1]]
    """

    def __init__(
        self,
        tokenizer: BertTokenizer,
        sequence_length: int = 128,
        pad_to: str = "longest",
        long_texts: str = "truncate",
        window_stride: int | None = None,
        max_windows: int | None = MAX_WINDOWS,
    ) -> None:
        super().__init__(tokenizer, sequence_length)
        check_sequence_length(sequence_length, pair=False)
        check_pad_to(pad_to)
        if long_texts not in LONG_TEXTS_CHOICES:
            raise ValueError(f"long_texts must be one of {LONG_TEXTS_CHOICES}. Received: {long_texts!r}.")
        if window_stride is not None and (
            long_texts != WINDOWS or not isinstance(window_stride, int) or window_stride < 1
        ):
            raise ValueError(
                f"window_stride must be an int of at least 1, and needs long_texts={WINDOWS!r}. "
                f"Received: window_stride={window_stride!r}, long_texts={long_texts!r}."
            )
        check_max_windows(max_windows)
        self.pad_to = pad_to
        self.long_texts = long_texts
        self.window_stride = window_stride
        self.max_windows = max_windows

    def __call__(self, inputs: Any) -> dict[str, tf.Tensor]:
        """Tokenizes and packs a batch of texts or pairs; see the class for inputs, outputs and errors."""
        return self._pack(*self._tokenize(inputs))

    def with_token_counts(self, inputs: Any) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Tokenizes a batch once, and returns the results of both `__call__` and `token_counts`.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play"], lower_case=True)
            >>> preprocessor = BertPreprocessor(tokenizer, sequence_length=4)
            >>> ids, counts = preprocessor.with_token_counts(["play", "play play play"])
            >>> ids["token_ids"].numpy().tolist(), counts.numpy().tolist()
            ([[2, 4, 3, 0], [2, 4, 4, 3]], [3, 5])
        """
        segments = self._tokenize(inputs)
        return self._pack(*segments), packed_lengths(*segments)

    def with_window_counts(self, inputs: Any) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        """Tokenizes a batch once, and returns the result of `__call__` and how much of each text it holds.

        Args:
            inputs: texts or pairs, as for the class.

        Returns:
            The dict of ids; the number of windows of each text, int32 `[batch]`; and whether it has more than
            `max_windows`, bool `[batch]`, so that its last tokens were dropped. Without windows, each text has one row,
            and is cut if its tokens are more than `sequence_length`.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play"], lower_case=True)
            >>> preprocessor = BertPreprocessor(tokenizer, 4, long_texts="windows", max_windows=3)
            >>> ids, windows, is_cut = preprocessor.with_window_counts(["play", "play " * 4, "play " * 99])
            >>> windows.numpy().tolist(), is_cut.numpy().tolist()
            ([1, 3, 3], [False, False, True])
        """
        segments = self._tokenize(inputs)
        if self.long_texts != WINDOWS:
            counts = packed_lengths(*segments)
            return self._pack(*segments), tf.ones_like(counts), counts > self.sequence_length
        needed = count_windows_of_pairs(*segments, self.sequence_length, self.window_stride)
        limit = tf.int32.max if self.max_windows is None else self.max_windows
        return self._pack(*segments), tf.minimum(needed, limit), needed > limit

    def token_counts(self, inputs: Any) -> tf.Tensor:
        """Counts the ids of each text or pair before truncation, special tokens included.

        Args:
            inputs: texts or pairs, as for the class.

        Returns:
            int32 tensor `[batch]`; `__call__` truncates or splits a text whose count exceeds `sequence_length`.
        """
        return packed_lengths(*self._tokenize(inputs))

    def _tokenize(self, inputs: Any) -> tuple[tf.RaggedTensor, tf.RaggedTensor | None]:
        segments = [self.tokenizer.tokenize(texts) for texts in as_segment_tensors(inputs)]
        return (segments[0], None) if len(segments) == 1 else (segments[0], segments[1])

    def _pack(self, segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor | None) -> dict[str, tf.Tensor]:
        if self.long_texts != WINDOWS:
            return self.pack(segment_a, segment_b, self.pad_to)
        windows_a, windows_b, rows = split_pairs_into_windows(
            segment_a, segment_b, self.sequence_length, self.window_stride, self.max_windows
        )
        return {**self.pack(windows_a, windows_b, self.pad_to), "window_text_ids": rows}

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments in a form that JSON can hold, the tokenizer as its own config."""
        return {
            **super().get_config(),
            "pad_to": self.pad_to,
            "long_texts": self.long_texts,
            "window_stride": self.window_stride,
            "max_windows": self.max_windows,
        }
