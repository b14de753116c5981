"""Splitting of documents into words, as SQuAD's answers and a tagger's labels count them, and their tokenization."""

from typing import NamedTuple

import tensorflow as tf

from keras_bert.text.inputs import Texts, as_text_tensor
from keras_bert.text.normalization import CHINESE, PUNCTUATION
from keras_bert.text.substrings import Substrings
from keras_bert.text.tokenizer import BertTokenizer

# `is_whitespace` in google-research/bert run_squad.py.
WORD_SEPARATORS = " \t\r\n\u202f"


class WordTokens(NamedTuple):
    """The wordpieces of documents and their words, int32 ragged [documents, (tokens)], from `tokenize_words`."""

    token_ids: tf.RaggedTensor
    words: tf.RaggedTensor  # index of each token's word in its document
    start_bytes: tf.RaggedTensor  # first byte of each token in its document
    end_bytes: tf.RaggedTensor  # one past its last byte


def split_words(texts: Texts) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Splits documents at spaces, tabs, line ends and narrow no-break spaces, as SQuAD's answers count words.

    Returns the words and the int32 byte at which each starts, ragged [documents, (words)]. Source:
    `read_squad_examples` in google-research/bert `run_squad.py`, which splits at no other character.
    """
    words = as_text_tensor(texts)
    num_texts = tf.size(words, out_type=tf.int64)
    rows = tf.range(num_texts)
    starts = tf.zeros_like(rows)
    # Not by a regular expression: RE2 stops at the first byte that is not UTF-8, and the rest would be lost.
    for separator in WORD_SEPARATORS:
        parts = tf.strings.split(words, separator)
        whole = parts.value_rowids()
        lengths = tf.cast(tf.strings.length(parts.values), tf.int64) + len(separator.encode())
        begin = tf.cumsum(lengths, exclusive=True)
        starts = tf.gather(starts, whole) + begin - tf.gather(begin, tf.gather(parts.row_starts(), whole))
        words, rows = parts.values, tf.gather(rows, whole)
    is_word = tf.not_equal(words, "")
    words = tf.RaggedTensor.from_value_rowids(
        tf.boolean_mask(words, is_word), tf.boolean_mask(rows, is_word), nrows=num_texts
    )
    return words, words.with_values(tf.cast(tf.boolean_mask(starts, is_word), tf.int32))


def split_text(texts: Texts) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Splits texts into words as in files of tagged sentences, with punctuation before and after a word apart.

    Punctuation inside a word, as in `don't`, `U.S` and `e-mail`, stays. Chinese characters are words of their own.
    Returns words and starts as `split_words` does.
    """
    chunks, starts = split_words(texts)
    characters, offsets = tf.strings.unicode_decode_with_offsets(chunks.values, "UTF-8", errors="replace")
    first = tf.where(_starts_word(characters))[:, 0]
    chunk = tf.gather(characters.value_rowids(), first)  # chunk of each word
    begin = tf.gather(offsets.values, first)
    # A word ends where the next word of its chunk begins, or with the chunk.
    is_last = tf.concat([tf.not_equal(chunk[1:], chunk[:-1]), tf.ones_like(chunk[:1], tf.bool)], axis=0)
    lengths = tf.cast(tf.strings.length(chunks.values), tf.int64)
    end = tf.where(is_last, tf.gather(lengths, chunk), tf.concat([begin[1:], begin[:1]], axis=0))
    words = Substrings(chunks.values).between(chunk, tf.cast(begin, tf.int32), tf.cast(end, tf.int32))
    words = tf.RaggedTensor.from_value_rowids(words, tf.gather(chunks.value_rowids(), chunk), nrows=chunks.nrows())
    return words, words.with_values(tf.gather(starts.values, chunk) + tf.cast(begin, tf.int32))


def _starts_word(characters: tf.RaggedTensor) -> tf.Tensor:
    """Checks for each character of chunks without spaces whether it starts a word, bool [characters of all chunks]."""
    chunk = characters.value_rowids()
    unique, index = tf.unique(characters.values)
    texts = tf.strings.unicode_encode(unique[:, tf.newaxis], "UTF-8")
    is_chinese, is_punctuation = (
        tf.gather(tf.strings.regex_full_match(texts, f"[{pattern}]"), index) for pattern in (CHINESE, PUNCTUATION)
    )
    position, num_chunks = tf.range(tf.size(chunk)), characters.nrows()
    # Punctuation is inside a word if other characters, not Chinese, are both before and after it.
    is_solid = tf.logical_not(tf.logical_or(is_chinese, is_punctuation))
    first = tf.math.unsorted_segment_min(tf.where(is_solid, position, tf.size(chunk)), chunk, num_chunks)
    last = tf.math.unsorted_segment_max(tf.where(is_solid, position, -1), chunk, num_chunks)
    is_inside = tf.logical_and(position > tf.gather(first, chunk), position < tf.gather(last, chunk))
    is_single = tf.logical_or(is_chinese, tf.logical_and(is_punctuation, tf.logical_not(is_inside)))
    starts_chunk = tf.pad(tf.not_equal(chunk[1:], chunk[:-1]), [[1, 0]], constant_values=True)[: tf.size(chunk)]
    follows_single = tf.pad(is_single[:-1], [[1, 0]])[: tf.size(chunk)]
    return tf.logical_or(starts_chunk, tf.logical_or(is_single, follows_single))


def tokens_of_words(tokenizer: BertTokenizer, texts: Texts) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Tokenizes documents and returns ids and word indices as `tokenize_words` does; faster, without offsets."""
    words, _ = split_words(texts)
    unique, index = tf.unique(words.values)  # most words occur several times
    tokens = words.with_values(tf.gather(tokenizer.tokenize(unique), index))  # [documents, (words), (tokens)]
    indices = tf.ragged.range(tf.cast(words.row_lengths(), tf.int32)).values
    indices = tokens.with_flat_values(tf.repeat(indices, tokens.values.row_lengths()))
    return tokens.merge_dims(1, 2), indices.merge_dims(1, 2)


def tokenize_words(tokenizer: BertTokenizer, texts: Texts) -> WordTokens:
    """Tokenizes documents as `tokenizer.tokenize` does, with each token's word and offsets."""
    words, starts = split_words(texts)
    tokens = tokenizer.tokenize_with_offsets(words.values)  # ragged tensors [words of all documents, (tokens)]
    word = tokens.token_ids.value_rowids()
    begin = tf.gather(starts.values, word)
    first_word = tf.gather(words.row_starts(), tf.gather(words.value_rowids(), word))

    def by_document(values: tf.Tensor) -> tf.RaggedTensor:
        return words.with_values(tokens.token_ids.with_values(values)).merge_dims(1, 2)

    return WordTokens(
        by_document(tokens.token_ids.values),
        by_document(tf.cast(word - first_word, tf.int32)),
        by_document(begin + tokens.start_bytes.values),
        by_document(begin + tokens.end_bytes.values),
    )
