"""Normalization that tracks the original characters of every normalized character, for token offsets.

The steps of `TextNormalizer` are applied to single characters, except for the final sigma and the order of marks.
"""

import functools
import sys
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from keras_bert.text import normalization

_SIGMAS = (ord("σ"), ord("ς"))

# A letter of four bytes in UTF-8. A word of nothing else exceeds WordPiece's limit in bytes, and so becomes [UNK],
# if it exceeds the limit in characters.
_LONG_WORD_CHARACTER = 0x10000


class _Characters(NamedTuple):
    """Characters during normalization, with the texts and the original characters they come from."""

    codepoints: tf.Tensor  # int32 [characters]
    rows: tf.Tensor  # int64 [characters]: the text
    first: tf.Tensor  # int64 [characters]: index of the first original character
    last: tf.Tensor  # int64 [characters]: index of the last original character


class NormalizedTexts(NamedTuple):
    """Normalized texts and the origin of their characters, from `normalize_with_origins`."""

    texts: tf.Tensor  # string [batch], normalized
    characters: _Characters  # characters of all normalized texts
    original_positions: tf.Tensor  # int32 [original characters]: index of the character in its text
    original_starts: tf.Tensor  # int32 [original characters]: its first byte in its text
    original_ends: tf.Tensor  # int32 [original characters]: one past its last byte


def normalize_with_origins(texts: tf.Tensor, normalizer: normalization.TextNormalizer) -> NormalizedTexts:
    """Normalizes texts `[batch]` of any bytes as the normalizer does, and tracks the origin of every character."""
    batch_size = tf.size(texts, out_type=tf.int64)
    decoded, starts = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="ignore")
    indices = tf.range(tf.size(decoded.values, out_type=tf.int64))
    characters = _Characters(decoded.values, decoded.value_rowids(), indices, indices)
    original_positions = indices - tf.gather(decoded.row_starts(), characters.rows)
    original_starts = tf.cast(starts.values, tf.int32)
    original_ends = original_starts + _byte_lengths(decoded.values)

    characters = _rewrite(characters, normalization.clean)
    if normalizer.special_tokens_in_text:
        for token, marker in normalization.SPECIAL_TOKEN_MARKERS.items():
            characters = _mark_special_token(characters, token, marker)
    if normalizer.lower_case:
        characters = _lower(characters, batch_size)
    if normalizer.strip_accents:
        characters = _rewrite(_order_marks(_rewrite(characters, normalization.decompose)), normalization.strip_marks)
    characters = _replace_long_words(characters, normalizer.max_characters_per_word)
    return NormalizedTexts(
        _encode(characters, batch_size),
        characters,
        tf.cast(original_positions, tf.int32),
        original_starts,
        original_ends,
    )


