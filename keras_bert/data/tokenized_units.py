"""Texts tokenized once, and the wordpieces or words whose features are extracted."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.data.tokenized_examples import TokenizedExamples, flatten_rows, tokenize_examples
from keras_bert.text.pack import pack, packed_lengths
from keras_bert.text.preprocessor import BertPreprocessor
from keras_bert.text.words import split_words

WORDPIECES, WORDS = "wordpieces", "words"
UNITS = (WORDPIECES, WORDS)
# Texts tokenized at once, as in `keras_bert.data.tokenized_examples`.
_CHUNK_SIZE = 2048
_NO_UNIT = -1


class TokenizedUnits(NamedTuple):
    """The ids of texts or pairs, and the unit of each token."""

    examples: TokenizedExamples  # one row per text
    # int32 [tokens of all texts]: the index of the token's unit in its text, from 0, ascending; -1 for no unit.
    numbers: np.ndarray
    names: list[list[str]]  # the units of each text by their index, up to the last one that has a token


def tokenize_units(
    columns: Mapping[str, Sequence[str]], preprocessor: BertPreprocessor, unit: str = WORDPIECES
) -> TokenizedUnits:
    """Tokenizes texts or pairs, and finds the unit of each token.

    Columns are `text`, or `text_a` and `text_b`; the preprocessor truncates long texts. With unit "wordpieces", each
    token is a unit, [CLS] and [SEP] included; with "words", the units are the words that `split_words` finds; those of
    a pair's second text are numbered after the first one's. A word that is truncated, or consists of characters that
    BERT drops, has no token.
    """
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {UNITS}, got {unit!r}")
    if unit == WORDS:
        return _tokenize_words(columns, preprocessor)
    rows = zip(*columns.values(), strict=True)
    examples = tokenize_examples((dict(zip(columns, row, strict=True)) for row in rows), preprocessor)
    vocabulary = np.array(preprocessor.tokenizer.vocabulary, object)
    ends = np.cumsum(examples.lengths, dtype="int64")
    numbers = np.arange(ends[-1]) - np.repeat(ends - examples.lengths, examples.lengths)
    names = [part.tolist() for part in np.split(vocabulary[examples.token_ids], ends[:-1])]
    return TokenizedUnits(examples, numbers.astype("int32"), names)


def _tokenize_words(columns: Mapping[str, Sequence[str]], preprocessor: BertPreprocessor) -> TokenizedUnits:
    num_texts = len(next(iter(columns.values())))
    if not num_texts:
        raise ValueError("there are no texts")
    parts = []
    names: list[list[str]] = []
    for start in range(0, num_texts, _CHUNK_SIZE):
        texts = [column[start : start + _CHUNK_SIZE] for _, column in sorted(columns.items())]
        part, chunk_names = _tokenize_chunk([tf.constant(column, tf.string) for column in texts], preprocessor)
        parts.append(part)
        names += chunk_names
    ids, lengths, first_segments, counts, numbers = map(np.concatenate, zip(*parts, strict=True))
    pad_id = preprocessor.tokenizer.pad_id
    return TokenizedUnits(
        TokenizedExamples(ids, lengths, first_segments, token_counts=counts, pad_id=pad_id), numbers, names
    )


def _tokenize_chunk(
    texts: Sequence[tf.Tensor], preprocessor: BertPreprocessor
) -> tuple[tuple[np.ndarray, ...], list[list[str]]]:
    """Returns flat ids, row lengths, first segments' lengths, token counts and word indices; and the words."""
    tokenizer = preprocessor.tokenizer
    words = [split_words(column)[0] for column in texts]
    ids, numbers, words_before = [], [], tf.zeros_like(words[0].row_lengths())
    for segment in words:
        wordpieces = tokenizer.tokenize(segment.values)  # [words of all texts, (wordpieces)]
        number = tf.ragged.range(words_before, words_before + segment.row_lengths())  # [texts, (words)]
        word_numbers = wordpieces.with_values(tf.gather(number.values, wordpieces.value_rowids()))
        ids.append(segment.with_values(wordpieces).merge_dims(1, 2))
        numbers.append(segment.with_values(word_numbers).merge_dims(1, 2))
        words_before += segment.row_lengths()

    rows = preprocessor.pack(*_as_pair(ids))
    # Packed in the same way, the word indices are in the positions of their tokens.
    special_ids = dict.fromkeys(("cls_id", "sep_id", "pad_id"), _NO_UNIT)
    length = preprocessor.sequence_length
    packed = pack(*_as_pair(numbers), **special_ids, sequence_length=length, pad_to="longest")
    packed_numbers = packed["token_ids"].numpy()
    token_counts = packed_lengths(*_as_pair(ids)).numpy()
    token_numbers = packed_numbers[rows["padding_mask"].numpy() != 0]
    names = _first_words(tf.concat(words, axis=1), packed_numbers.max(axis=1) + 1)
    return (*flatten_rows(rows, tokenizer.vocab_size), token_counts, token_numbers), names


def _as_pair(segments: Sequence[tf.RaggedTensor]) -> tuple[tf.RaggedTensor, tf.RaggedTensor | None]:
    return segments[0], segments[1] if len(segments) == 2 else None


def _first_words(words: tf.RaggedTensor, counts: np.ndarray) -> list[list[str]]:
    """Returns the first `counts` words of each row; the rest of a long text is not decoded."""
    starts = words.row_starts()
    first = tf.gather(words.values, tf.ragged.range(starts, starts + counts))
    return [[word.decode("utf-8", "replace") for word in row] for row in first.to_list()]
