"""WordPiece vocabularies learned from word counts by the trainer of Hugging Face `tokenizers`."""

import collections
import math
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import NamedTuple

import tensorflow as tf
from absl import logging

from keras_bert.io import special_tokens
from keras_bert.text.tokenizer import BertTokenizer

_SUFFIX_INDICATOR = "##"
_MAX_CHARACTERS = 2**30  # the trainer counts pairs of wordpieces in 32 bits, sign included; rounding may add some
_MAX_WORDS = 2**21  # the trainer needs about 1.2 kB for each distinct word
_MAX_ENTRY_BYTES = 256  # without ##, for FastWordpieceTokenizer
_CHARACTERS_PER_SEQUENCE = 2**16
_WORDS_PER_BATCH = 2**16


class VocabularyLearner:
    """Learns a WordPiece vocabulary from word counts; the same counts always give the same vocabulary.

    The entries are the special tokens in the order of the released vocabularies, every character, also with `##` where
    it occurs inside a word, and joined wordpieces, the most frequent pair first.
    """

    def __init__(
        self, vocab_size: int = 30522, num_unused: int = 0, limit_alphabet: int | None = None, min_frequency: int = 2
    ) -> None:
        if num_unused < 0:
            raise ValueError(f"num_unused must be at least 0. Received: {num_unused}.")
        if limit_alphabet is not None and limit_alphabet < 1:
            raise ValueError(f"limit_alphabet must be at least 1, or None for all. Received: {limit_alphabet}.")
        if min_frequency < 1:
            raise ValueError(f"min_frequency must be at least 1. Received: {min_frequency}.")
        self.special_tokens = [
            special_tokens.PADDING_TOKEN,
            *(f"[unused{number}]" for number in range(num_unused)),
            special_tokens.UNKNOWN_TOKEN,
            special_tokens.CLASSIFICATION_TOKEN,
            special_tokens.SEPARATOR_TOKEN,
            special_tokens.MASK_TOKEN,
        ]
        if vocab_size <= len(self.special_tokens):
            raise ValueError(
                f"vocab_size must be more than {len(self.special_tokens)}, the number of special tokens. "
                f"Received: {vocab_size}."
            )
        self.vocab_size = vocab_size
        self.limit_alphabet = limit_alphabet
        self.min_frequency = min_frequency
        self._tokenizers = _load_tokenizers()

    def learn(self, word_counts: Mapping[str, int]) -> list[str]:
        """Learns a vocabulary from the counts of `WordCounter`, and logs what was left out.

        To bound the memory, wordpieces are joined only from the 2^21 most frequent words, and from words of up to 256
        bytes. Counts that would overflow those of the trainer are divided by one number.
        """
        _check_word_counts(word_counts)
        alphabet = self._select_alphabet(word_counts)
        learned_from = {word: count for word, count in word_counts.items() if alphabet.issuperset(word)}
        _log_dropped_characters(word_counts, learned_from, alphabet)
        within_words = sorted({character for word in learned_from for character in word[1:]})
        characters = [*sorted(alphabet), *(_SUFFIX_INDICATOR + character for character in within_words)]
        smallest = len(self.special_tokens) + len(characters)
        if self.vocab_size < smallest:
            raise ValueError(
                f"vocab_size must be at least {smallest} for this text: it has {len(self.special_tokens)} special "
                f"tokens, {len(alphabet)} characters, and {len(within_words)} of them inside words. "
                f"Received: {self.vocab_size}. Raise it, or drop the rarest characters with limit_alphabet."
            )
        vocabulary = self._join(learned_from, characters)
        if len(vocabulary) < self.vocab_size:
            logging.warning(
                "The vocabulary has %d entries, fewer than the %d requested: no more pairs of wordpieces occur at least"
                " %d times in the text. Use more text, or lower vocab_size.",
                len(vocabulary),
                self.vocab_size,
                self.min_frequency,
            )
        return vocabulary

    def _select_alphabet(self, word_counts: Mapping[str, int]) -> set[str]:
        """Selects the most frequent characters; on a tie those of the lower code point."""
        counts: collections.Counter[str] = collections.Counter()
        for word, count in word_counts.items():
            for character in word:
                counts[character] += count
        ordered = sorted(counts, key=lambda character: (-counts[character], character))
        return set(ordered[: self.limit_alphabet])

    def _join(self, word_counts: Mapping[str, int], characters: list[str]) -> list[str]:
        """Lists special tokens, characters and the wordpieces that the trainer joins from them."""
        tokenizer = self._tokenizers.Tokenizer(
            self._tokenizers.models.WordPiece(unk_token=special_tokens.UNKNOWN_TOKEN)
        )
        tokenizer.pre_tokenizer = self._tokenizers.pre_tokenizers.CharDelimiterSplit(" ")
        trainer = self._tokenizers.trainers.WordPieceTrainer(
            vocab_size=self.vocab_size,
            min_frequency=self.min_frequency,
            # The trainer would number the characters inside words in the order of a hash table, which differs between
            # runs, and break ties by these numbers. As special tokens they are numbered beforehand.
            special_tokens=[*self.special_tokens, *characters],
            limit_alphabet=len(characters),
            show_progress=False,
            continuing_subword_prefix=_SUFFIX_INDICATOR,
        )
        tokenizer.train_from_iterator(_sequences(_joinable(word_counts)), trainer)
        ids = tokenizer.get_vocab()
        return sorted(ids, key=ids.__getitem__)


