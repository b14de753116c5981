"""Texts as ids, with the pieces or words that features are wanted of."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.data.tokenized_examples import TokenizedExamples, flatten_rows, tokenize_examples
from keras_bert.text.pack import pack, packed_lengths
from keras_bert.text.words import split_words

WORDPIECES, WORDS = "wordpieces", "words"
UNITS = (WORDPIECES, WORDS)
# Texts tokenized at once, as in `keras_bert.data.tokenized_examples`.
_CHUNK_SIZE = 2048
_NO_UNIT = -1


class TokenizedUnits(NamedTuple):
    """The ids of many texts or pairs, and the units that their tokens are of.

    Args:
        examples: `TokenizedExamples`, one row a text.
        numbers: int32 array [tokens of all texts], the number of the unit within its text that a token is of, from 0;
            -1 where it is of none. Numbers never fall within a text.
        names: list, for each text a list of str, its units by their numbers, up to the last one that has a token.

    Example:

    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
    >>> units = tokenize_units({"text": ["Playing"]}, keras_bert.BertPreprocessor(tokenizer), "words")
    >>> units.numbers.tolist(), units.names
    ([-1, 0, 0, -1], [['Playing']])
    """

    examples: TokenizedExamples
    numbers: np.ndarray
    names: list


def tokenize_units(columns, preprocessor, unit=WORDPIECES):
    """Tokenizes texts or pairs, and says which unit every token is of.

    Args:
        columns: dict of `text`, or of `text_a` and `text_b`, to a list or array of str.
        preprocessor: a `BertPreprocessor` that truncates long texts.
        unit: str. "wordpieces": every token is one, [CLS] and [SEP] included. "words": what stands between spaces, as
            `split_words` parts texts; of a pair, the second text's words are numbered behind the first one's. A word
            that is cut off, or made of characters that BERT drops, has no token.

    Returns:
        `TokenizedUnits`.

    Raises:
        ValueError: on another unit, or if there are no texts.

    Example:

    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
    >>> tokenize_units({"text": ["Playing"]}, keras_bert.BertPreprocessor(tokenizer)).names
    [['[CLS]', 'play', '##ing', '[SEP]']]
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


def _tokenize_words(columns, preprocessor):
    num_texts = len(next(iter(columns.values())))
    if not num_texts:
        raise ValueError("there are no texts")
    parts, names = [], []
    for start in range(0, num_texts, _CHUNK_SIZE):
        texts = [column[start : start + _CHUNK_SIZE] for _, column in sorted(columns.items())]
        part, names_of_part = _words_of_chunk([tf.constant(column, tf.string) for column in texts], preprocessor)
        parts.append(part)
        names += names_of_part
    ids, lengths, first_segments, counts, numbers = map(np.concatenate, zip(*parts, strict=True))
    pad_id = preprocessor.tokenizer.pad_id
    return TokenizedUnits(
        TokenizedExamples(ids, lengths, first_segments, token_counts=counts, pad_id=pad_id), numbers, names
    )


def _words_of_chunk(texts, preprocessor):
    """Flat ids, row lengths, first segments' lengths, token counts and word numbers; and the words."""
    tokenizer = preprocessor.tokenizer
    words = [split_words(column)[0] for column in texts]
    ids, numbers, words_before = [], [], tf.zeros_like(words[0].row_lengths())
    for segment in words:
        pieces = tokenizer.tokenize(segment.values)  # [words of all texts, (pieces)]
        number = tf.ragged.range(words_before, words_before + segment.row_lengths())  # [texts, (words)]
        of_pieces = segment.with_values(pieces.with_values(tf.gather(number.values, pieces.value_rowids())))
        ids.append(segment.with_values(pieces).merge_dims(1, 2))
        numbers.append(of_pieces.merge_dims(1, 2))
        words_before += segment.row_lengths()

    def packed(segments, cls_id, sep_id, pad_id):
        return pack(
            *_and_none(segments),
            cls_id=cls_id,
            sep_id=sep_id,
            pad_id=pad_id,
            sequence_length=preprocessor.sequence_length,
            pad_to="longest",
        )

    rows = packed(ids, tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id)
    # Packed by the same law, numbers come to stand where the tokens stand.
    numbers = packed(numbers, _NO_UNIT, _NO_UNIT, _NO_UNIT)["token_ids"].numpy()
    counts = packed_lengths(*_and_none(ids))
    of_tokens = numbers[rows["padding_mask"].numpy() != 0]
    names = _first_of_rows(tf.concat(words, axis=1), numbers.max(axis=1) + 1)
    return (*flatten_rows(rows, tokenizer.vocab_size), counts.numpy(), of_tokens), names


def _and_none(segments):
    """Two segments; None in the place of a second one that is not there."""
    return segments if len(segments) == 2 else [*segments, None]


def _first_of_rows(words, number):
    """The first words of each row, as str; not those of the rest of a book, of which the beginning is read."""
    starts = words.row_starts()
    first = tf.gather(words.values, tf.ragged.range(starts, starts + number))
    return [[word.decode("utf-8", "replace") for word in row] for row in first.to_list()]
