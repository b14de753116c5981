"""The words of a document, as SQuAD's answers and a tagger's labels count them: what stands between spaces."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.text.inputs import text_tensor
from keras_bert.text.normalization import CHINESE, PUNCTUATION
from keras_bert.text.tokenizer import BertTokenizer

# `is_whitespace` in google-research/bert run_squad.py.
WORD_SEPARATORS = " \t\r\n\u202f"


class WordTokens(NamedTuple):
    """The wordpieces of documents, and the words that they are of.

    Source: `tok_to_orig_index` of `convert_examples_to_features` in google-research/bert `run_squad.py`.

    Args:
        token_ids: int32 `RaggedTensor` [documents, (tokens)].
        words: int32 `RaggedTensor` [documents, (tokens)], the number of each token's word, from 0.
        start_bytes: int32 `RaggedTensor` [documents, (tokens)], each token's first byte in its document.
        end_bytes: the same of one past its last byte.

    Example:
        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
        >>> tokenize_words(tokenizer, ["Play playing"]).end_bytes.to_list()
        [[4, 9, 12]]
    """

    token_ids: tf.RaggedTensor
    words: tf.RaggedTensor
    start_bytes: tf.RaggedTensor
    end_bytes: tf.RaggedTensor


def split_words(texts: Any) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Splits documents at spaces, tabs, line ends and narrow no-break spaces, as SQuAD's answers count words.

    Source: `read_squad_examples` in google-research/bert `run_squad.py`, which splits at no other character: a word
    may hold a no-break space or a zero-width one.

    Args:
        texts: string tensor, list or array [documents].

    Returns:
        A pair of `RaggedTensor`s [documents, (words)]: the words, and int32, the byte of the document that each begins
        with.

    Raises:
        TypeError: something other than text.

    Example:
        >>> words, starts = split_words(["In 1066,\\nat  Hastings"])
        >>> words.to_list(), starts.to_list()
        ([[b'In', b'1066,', b'at', b'Hastings']], [[0, 3, 9, 13]])
    """
    words = text_tensor(texts)
    rows = tf.range(tf.size(words, out_type=tf.int64))
    starts = tf.zeros_like(rows)
    number = tf.size(rows, out_type=tf.int64)
    # Not by a regular expression: RE2 ends at the first byte that is not UTF-8, and what follows would be lost.
    for separator in WORD_SEPARATORS:
        parts = tf.strings.split(words, separator)
        whole = parts.value_rowids()
        lengths = tf.cast(tf.strings.length(parts.values), tf.int64) + len(separator.encode())
        begin = tf.cumsum(lengths, exclusive=True)
        starts = tf.gather(starts, whole) + begin - tf.gather(begin, tf.gather(parts.row_starts(), whole))
        words, rows = parts.values, tf.gather(rows, whole)
    is_word = tf.not_equal(words, "")
    words = tf.RaggedTensor.from_value_rowids(
        tf.boolean_mask(words, is_word), tf.boolean_mask(rows, is_word), nrows=number
    )
    return words, words.with_values(tf.cast(tf.boolean_mask(starts, is_word), tf.int32))


