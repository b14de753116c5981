"""`WordCounter`: counts of the words that WordPiece sees."""

import collections

import tensorflow as tf

from keras_bert.text.inputs import Texts, as_text_tensor
from keras_bert.text.normalization import MAXIMUM_CHARACTERS_PER_WORD, SEPARATOR_CHARACTER, TextNormalizer


class WordCounter:
    """Counts the words that `BertTokenizer` splits into wordpieces, after its own normalization.

    Words of more than `max_characters_per_word` characters, always `[UNK]`, are only counted together, in
    `num_too_long`.
    """

    def __init__(
        self,
        lower_case: bool,
        strip_accents: bool | None = None,
        max_characters_per_word: int = MAXIMUM_CHARACTERS_PER_WORD,
    ) -> None:
        strip_accents = lower_case if strip_accents is None else strip_accents
        self._normalizer = TextNormalizer(lower_case, strip_accents, max_characters_per_word=max_characters_per_word)
        self._count = tf.function(self._count_words, input_signature=[tf.TensorSpec([None], tf.string)])
        self.counts: collections.Counter[str] = collections.Counter()
        self.num_too_long = 0

    def add(self, texts: Texts) -> None:
        """Counts the words of texts, all in memory at once; a few megabytes per call are as fast as more."""
        words, counts = self._count(tf.reshape(as_text_tensor(texts), [-1]))
        for word, count in zip(words.numpy().tolist(), counts.numpy().tolist(), strict=True):
            if len(word) > self._normalizer.maximum_bytes_per_word:  # the normalizer's replacement of a long word
                self.num_too_long += count
            else:
                self.counts[word.decode("utf-8")] += count

    def _count_words(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        spaced = tf.strings.regex_replace(self._normalizer(texts), f"({SEPARATOR_CHARACTER})", r" \1 ")
        words, _, counts = tf.unique_with_counts(tf.strings.split(spaced).values)
        return words, counts
