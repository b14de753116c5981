"""From texts to the encoder's inputs."""

from typing import Any

import tensorflow as tf

from keras_bert.text.inputs import text_tensor
from keras_bert.text.pack import (
    check_pad_to,
    check_sequence_length,
    packed_lengths,
    split_pairs_into_windows,
)
from keras_bert.text.packing_preprocessor import PackingPreprocessor
from keras_bert.text.tokenizer import BertTokenizer

WINDOWS = "windows"
LONG_TEXTS_CHOICES = ("truncate", WINDOWS)

_SINGLE_KEYS = {"text"}
_PAIR_KEYS = {"text_a", "text_b"}


class BertPreprocessor(PackingPreprocessor):
    """Turns texts, or pairs of texts, into the packed ids that `BertEncoder` takes.

    Source: `convert_single_example` in google-research/bert `run_classifier.py`; arXiv 1810.04805, section 3. It works
    on tensors in `tf.data.Dataset.map`, in `tf.function` and inside an exported SavedModel.

    Args:
        tokenizer: BertTokenizer.
        sequence_length: int, most ids a row, `[CLS]` and `[SEP]` included; what is longer is trimmed. At least 2, for
            pairs 3. Defaults to 128, as in `run_classifier.py`.
        pad_to: "longest" pads to the longest row of each batch, "max_length" always to `sequence_length`.
            Differs from BERT: defaults to "longest", which computes less for the same result; "max_length" restores
            the original.
        long_texts: "truncate" drops what does not fit; "windows" cuts it into overlapping windows, which a classifier
            averages.
        window_stride: int, tokens from one window's beginning to the next one's; None is half a window.

    Inputs: one of
        - a string tensor, array or Python list `[batch]`: single texts (a list of two strings is a batch of two texts);
        - a tuple of two of those: pairs;
        - `{"text": ...}` or `{"text_a": ..., "text_b": ...}`.

    Outputs: dict of int32 tensors `[batch, length]`: `token_ids`, `segment_ids`, `padding_mask`. With windows the rows
        are `[windows, length]`, and `window_text_ids` `[windows]` says which text each is of, ascending from 0.

    Raises:
        TypeError: `tokenizer` is no BertTokenizer, or `sequence_length` no int.
        ValueError: `sequence_length` is below 2, `pad_to` or `long_texts` unknown, or `window_stride` below 1 or given
            without windows.

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
    ):
        super().__init__(tokenizer, sequence_length)
        check_sequence_length(sequence_length, pair=False)
        check_pad_to(pad_to)
        _check_windows(long_texts, window_stride)
        self.pad_to = pad_to
        self.long_texts = long_texts
        self.window_stride = window_stride

    def __call__(self, inputs: Any) -> dict[str, tf.Tensor]:
        """Tokenizes and packs a batch of texts or pairs.

        Args:
            inputs: texts or pairs, as the class says.

        Returns:
            dict of int32 tensors, as the class says.

        Raises:
            TypeError: something other than text.
            ValueError: wrong keys, wrong shapes, or pairs of unequal numbers of texts.
        """
        return self._pack(*self._segments(inputs))

    def with_token_counts(self, inputs: Any) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Tokenizes a batch once for both its ids and the lengths that its texts had before anything was trimmed.

        Args:
            inputs: texts or pairs, as the class says.

        Returns:
            What `__call__` gives, and what `token_counts` gives.

        Raises:
            TypeError: something other than text.
            ValueError: wrong keys, wrong shapes, or pairs of unequal numbers of texts.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play"], lower_case=True)
            >>> preprocessor = BertPreprocessor(tokenizer, sequence_length=4)
            >>> ids, counts = preprocessor.with_token_counts(["play", "play play play"])
            >>> ids["token_ids"].numpy().tolist(), counts.numpy().tolist()
            ([[2, 4, 3, 0], [2, 4, 4, 3]], [3, 5])
        """
        segments = self._segments(inputs)
        return self._pack(*segments), packed_lengths(*segments)

    def _pack(self, segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor | None) -> dict[str, tf.Tensor]:
        windows = {}
        if self.long_texts == WINDOWS:
            segment_a, segment_b, rows = split_pairs_into_windows(
                segment_a, segment_b, self.sequence_length, self.window_stride
            )
            windows = {"window_text_ids": rows}
        return {**self.pack(segment_a, segment_b, self.pad_to), **windows}

    def token_counts(self, inputs: Any) -> tf.Tensor:
        """Counts the ids of each row before anything is trimmed, `[CLS]` and `[SEP]` included.

        A row whose count is above `sequence_length` is one that `__call__` trims.

        Args:
            inputs: texts or pairs, as the class says.

        Returns:
            int32 tensor `[batch]`.

        Raises:
            TypeError: something other than text.
            ValueError: wrong keys, wrong shapes, or pairs of unequal numbers of texts.
        """
        return packed_lengths(*self._segments(inputs))

    def _segments(self, inputs: Any) -> tuple[tf.RaggedTensor, tf.RaggedTensor | None]:
        segments = [self.tokenizer.tokenize(texts) for texts in _texts_of(inputs)]
        return (segments[0], None) if len(segments) == 1 else (segments[0], segments[1])

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, fit for JSON: dict with the tokenizer's config under "tokenizer"."""
        return {
            **super().get_config(),
            "pad_to": self.pad_to,
            "long_texts": self.long_texts,
            "window_stride": self.window_stride,
        }


def _check_windows(long_texts: str, window_stride: int | None) -> None:
    if long_texts not in LONG_TEXTS_CHOICES:
        raise ValueError(f"long_texts must be one of {LONG_TEXTS_CHOICES}. Received: {long_texts!r}.")
    if window_stride is not None and (long_texts != WINDOWS or not isinstance(window_stride, int) or window_stride < 1):
        raise ValueError(
            f"window_stride must be a whole number of at least 1, and goes with long_texts={WINDOWS!r}. "
            f"Received: window_stride={window_stride!r}, long_texts={long_texts!r}."
        )


def _texts_of(inputs: Any) -> list[tf.Tensor]:
    """One string tensor `[batch]`, or two for pairs."""
    if isinstance(inputs, dict):
        if set(inputs) not in (_SINGLE_KEYS, _PAIR_KEYS):
            raise ValueError(
                'The inputs must have the key "text", or the keys "text_a" and "text_b". '
                f"Received: {sorted(map(str, inputs))}. Rename or drop the others."
            )
        named = {name: inputs[name] for name in sorted(inputs)}
    elif isinstance(inputs, tuple):
        if len(inputs) != 2:
            raise ValueError(
                f"A tuple must hold two batches of texts, text_a and text_b. Received: {len(inputs)} of them. "
                "For single texts, give a list, an array or a tensor."
            )
        named = dict(zip(("text_a", "text_b"), inputs, strict=True))
    else:
        named = {"text": inputs}
    tensors = {name: text_tensor(texts, name) for name, texts in named.items()}
    for name, tensor in tensors.items():
        if tensor.shape.rank != 1:
            raise ValueError(
                f"{name} must be a batch of texts, of shape [batch]. Received: a single text. Put it into a list. "
                "(A list of strings is a batch of single texts, a tuple of two lists a batch of pairs.)"
            )
    return list(tensors.values())