def split_text(texts: Any) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Splits texts into words as files of tagged sentences have them: punctuation before and behind a word is apart.

    What stands between spaces loses the punctuation at its ends, each character of which is a word of its own; the
    punctuation within it, as in `don't`, `U.S` and `e-mail`, stays. Chinese characters are words of their own.

    Source: none in BERT, whose data come with their words; the characters are those of `_is_punctuation` and
    `_is_chinese_char` in google-research/bert `tokenization.py`.

    Args:
        texts: string tensor, list or array [texts].

    Returns:
        A pair of `RaggedTensor`s [texts, (words)], as `split_words` gives.

    Raises:
        TypeError: something other than text.

    Example:
        >>> words, starts = split_text(["It's a well-known (old) rule."])
        >>> [word.decode() for word in words.to_list()[0]]
        ["It's", 'a', 'well-known', '(', 'old', ')', 'rule', '.']
    """
    chunks, starts = split_words(texts)
    characters, places = tf.strings.unicode_decode_with_offsets(chunks.values, "UTF-8", errors="replace")
    begins = characters.with_values(_begin_words(characters))
    first = tf.where(begins.values)[:, 0]
    of_word = tf.gather(characters.value_rowids(), first)  # the chunk that a word is of
    begin = tf.gather(places.values, first)
    # A word ends where the next one of its chunk begins, or with the chunk.
    is_last = tf.concat([tf.not_equal(of_word[1:], of_word[:-1]), tf.ones_like(of_word[:1], tf.bool)], axis=0)
    lengths = tf.cast(tf.strings.length(chunks.values), tf.int64)
    end = tf.where(is_last, tf.gather(lengths, of_word), tf.concat([begin[1:], begin[:1]], axis=0))
    words = tf.strings.substr(tf.gather(chunks.values, of_word), begin, end - begin)
    row = tf.gather(chunks.value_rowids(), of_word)
    words = tf.RaggedTensor.from_value_rowids(words, row, nrows=chunks.nrows())
    return words, words.with_values(tf.gather(starts.values, of_word) + tf.cast(begin, tf.int32))


def _begin_words(characters):
    """Whether a word begins with each character of chunks without spaces, bool [characters of all chunks]."""
    chunk = characters.value_rowids()
    is_chinese, is_punctuation = _character_classes(characters.values)
    position, number = tf.range(tf.size(chunk)), characters.nrows()
    # Punctuation is inside of a word where what is neither punctuation nor Chinese stands before and behind it.
    is_solid = tf.logical_not(tf.logical_or(is_chinese, is_punctuation))
    first = tf.math.unsorted_segment_min(tf.where(is_solid, position, tf.size(chunk)), chunk, number)
    last = tf.math.unsorted_segment_max(tf.where(is_solid, position, -1), chunk, number)
    is_inside = tf.logical_and(position > tf.gather(first, chunk), position < tf.gather(last, chunk))
    is_single = tf.logical_or(is_chinese, tf.logical_and(is_punctuation, tf.logical_not(is_inside)))
    begins_chunk = tf.pad(tf.not_equal(chunk[1:], chunk[:-1]), [[1, 0]], constant_values=True)[: tf.size(chunk)]
    follows_single = tf.pad(is_single[:-1], [[1, 0]])[: tf.size(chunk)]
    return tf.logical_or(begins_chunk, tf.logical_or(is_single, follows_single))


def _character_classes(codepoints):
    """Whether each character is Chinese, and whether it is punctuation."""
    unique, index = tf.unique(codepoints)
    texts = tf.strings.unicode_encode(unique[:, tf.newaxis], "UTF-8")
    patterns = (CHINESE, PUNCTUATION)
    return tuple(tf.gather(tf.strings.regex_full_match(texts, f"[{pattern}]"), index) for pattern in patterns)


def tokens_of_words(tokenizer: BertTokenizer, texts: Any) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Tokenizes documents and keeps, for every token, its word: as `tokenize_words` does, without places, and faster.

    Source: `convert_examples_to_features` in google-research/bert `run_squad.py`.

    Args:
        tokenizer: `BertTokenizer`.
        texts: string tensor, list or array [documents].

    Returns:
        A pair of int32 `RaggedTensor`s [documents, (tokens)]: the tokens, and the numbers of their words.

    Raises:
        TypeError: something other than text.

    Example:
        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
        >>> [part.to_list() for part in tokens_of_words(tokenizer, ["Play playing"])]
        [[[4, 4, 5]], [[0, 1, 1]]]
    """
    words, _ = split_words(texts)
    unique, index = tf.unique(words.values)  # most words of a text occur in it again
    tokens = words.with_values(tf.gather(tokenizer.tokenize(unique), index))  # [documents, (words), (tokens)]
    numbers = tf.ragged.range(tf.cast(words.row_lengths(), tf.int32)).values
    numbers = tokens.with_flat_values(tf.repeat(numbers, tokens.values.row_lengths()))
    return tokens.merge_dims(1, 2), numbers.merge_dims(1, 2)


def tokenize_words(tokenizer: BertTokenizer, texts: Any) -> WordTokens:
    """Tokenizes documents and keeps, for every token, its word and its place in the document.

    The tokens are those of `tokenizer.tokenize(texts)`.

    Source: `convert_examples_to_features` in google-research/bert `run_squad.py`.

    Args:
        tokenizer: `BertTokenizer`.
        texts: string tensor, list or array [documents].

    Returns:
        `WordTokens`.

    Raises:
        TypeError: something other than text.

    Example:
        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
        >>> tokenize_words(tokenizer, ["Play playing"]).words.to_list()
        [[0, 1, 1]]
    """
    words, starts = split_words(texts)
    tokens = tokenizer.tokenize_with_offsets(words.values)  # of ragged tensors [words of all documents, (tokens)]
    word = tokens.token_ids.value_rowids()
    begin = tf.gather(starts.values, word)
    first_word = tf.gather(words.row_starts(), tf.gather(words.value_rowids(), word))

    def of_documents(values):
        return words.with_values(tokens.token_ids.with_values(values)).merge_dims(1, 2)

    return WordTokens(
        of_documents(tokens.token_ids.values),
        of_documents(tf.cast(word - first_word, tf.int32)),
        of_documents(begin + tokens.start_bytes.values),
        of_documents(begin + tokens.end_bytes.values),
    )
