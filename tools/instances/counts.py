"""Counts over pre-training instances for `tools.inspect_pretraining_data`, in memory that does not grow with them."""

import hashlib
from typing import NamedTuple

import numpy as np

from keras_bert.text.vocabulary import MASK_TOKEN, UNKNOWN_TOKEN

_KEPT_DIGESTS = 2**18  # some 25 MB
_CONTINUATION_PREFIX = "##"


class MaskedPlaces(NamedTuple):
    """The masked places of a batch, one after the other.

    Attributes:
        rows, positions: int array [masked], where they are.
        labels: int array [masked], what stood there.
        now: int array [masked], what stands there.
        is_kept, is_mask, is_random: bool array [masked], of which one holds. A place is kept if its label stands there,
            also where that was drawn at random, or the text itself had [MASK]. Without a vocabulary `is_mask` is None,
            and `is_random` holds for everything that was replaced.
    """

    rows: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    now: np.ndarray
    is_kept: np.ndarray
    is_mask: np.ndarray | None
    is_random: np.ndarray


def masked_places(instances, mask_id):
    """What stood and what stands at the masked places.

    Args:
        instances: dict of arrays, as of `InstanceMaker.make`.
        mask_id: int, that of [MASK], or None.

    Returns:
        `MaskedPlaces`.
    """
    rows, columns = np.nonzero(instances["masked_weights"] > 0)
    positions = instances["masked_positions"][rows, columns]
    labels = instances["masked_labels"][rows, columns]
    now = instances["token_ids"][rows, positions]
    is_kept = now == labels
    is_mask = None if mask_id is None else ~is_kept & (now == mask_id)
    is_random = ~is_kept if is_mask is None else ~is_kept & ~is_mask
    return MaskedPlaces(rows, positions, labels, now, is_kept, is_mask, is_random)


def unmasked_ids(instances, places):
    """The ids before masking, int array [batch, length]."""
    token_ids = instances["token_ids"].copy()
    token_ids[places.rows, places.positions] = places.labels
    return token_ids


def segment_lengths(instances):
    """Tokens of the segments, without [CLS] and [SEP].

    Returns:
        A pair of int arrays [batch]; the second is 0 where there is one segment only.
    """
    real = instances["padding_mask"] > 0
    second = (real & (instances["segment_ids"] == 1)).sum(axis=1)
    return np.maximum(real.sum(axis=1) - second - 2, 0), np.maximum(second - 1, 0)


class RepeatCounter:
    """How many rows came before, exact as long as few enough are different, and then an estimate.

    Of each row a digest of 64 bits is kept, as long as there is room for all. When there is none, those that begin with
    a bit of 1 are dropped, then those with 01, and so on, and the others stand for all: a row is kept or dropped with
    all of its repetitions.

    Args:
        room: int. Most digests.
    """

    def __init__(self, room=_KEPT_DIGESTS):
        self._room = room
        self._zero_bits = 0
        self._numbers = {}

    @property
    def is_exact(self):
        """bool. Whether all rows were compared."""
        return self._zero_bits == 0

    def add(self, rows):
        """Counts the rows of an array [batch, length]."""
        for row in np.ascontiguousarray(rows, "int32"):
            digest = int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest())
            if self._stays(digest):
                self._numbers[digest] = self._numbers.get(digest, 0) + 1
        while len(self._numbers) > self._room:
            self._zero_bits += 1
            self._numbers = {digest: number for digest, number in self._numbers.items() if self._stays(digest)}

    def _stays(self, digest):
        return digest >> (64 - self._zero_bits) == 0

    def share(self):
        """float. The share of rows that are equal to one before them; None without rows."""
        rows = sum(self._numbers.values())
        return (rows - len(self._numbers)) / rows if rows else None


