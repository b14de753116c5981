"""The words of a text as WordPiece sees them, counted."""

import collections
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_bert.text.inputs import text_tensor
from keras_bert.text.normalization import MAXIMUM_CHARACTERS_PER_WORD, SEPARATOR_CHARACTER, TextNormalizer


class WordCounter:
    """Counts the words that `BertTokenizer` cuts into wordpieces.

    Texts are normalised by the tokenizer's own operations: what is counted is what it will look up. Memory grows with
    the number of distinct words, by about 100 bytes for each, and not with the texts.

    Source: `BasicTokenizer` in google-research/bert `tokenization.py`.

    Args:
        lower_case: bool, whether to lower-case.
        strip_accents: bool or None, whether to remove accents. Defaults to None: as `lower_case`, like the original.
        max_characters_per_word: int, from 1 to 999, counted after normalisation. Defaults to 200. Longer words are
            `[UNK]` whatever the vocabulary holds, and are counted together.

    Raises:
        ValueError: `max_characters_per_word` is out of range.

    Example:
        >>> counter = WordCounter(lower_case=True)
        >>> counter.add(["Déjà vu!", "deja-vu"])
        >>> dict(sorted(counter.counts.items()))
        {'!': 1, '-': 1, 'deja': 2, 'vu': 2}
    """

    def __init__(
        self,
        lower_case: bool,
        strip_accents: bool | None = None,
        max_characters_per_word: int = MAXIMUM_CHARACTERS_PER_WORD,
    ):
        strip_accents = lower_case if strip_accents is None else strip_accents
        self._normalizer = TextNormalizer(lower_case, strip_accents, max_characters_per_word=max_characters_per_word)
        self._count = tf.function(self._distinct_words, input_signature=[tf.TensorSpec([None], tf.string)])
        self._counts = collections.Counter()
        self._too_long = 0

    @property
    def counts(self) -> collections.Counter:
        """`collections.Counter` of normalised word to the int number of times it was seen."""
        return self._counts

    @property
    def too_long(self) -> int:
        """Number of words seen that have more than `max_characters_per_word` characters; they are not in `counts`."""
        return self._too_long

    def add(self, texts: Any | Sequence[str]) -> None:
        """Counts the words of texts.

        Args:
            texts: string tensor, list or array `[batch]`. All are in memory at once, normalised and split; a few
                megabytes at a time are as fast as more.

        Raises:
            TypeError: something other than text.

        Example:
            >>> counter = WordCounter(lower_case=False)
            >>> counter.add(["One text."])
            >>> counter.add(["And one more."])
            >>> counter.counts["."]
            2
        """
        words, counts = self._count(tf.reshape(text_tensor(texts), [-1]))
        for word, count in zip(words.numpy().tolist(), counts.numpy().tolist(), strict=True):
            if len(word) > self._normalizer.maximum_bytes_per_word:  # the normalizer's stand-in for a long word
                self._too_long += count
            else:
                self._counts[word.decode("utf-8")] += count

    def _distinct_words(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parted = tf.strings.regex_replace(self._normalizer(texts), f"({SEPARATOR_CHARACTER})", r" \1 ")
        words, _, counts = tf.unique_with_counts(tf.strings.split(parted).values)
        return words, counts
