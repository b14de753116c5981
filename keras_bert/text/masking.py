"""Masking for masked language modelling: the choice of the tokens to predict, and their replacement."""

import numbers
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_bert.io.special_tokens import CLASSIFICATION_TOKEN, MASK_TOKEN, SEPARATOR_TOKEN
from keras_bert.text.random_bits import integers_below, random_bits, uniform_floats
from keras_bert.text.vocabulary import check_vocabulary

# arXiv 1810.04805, section 3.1.
RATE = 0.15
MASK_TOKEN_RATE = 0.8
RANDOM_TOKEN_RATE = 0.1

_CONTINUATION_PREFIX = "##"

# Purposes of random numbers; the numbers of different purposes are unrelated.
_ORDER, _KIND, _RANDOM_TOKEN = range(3)


class TokenMasker:
    """Masks tokens of packed rows for masked language modelling, reproducibly.

    Of a row with `length` tokens, `[CLS]` and `[SEP]` included, min(`max_predictions`, max(1, round(`rate` x
    `length`))) tokens are masked, or as many as there are: any but `[CLS]`, `[SEP]` and padding. Halves round to the
    even number. With whole words, words are taken in random order; a word that would exceed the number is skipped,
    while shorter ones after it may still be taken. The number counts wordpieces in both modes, so every token that is
    replaced has its label. Each masked token becomes `[MASK]`, or a random entry of the vocabulary (special and unused
    ones included, as in the original), or stays unchanged, independently of the others.

    The result of a row depends only on its tokens and its key: not on the other rows, the width of the padding, or the
    order or number of calls. Pass another key to get another mask.

    Source: `create_masked_lm_predictions` in google-research/bert `create_pretraining_data.py`; arXiv 1810.04805,
    section 3.1.

    Differs from BERT: a wordpiece that starts with `##` right after `[CLS]` or `[SEP]` starts a word; the original
    joins it to the last word of the segment before. Random numbers are not those of Python's `random`.

    Args:
        vocabulary: the wordpieces in the order of their ids, with `[MASK]`.
        max_predictions: maximum number of masked tokens per row; `predictions_per_sequence` computes how many are
            enough.
        rate: fraction of a row's tokens to mask, above 0 and at most 1. Defaults to 0.15.
        whole_words: whether the wordpieces of a word are masked together. Defaults to False.
        mask_token_rate: fraction of the masked tokens that become `[MASK]`. Defaults to 0.8.
        random_token_rate: fraction of them that become a random token; the rest stays unchanged. Defaults to 0.1.

    Inputs: `token_ids` int32 `[batch, length]`, `padding_mask` int32 `[batch, length]` (0 for padding), `keys` int64
        `[batch]`. Batch and length may be unknown when the function is traced.

    Outputs: dict of
        - `token_ids`: int32 `[batch, length]`, with the masked tokens replaced;
        - `masked_positions`: int32 `[batch, max_predictions]`, ascending, then 0;
        - `masked_labels`: int32 `[batch, max_predictions]`, the original ids at these positions, then 0;
        - `masked_weights`: float32 `[batch, max_predictions]`, 1 for each of them, then 0.

    Raises:
        TypeError: the vocabulary is not a list of strings, an argument is not a number, or an input not integer.
        ValueError: the vocabulary lacks `[MASK]` or another special token, a number is out of range, or the shapes of
            the inputs do not match (InvalidArgumentError if they are known at run time only).
        tf.errors.InvalidArgumentError: an id is not in the vocabulary.

    Example:
        >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "the", "game"]
        >>> masker = TokenMasker(vocabulary, max_predictions=2, whole_words=True, rate=0.4)
        >>> token_ids = tf.constant([[2, 7, 8, 3, 0, 0], [2, 7, 5, 6, 8, 3]])
        >>> masked = masker(token_ids, padding_mask=tf.cast(token_ids > 0, tf.int32), keys=tf.constant([4, 5]))
        >>> masked["token_ids"].numpy().tolist()
        [[2, 4, 4, 3, 0, 0], [2, 7, 4, 4, 8, 3]]
        >>> masked["masked_positions"].numpy().tolist(), masked["masked_labels"].numpy().tolist()
        ([[1, 2], [2, 3]], [[7, 8], [5, 6]])
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        max_predictions: int,
        rate: float = RATE,
        whole_words: bool = False,
        mask_token_rate: float = MASK_TOKEN_RATE,
        random_token_rate: float = RANDOM_TOKEN_RATE,
    ) -> None:
        vocabulary = check_vocabulary(vocabulary)
        ids = {token: token_id for token_id, token in enumerate(vocabulary)}
        if MASK_TOKEN not in ids:
            raise ValueError(
                f"The vocabulary of {len(vocabulary)} entries lacks {MASK_TOKEN}, which masked language modelling "
                f"needs. Add a line {MASK_TOKEN} to vocab.txt, or pass the vocab.txt of a BERT checkpoint."
            )
        _check_at_least_one("max_predictions", max_predictions)
        _check_rate(rate)
        _check_number("mask_token_rate", mask_token_rate)
        _check_number("random_token_rate", random_token_rate)
        if not (mask_token_rate >= 0 and random_token_rate >= 0 and mask_token_rate + random_token_rate <= 1):
            raise ValueError(
                "mask_token_rate and random_token_rate must be at least 0 and together at most 1; the remaining masked "
                f"tokens stay unchanged. Received: {mask_token_rate} and {random_token_rate}."
            )
        self.max_predictions = max_predictions
        self.rate = rate
        self.whole_words = whole_words
        self.mask_token_rate = mask_token_rate
        self.random_token_rate = random_token_rate
        self._vocab_size = len(vocabulary)
        self._cls_id, self._sep_id, self._mask_id = ids[CLASSIFICATION_TOKEN], ids[SEPARATOR_TOKEN], ids[MASK_TOKEN]
        # NumPy arrays, which become constants of any graph that the masker is called in.
        self._is_continuation = np.array([token.startswith(_CONTINUATION_PREFIX) for token in vocabulary])
        self._distinct_ids = np.array(list(ids.values()), np.int32)

    def __call__(self, token_ids: tf.Tensor, padding_mask: tf.Tensor, keys: tf.Tensor) -> dict[str, tf.Tensor]:
        """Masks a batch of rows; see the class for inputs, outputs and errors."""
        token_ids, padding_mask, keys = _check_inputs(token_ids, padding_mask, keys)
        is_known = tf.logical_and(token_ids >= 0, token_ids < self._vocab_size)
        message = f"token_ids must be 0 to {self._vocab_size - 1}, the ids of the masker's vocabulary. Received:"
        tf.debugging.Assert(tf.reduce_all(is_known), [message, token_ids])
        not_padding = tf.not_equal(padding_mask, 0)
        is_special = tf.logical_or(tf.equal(token_ids, self._cls_id), tf.equal(token_ids, self._sep_id))
        candidates = tf.logical_and(not_padding, tf.logical_not(is_special))  # [batch, length]
        count = self._count_to_mask(not_padding)
        if self.whole_words:
            distances = self._choose_words(token_ids, candidates, count, keys)
        else:
            distances = self._choose_tokens(candidates, count, keys)
        return self._replace(token_ids, distances, keys)

    def _count_to_mask(self, not_padding: tf.Tensor) -> tf.Tensor:
        """Computes how many tokens of each row to mask, int32 `[batch]`."""
        lengths = tf.reduce_sum(tf.cast(not_padding, tf.int32), axis=1)
        # float64 and tf.round, which rounds halves to even, as Python's round(rate * length) does.
        count = tf.cast(tf.round(tf.cast(lengths, tf.float64) * self.rate), tf.int32)
        return tf.minimum(tf.maximum(count, 1), self.max_predictions)

    def _choose_tokens(self, candidates: tf.Tensor, count: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Chooses the first `count` candidates in a random order: their distances from the row's end, then 0."""
        length = tf.shape(candidates)[1]
        drawn = tf.where(candidates, _sort_keys(keys, length), -1)
        highest, positions = tf.math.top_k(drawn, tf.minimum(self.max_predictions, length))
        is_wanted = tf.range(tf.shape(positions)[1]) < count[:, tf.newaxis]
        return tf.where(tf.logical_and(is_wanted, highest >= 0), length - positions, 0)

    def _choose_words(
        self, token_ids: tf.Tensor, candidates: tf.Tensor, count: tf.Tensor, keys: tf.Tensor
    ) -> tf.Tensor:
        """Chooses words in a random order: the distances of their wordpieces from the row's end, and 0 elsewhere."""
        length = tf.shape(candidates)[1]
        after_candidate = tf.pad(candidates, [[0, 0], [1, 0]])[:, :-1]
        joins = tf.logical_and(tf.gather(self._is_continuation, token_ids), after_candidate)
        starts = tf.logical_and(candidates, tf.logical_not(joins))
        # The index in the row of each candidate's word; arbitrary at other positions. [batch, length], like all that
        # follows, because there are at most as many words as positions.
        words = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
        sizes = _scatter_add(words, tf.cast(candidates, tf.int32), length)
        order = tf.math.top_k(tf.where(sizes > 0, _sort_keys(keys, length), -1), length).indices
        taken = _scatter_add(order, _take_while_they_fit(tf.gather(sizes, order, batch_dims=1), count), length)
        is_chosen = tf.logical_and(tf.gather(taken, words, batch_dims=1) > 0, candidates)
        return tf.where(is_chosen, length - tf.range(length), 0)

    def _replace(self, token_ids: tf.Tensor, distances: tf.Tensor, keys: tf.Tensor) -> dict[str, tf.Tensor]:
        """Replaces the chosen tokens, and builds the labels."""
        length = tf.shape(token_ids)[1]
        count = tf.minimum(self.max_predictions, length)
        distances = tf.math.top_k(distances, count).values  # [batch, count], descending: positions ascend
        is_chosen = distances > 0
        positions = tf.where(is_chosen, length - distances, 0)
        labels = tf.where(is_chosen, tf.gather(token_ids, positions, batch_dims=1), 0)
        # Differences are added: where nothing is chosen, 0 is added to the first token, which may be chosen itself.
        differences = tf.where(is_chosen, self._draw_replacements(labels, keys) - labels, 0)
        padding = [[0, 0], [0, self.max_predictions - count]]
        shape = [token_ids.shape[0], self.max_predictions]
        return {
            "token_ids": token_ids + _scatter_add(positions, differences, length),
            "masked_positions": tf.ensure_shape(tf.pad(positions, padding), shape),
            "masked_labels": tf.ensure_shape(tf.pad(labels, padding), shape),
            "masked_weights": tf.ensure_shape(tf.pad(tf.cast(is_chosen, tf.float32), padding), shape),
        }

    def _draw_replacements(self, labels: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Draws [MASK], a random entry of the vocabulary, or the label itself, int32 `[batch, count]`."""
        count = tf.shape(labels)[1]
        kind = uniform_floats(random_bits(keys, _KIND, count))
        drawn = integers_below(random_bits(keys, _RANDOM_TOKEN, count), len(self._distinct_ids))
        replacements = tf.where(
            kind < self.mask_token_rate + self.random_token_rate, tf.gather(self._distinct_ids, drawn), labels
        )
        return tf.where(kind < self.mask_token_rate, self._mask_id, replacements)


def predictions_per_sequence(sequence_length: int, rate: float = RATE) -> int:
    """Computes the smallest `max_predictions` that never limits the number of masked tokens."""
    _check_at_least_one("sequence_length", sequence_length)
    _check_rate(rate)
    return max(1, round(rate * sequence_length))


def _sort_keys(keys: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Draws random numbers to sort by, int64 `[batch, count]`, none below 0."""
    bits = random_bits(keys, _ORDER, count)
    return tf.cast(tf.bitwise.right_shift(bits, tf.constant(1, tf.uint64)), tf.int64)


def _scatter_add(positions: tf.Tensor, values: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """Adds each value at its position in a row of zeros, `[batch, length]`."""
    rows = tf.shape(positions)[0]
    flat = tf.range(rows)[:, tf.newaxis] * length + positions
    # Several times as fast as tf.scatter_nd.
    return tf.reshape(tf.math.unsorted_segment_sum(values, flat, rows * length), [rows, length])


def _take_while_they_fit(sizes: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Takes words in their order, each that fits into what is left of the count; int32 `[batch, words]`, 0 or 1.

    One pass takes all words up to the first that does not fit; the next pass looks at shorter ones only.
    """

    def has_candidates(open_sizes: tf.Tensor, left: tf.Tensor, taken: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(open_sizes > 0)

    def take(open_sizes: tf.Tensor, left: tf.Tensor, taken: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        fits = tf.logical_and(open_sizes > 0, tf.cumsum(open_sizes, axis=1) <= left[:, tf.newaxis])
        left -= tf.reduce_sum(tf.where(fits, open_sizes, 0), axis=1)
        stays_open = tf.logical_and(tf.logical_not(fits), open_sizes <= left[:, tf.newaxis])
        return tf.where(stays_open, open_sizes, 0), left, taken + tf.cast(fits, tf.int32)

    open_sizes = tf.where(sizes <= count[:, tf.newaxis], sizes, 0)
    return tf.while_loop(has_candidates, take, [open_sizes, count, tf.zeros_like(sizes)])[2]


def _check_inputs(
    token_ids: tf.Tensor, padding_mask: tf.Tensor, keys: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Converts the inputs to tensors and checks their types and shapes."""
    token_ids, padding_mask, keys = (tf.convert_to_tensor(value) for value in (token_ids, padding_mask, keys))
    for name, value in (("token_ids", token_ids), ("padding_mask", padding_mask), ("keys", keys)):
        if not value.dtype.is_integer:
            raise TypeError(f"{name} must be integers. Received: a tensor of {value.dtype.name}.")
    rule = "token_ids and padding_mask must be [batch, length], and keys [batch], one for each row."
    shapes = token_ids.shape, padding_mask.shape, keys.shape
    fit = shapes[0].rank in (2, None) and shapes[2].rank in (1, None) and shapes[0].is_compatible_with(shapes[1])
    if not fit or not token_ids.shape[:1].is_compatible_with(keys.shape):
        raise ValueError(f"{rule} Received: shapes {shapes[0]}, {shapes[1]} and {shapes[2]}.")
    # Without this check a single row or key would be broadcast to all rows.
    tf.debugging.assert_equal(tf.shape(token_ids), tf.shape(padding_mask), message=rule)
    tf.debugging.assert_equal(tf.shape(token_ids)[:1], tf.shape(keys), message=rule)
    return tf.cast(token_ids, tf.int32), padding_mask, tf.cast(keys, tf.int64)


def _check_at_least_one(name: str, value: int) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int. Received: {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1. Received: {value}.")


def _check_rate(rate: float) -> None:
    _check_number("rate", rate)
    if not 0 < rate <= 1:
        raise ValueError(f"rate must be above 0 and at most 1, as a fraction of the tokens. Received: {rate}.")


def _check_number(name: str, value: float) -> None:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number. Received: {value!r}.")