class InstanceCounts:
    """Histograms and counts of instances.

    Args:
        sequence_length, max_predictions: int.
        vocabulary: list of str, or None; then nothing is known of words, [MASK] and [UNK].

    Attributes:
        instances: int.
        lengths, first_lengths, second_lengths: int array [sequence_length + 1], how many instances have so many tokens:
            in all, with [CLS] and [SEP], and in each segment, without. Those of one segment are in `second_lengths[0]`.
        masked_numbers: int array [max_predictions + 1], how many have so many masked tokens.
        masked_at, text_at: int array [sequence_length], how often a position is masked, and has a token that could be.
        kept, as_mask, as_random: int. Masked tokens of which the label stands there, [MASK], or something else; without
            a vocabulary `as_mask` is None, and `as_random` has both.
        planned: int or None. How many tokens the settings would have masked, after rounding and the cap; None if a file
            does not say its settings.
        labels: int array [2], how many instances have which next-sentence label.
        unknown: int or None. Tokens of the text that are [UNK].
        masked_words, whole_words: int or None. Words of several pieces of which one is masked, and all are.
        masked_specials, masked_twice: int. Masked places on [CLS], [SEP] or padding, and on a place that is masked
            already; neither should be.
        repeated_instances, repeated_texts: `RepeatCounter` of the ids as they are, and as they were before masking.
    """

    def __init__(self, sequence_length, max_predictions, vocabulary=None):
        self.instances = 0
        self.lengths, self.first_lengths, self.second_lengths = np.zeros([3, sequence_length + 1], int)
        self.masked_numbers = np.zeros([max_predictions + 1], int)
        self.masked_at, self.text_at = np.zeros([2, sequence_length], int)
        self.kept = self.as_random = self.planned = 0
        self.labels = np.zeros([2], int)
        self.masked_specials = self.masked_twice = 0
        self.repeated_instances, self.repeated_texts = RepeatCounter(), RepeatCounter()
        self._ids = {} if vocabulary is None else {token: number for number, token in enumerate(vocabulary)}
        self._continues = None
        if vocabulary is not None:
            self._continues = np.array([token.startswith(_CONTINUATION_PREFIX) for token in vocabulary])
        self.unknown = None if vocabulary is None else 0
        self.as_mask = 0 if MASK_TOKEN in self._ids else None
        self.masked_words = self.whole_words = None if vocabulary is None else 0

    def add(self, instances, settings):
        """Counts a batch.

        Args:
            instances: dict of arrays, as of `InstanceMaker.make`, with ids of the vocabulary.
            settings: `InstanceSettings` that they were made by, or None.
        """
        places = masked_places(instances, self._ids.get(MASK_TOKEN))
        original = unmasked_ids(instances, places)
        is_text = _text_places(instances)
        lengths = instances["padding_mask"].sum(axis=1)
        first, second = segment_lengths(instances)
        masked_numbers = np.bincount(places.rows, minlength=len(lengths))
        self.instances += len(lengths)
        self.labels += np.bincount(instances["next_sentence_labels"], minlength=2)
        for histogram, values in (
            (self.lengths, lengths),
            (self.first_lengths, first),
            (self.second_lengths, second),
            (self.masked_numbers, masked_numbers),
            (self.masked_at, places.positions),
        ):
            histogram += np.bincount(values, minlength=len(histogram))
        self.text_at += is_text.sum(axis=0)
        self._count_replacements(places)
        self._count_planned(lengths, is_text.sum(axis=1), settings)
        self._count_faults(places, is_text)
        if self._continues is not None:
            self.unknown += int((is_text & (original == self._ids[UNKNOWN_TOKEN])).sum())
            self._count_words(original, is_text, places)
        self.repeated_instances.add(instances["token_ids"])
        self.repeated_texts.add(original)

    def _count_replacements(self, places):
        self.kept += int(places.is_kept.sum())
        self.as_random += int(places.is_random.sum())
        if self.as_mask is not None:
            self.as_mask += int(places.is_mask.sum())

    def _count_planned(self, lengths, candidates, settings):
        if settings is None or self.planned is None:
            self.planned = None
            return
        wanted = np.clip(np.rint(lengths * settings.masking_rate), 1, settings.max_predictions)
        self.planned += int(np.minimum(wanted, candidates).sum())

    def _count_faults(self, places, is_text):
        times = np.zeros(is_text.shape, int)
        np.add.at(times, (places.rows, places.positions), 1)
        self.masked_twice += int((times - 1).clip(min=0).sum())
        self.masked_specials += int(times[~is_text].sum())

    def _count_words(self, token_ids, is_text, places):
        """Counts words of several pieces; one that begins a segment with ## is a word of its own."""
        follows_text = np.pad(is_text, [(0, 0), (1, 0)])[:, :-1]
        continues = self._continues[token_ids] & is_text & follows_text
        words = np.cumsum(~continues.ravel()) - 1  # of each place; a row begins with [CLS], which continues none
        is_masked = np.zeros(is_text.shape, bool)
        is_masked[places.rows, places.positions] = True
        pieces = np.bincount(words)
        masked = np.bincount(words, is_masked.ravel())
        touched = (pieces > 1) & (masked > 0)
        self.masked_words += int(touched.sum())
        self.whole_words += int((touched & (masked == pieces)).sum())


def _text_places(instances):
    """Which places have a token of the text, bool [batch, length]: neither [CLS] nor [SEP] nor padding.

    A text may have words that are spelled so; it is the places that count.
    """
    real = instances["padding_mask"] > 0
    lengths = real.sum(axis=1, keepdims=True)
    first = lengths - (real & (instances["segment_ids"] == 1)).sum(axis=1, keepdims=True)
    positions = np.arange(real.shape[1])
    return real & (positions > 0) & (positions != first - 1) & (positions != lengths - 1)


def summary(histogram):
    """What a histogram says of its values.

    Args:
        histogram: int array [values], how often there is each value from 0 on.

    Returns:
        dict of `mean`, `median`, `min` and `max`; None if there are no values.
    """
    number = int(histogram.sum())
    if number == 0:
        return None
    ends = np.cumsum(histogram)
    middle = np.searchsorted(ends, [(number - 1) // 2, number // 2], side="right")
    present = np.flatnonzero(histogram)
    return {
        "mean": float(histogram @ np.arange(len(histogram)) / number),
        "median": float(middle.mean()),
        "min": int(present[0]),
        "max": int(present[-1]),
    }