def spans_in_original(
    normalized: NormalizedTexts, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Translates byte spans `[batch, (tokens)]` of normalized texts to spans of the original texts; no span is empty.

    Returns first byte, one past the last byte, first character and one past the last character, int32 `[all tokens]`.
    """
    lengths = _byte_lengths(normalized.characters.codepoints)
    character_of_byte = tf.repeat(tf.range(tf.size(lengths, out_type=tf.int64)), lengths)
    text_lengths = tf.cast(tf.strings.length(normalized.texts), tf.int64)
    row_offsets = tf.gather(tf.cumsum(text_lengths, exclusive=True), starts.value_rowids())
    first_character = tf.gather(character_of_byte, tf.cast(starts.values, tf.int64) + row_offsets)
    last_character = tf.gather(character_of_byte, tf.cast(ends.values, tf.int64) + row_offsets - 1)

    # Ordering of marks may have moved characters, so a span's first character need not have the first origin.
    covered = tf.ragged.range(first_character, last_character + 1)  # [tokens, (characters)]
    first = tf.math.segment_min(tf.gather(normalized.characters.first, covered.values), covered.value_rowids())
    last = tf.math.segment_max(tf.gather(normalized.characters.last, covered.values), covered.value_rowids())
    return (
        tf.gather(normalized.original_starts, first),
        tf.gather(normalized.original_ends, last),
        tf.gather(normalized.original_positions, first),
        tf.gather(normalized.original_positions, last) + 1,
    )


def _rewrite(characters: _Characters, step: Callable[[tf.Tensor], tf.Tensor]) -> _Characters:
    """Applies a step to every character on its own; the result may be no, one or several characters."""
    unique, index = tf.unique(characters.codepoints, out_idx=tf.int64)
    rewritten = tf.strings.unicode_decode(step(_characters_as_texts(unique)), "UTF-8")  # [unique, (characters)]
    expanded = tf.gather(rewritten, index)  # [characters, (new characters)]
    parents = expanded.value_rowids()
    return _Characters(expanded.values, *(tf.gather(part, parents) for part in characters[1:]))


def _characters_as_texts(codepoints: tf.Tensor) -> tf.Tensor:
    return tf.strings.unicode_encode(codepoints[:, tf.newaxis], "UTF-8")


def _encode(characters: _Characters, batch_size: tf.Tensor) -> tf.Tensor:
    ragged = tf.RaggedTensor.from_value_rowids(characters.codepoints, characters.rows, nrows=batch_size, validate=False)
    return tf.strings.unicode_encode(ragged, "UTF-8")


def _byte_lengths(codepoints: tf.Tensor) -> tf.Tensor:
    """Computes the number of bytes of each character in UTF-8, int32."""
    return 1 + sum(tf.cast(codepoints >= limit, tf.int32) for limit in (0x80, 0x800, 0x10000))


def _lower(characters: _Characters, batch_size: tf.Tensor) -> _Characters:
    """Lower-cases each character; sigmas, whose form depends on their context, are taken from the whole texts."""
    lowered = _rewrite(characters, normalization.lower)
    whole = tf.strings.unicode_decode(normalization.lower(_encode(characters, batch_size)), "UTF-8").values
    sigmas = tf.boolean_mask(whole, _is_sigma(whole))
    codepoints = tf.tensor_scatter_nd_update(lowered.codepoints, tf.where(_is_sigma(lowered.codepoints)), sigmas)
    return lowered._replace(codepoints=codepoints)


def _is_sigma(codepoints: tf.Tensor) -> tf.Tensor:
    return tf.logical_or(codepoints == _SIGMAS[0], codepoints == _SIGMAS[1])


@functools.cache
def _combining_classes() -> tuple[list[int], list[int]]:
    """Lists all code points with a canonical combining class other than 0, ascending, and their classes."""
    codepoints = [codepoint for codepoint in range(sys.maxunicode + 1) if unicodedata.combining(chr(codepoint))]
    return codepoints, [unicodedata.combining(chr(codepoint)) for codepoint in codepoints]


def _order_marks(characters: _Characters) -> _Characters:
    """Sorts each run of combining marks by class, as normalization form NFD does."""
    marks, classes = (tf.constant(values, tf.int32) for values in _combining_classes())
    index = tf.minimum(tf.searchsorted(marks, characters.codepoints), tf.size(marks) - 1)
    is_mark = tf.gather(marks, index) == characters.codepoints
    combining_class = tf.where(is_mark, tf.gather(classes, index), 0)
    # A run ends before the next character that is not a mark, and with its text.
    run = tf.cumsum(tf.cast(tf.logical_not(is_mark), tf.int64)) + characters.rows
    order = tf.argsort(run * 256 + tf.cast(combining_class, tf.int64), stable=True)  # classes are below 256
    order = tf.ensure_shape(order, [None])  # tf.argsort loses the rank if a graph's texts are constant and empty
    return _Characters(*(tf.gather(part, order) for part in characters))


def _mark_special_token(characters: _Characters, token: str, marker: str) -> _Characters:
    """Replaces a special token written in text by a space, its marker and a space."""
    size = tf.size(characters.codepoints)
    length = len(token)
    # Padded at the end, so that a comparison can start at every character.
    codepoints = tf.pad(characters.codepoints, [[0, length]])
    rows = tf.pad(characters.rows, [[0, length]], constant_values=-1)
    found = rows[:size] == rows[length - 1 : size + length - 1]
    for position, letter in enumerate(token):
        found = tf.logical_and(found, codepoints[position : size + position] == ord(letter))
    starts = tf.cast(tf.where(found)[:, 0], tf.int32)

    replaced = characters.codepoints
    for position, letter in enumerate(f" {marker} "):
        replaced = _scatter(replaced, starts + position, tf.fill(tf.shape(starts), ord(letter)))
    last = _scatter(characters.last, starts + 1, tf.gather(characters.last, starts + length - 1))
    first = _scatter(characters.first, starts + 1, tf.gather(characters.first, starts))
    kept = tf.ones([size], tf.bool)
    for position in range(3, length):
        kept = _scatter(kept, starts + position, tf.zeros(tf.shape(starts), tf.bool))
    marked = _Characters(replaced, characters.rows, first, last)
    return _Characters(*(tf.boolean_mask(part, kept) for part in marked))


def _scatter(values: tf.Tensor, indices: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    return tf.tensor_scatter_nd_update(values, indices[:, tf.newaxis], updates)


def _replace_long_words(characters: _Characters, limit: int) -> _Characters:
    """Replaces every character of words longer than the limit, so that they become unknown."""
    unique, index = tf.unique(characters.codepoints)
    separates = tf.gather(
        tf.strings.regex_full_match(_characters_as_texts(unique), normalization.SEPARATOR_CHARACTER), index
    )
    in_word = tf.logical_not(separates)
    # Words are numbered in ascending order: a separator starts a new word, and so does a text.
    word = tf.cumsum(tf.cast(separates, tf.int64)) + characters.rows
    num_words = tf.reduce_max(tf.concat([word, [0]], axis=0)) + 1
    sizes = tf.math.unsorted_segment_sum(tf.cast(in_word, tf.int32), word, num_words)
    too_long = tf.logical_and(in_word, tf.gather(sizes, word) > limit)
    return characters._replace(codepoints=tf.where(too_long, _LONG_WORD_CHARACTER, characters.codepoints))
