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
    texts = text_tensor(texts)
    # Not by a regular expression: RE2 ends at the first byte that is not UTF-8, and what follows would be lost.
    characters, starts = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="replace")
    in_word, goes_on = _runs(characters)
    return _cut_out(texts, characters, starts, in_word, goes_on)


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
    texts = text_tensor(texts)
    characters, starts = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="replace")
    in_word, goes_on = _runs(characters)
    alone, within = _character_classes(characters.values)
    # Punctuation is inside of a word where what is neither punctuation nor Chinese stands before and behind it.
    chunk = tf.cumsum(tf.cast(tf.logical_not(goes_on), tf.int32))  # ascending, another for each character of no word
    position, last_chunk = tf.range(tf.size(chunk)), tf.reduce_max(tf.concat([chunk, [0]], axis=0)) + 1
    solid = tf.logical_and(in_word, tf.logical_and(within, tf.logical_not(alone)))
    first_solid = tf.math.unsorted_segment_min(tf.where(solid, position, tf.size(chunk)), chunk, last_chunk)
    last_solid = tf.math.unsorted_segment_max(tf.where(solid, position, -1), chunk, last_chunk)
    is_inside = tf.logical_and(position > tf.gather(first_solid, chunk), position < tf.gather(last_solid, chunk))
    is_single = tf.logical_or(alone, tf.logical_not(tf.logical_or(within, is_inside)))
    is_joined = tf.logical_not(tf.logical_or(is_single, tf.pad(is_single[:-1], [[1, 0]])))
    return _cut_out(texts, characters, starts, in_word, tf.logical_and(goes_on, is_joined))


def _runs(characters):
    """Whether each character is of a word, and whether the word goes on with it, bool [characters of all texts]."""
    separators = tf.strings.unicode_decode(WORD_SEPARATORS, "UTF-8")
    in_word = tf.reduce_all(tf.not_equal(characters.values[:, tf.newaxis], separators), axis=1)
    row = characters.value_rowids()
    follows = tf.logical_and(tf.equal(row[1:], row[:-1]), tf.logical_and(in_word[1:], in_word[:-1]))
    return in_word, tf.pad(follows, [[1, 0]])[: tf.size(row)]


def _character_classes(codepoints):
    """Whether each character is a word by itself wherever it stands, and whether it is no punctuation."""
    unique, index = tf.unique(codepoints)
    texts = tf.strings.unicode_encode(unique[:, tf.newaxis], "UTF-8")
    is_chinese = tf.strings.regex_full_match(texts, f"[{CHINESE}]")
    is_punctuation = tf.strings.regex_full_match(texts, f"[{PUNCTUATION}]")
    return tf.gather(is_chinese, index), tf.gather(tf.logical_not(is_punctuation), index)


def _cut_out(texts, characters, starts, in_word, goes_on):
    """The words, and the bytes that they begin with, of texts whose characters are parted."""
    row = characters.value_rowids()
    first = tf.where(tf.logical_and(in_word, tf.logical_not(goes_on)))[:, 0]
    ends_word = tf.concat([tf.logical_not(goes_on[1:]), tf.ones_like(goes_on[:1])], axis=0)
    last = tf.where(tf.logical_and(in_word, ends_word))[:, 0]

    lengths = tf.cast(tf.strings.length(texts), tf.int64)
    next_starts = tf.concat([starts.values[1:], [0]], axis=0)
    is_last_of_row = tf.pad(tf.not_equal(row[1:], row[:-1]), [[0, 1]], constant_values=True)
    ends = tf.where(is_last_of_row, tf.gather(lengths, row), next_starts)
    begin = tf.gather(starts.values, first)
    word_row = tf.gather(row, first)
    words = tf.strings.substr(tf.gather(texts, word_row), begin, tf.gather(ends, last) - begin)
    words = tf.RaggedTensor.from_value_rowids(words, word_row, nrows=characters.nrows())
    return words, words.with_values(tf.cast(begin, tf.int32))


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
