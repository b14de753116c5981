"""The words of a document, as SQuAD's answers and a tagger's labels count them: what stands between spaces."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.text.inputs import text_tensor
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