class VocabularyCoverage(NamedTuple):
    """Statistics of the wordpieces of counted words, from `measure_coverage`."""

    num_words: int
    num_wordpieces: int  # `[UNK]` is one
    num_unknown: int  # words that became `[UNK]`


def measure_coverage(tokenizer: BertTokenizer, word_counts: Mapping[str, int]) -> VocabularyCoverage:
    """Tokenizes counted words and sums up the result."""
    words = list(word_counts)
    num_wordpieces, num_unknown = 0, 0
    for begin in range(0, len(words), _WORDS_PER_BATCH):
        batch = words[begin : begin + _WORDS_PER_BATCH]
        counts = tf.constant([word_counts[word] for word in batch], tf.int64)
        ids = tokenizer.tokenize(batch)
        is_unknown = tf.reduce_any(ids == tokenizer.unk_id, axis=1)
        num_wordpieces += int(tf.reduce_sum(counts * tf.cast(ids.row_lengths(), tf.int64)))
        num_unknown += int(tf.reduce_sum(tf.boolean_mask(counts, is_unknown)))
    return VocabularyCoverage(sum(word_counts.values()), num_wordpieces, num_unknown)


def _load_tokenizers() -> ModuleType:
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            'Learning a vocabulary needs tokenizers. Install it with: pip install "keras-bert-zoo[pretraining]"'
        ) from error
    return tokenizers


def _check_word_counts(word_counts: Mapping[str, int]) -> None:
    if not word_counts:
        raise ValueError("There are no words to learn a vocabulary from. Pass word counts of a text that is not empty.")
    for word, count in word_counts.items():
        if word.split() != [word] or count < 1:
            raise ValueError(
                "word_counts must hold words without white space and their counts of at least 1. "
                f"Received: {word!r}: {count}. To count the words of a text, use WordCounter."
            )


def _log_dropped_characters(
    word_counts: Mapping[str, int], learned_from: Mapping[str, int], alphabet: set[str]
) -> None:
    characters = set().union(*word_counts)
    if len(alphabet) < len(characters):
        total = sum(word_counts.values())
        unknown = total - sum(learned_from.values())
        logging.warning(
            "%d of %d characters are dropped by limit_alphabet=%d; the words that contain one, %d of %d (%.4f%%), "
            "become [UNK].",
            len(characters) - len(alphabet),
            len(characters),
            len(alphabet),
            unknown,
            total,
            100 * unknown / total,
        )


def _joinable(word_counts: Mapping[str, int]) -> dict[str, int]:
    """Selects the words to join wordpieces from, with counts that do not overflow those of the trainer."""
    counts = {
        word: count for word, count in word_counts.items() if len(word) > 1 and len(word.encode()) <= _MAX_ENTRY_BYTES
    }
    if len(counts) > _MAX_WORDS:
        logging.info("Wordpieces are joined from the %d most frequent of %d distinct words.", _MAX_WORDS, len(counts))
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        counts = {word: counts[word] for word in ordered[:_MAX_WORDS]}
    divisor = math.ceil(sum(len(word) * count for word, count in counts.items()) / _MAX_CHARACTERS)
    if divisor <= 1:
        return counts
    logging.info("The counts are divided by %d, because they would overflow those of the trainer.", divisor)
    divided = {word: (count + divisor // 2) // divisor for word, count in counts.items()}
    return {word: count for word, count in divided.items() if count}


def _sequences(word_counts: Mapping[str, int]) -> Iterator[str]:
    """Yields each word as often as it was counted, separated by spaces: the trainer takes text and no counts."""
    for word, count in word_counts.items():
        words_in_sequence = max(_CHARACTERS_PER_SEQUENCE // len(word), 1)
        for begin in range(0, count, words_in_sequence):
            yield (word + " ") * min(words_in_sequence, count - begin)
