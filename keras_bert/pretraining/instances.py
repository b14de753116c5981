"""Choice of the sentences of each pre-training instance.

A document is the list of the positions of its sentences in one array of tokens, and of the end of the last one.
"""

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from keras_bert.pretraining.instance_settings import InstanceSettings

Documents = Sequence[Sequence[int]]

_MAX_TRIES = 10  # of create_pretraining_data.py, to draw a document other than the current one


class Segments(NamedTuple):
    """Token ranges of one instance; the second is empty for a single segment.

    The label is 1 if the second segment is random ("nsp") or the two are swapped ("sop"), otherwise 0.
    """

    a_start: int
    a_end: int
    b_start: int
    b_end: int
    label: int


def choose_segments(
    documents: Documents, index: int, settings: InstanceSettings, rng: random.Random
) -> Iterator[Segments]:
    """Yields the instances of document `index`, in the order of its text.

    Source: `create_instances_from_document` in google-research/bert `create_pretraining_data.py`, with the same draws
    in the same order for "nsp"; "sop" is arXiv 1909.11942, section 3.1; "none" is arXiv 1907.11692, section 4.2.
    """
    max_tokens = target = settings.max_text_tokens
    if rng.random() < settings.short_seq_prob:
        target = rng.randint(2, max_tokens)
    if settings.next_sentence == "none":
        yield from _single_segments(documents[index], target)
    elif settings.next_sentence == "sop":
        yield from _ordered_pairs(documents[index], target, max_tokens, rng, settings.fill_to_length)
    else:
        yield from _next_sentence_pairs(documents, index, target, max_tokens, rng, settings.fill_to_length)


def _next_sentence_pairs(
    documents: Documents, index: int, target: int, max_tokens: int, rng: random.Random, fill_to_length: bool
) -> Iterator[Segments]:
    document = documents[index]
    first, last = 0, len(document) - 1  # indices of sentences; the last one is exclusive
    while first < last:
        end = _chunk_end(document, first, target, fill_to_length)
        num_a_sentences = 1
        if end - first >= 2:
            num_a_sentences = rng.randint(1, end - first - 1)
        middle = first + num_a_sentences
        is_random = end - first == 1 or rng.random() < 0.5
        if is_random:
            b = _random_segment(documents, index, target - (document[middle] - document[first]), rng, fill_to_length)
            end = middle  # the next instance uses the rest
        else:
            b = document[middle], document[end]
        yield Segments(*_truncate(document[first], document[middle], *b, max_tokens, rng), int(is_random))
        first = end


def _chunk_end(document: Sequence[int], first: int, target: int, fill_to_length: bool) -> int:
    """Returns the exclusive end of the sentences that together reach the target length, or of the document."""
    if not fill_to_length:
        return min(first + 2, len(document) - 1)
    return min(bisect_left(document, document[first] + target, first + 1), len(document) - 1)


def _random_segment(
    documents: Documents, index: int, length: int, rng: random.Random, fill_to_length: bool
) -> tuple[int, int]:
    for _ in range(_MAX_TRIES):
        other = rng.randint(0, len(documents) - 1)
        if other != index:
            break
    document = documents[other]
    first = rng.randint(0, len(document) - 2)
    if not fill_to_length:
        return document[first], document[first + 1]
    return document[first], document[_chunk_end(document, first, length, fill_to_length)]


def _truncate(
    a_start: int, a_end: int, b_start: int, b_end: int, max_tokens: int, rng: random.Random
) -> tuple[int, int, int, int]:
    """Removes tokens at random ends of the longer segment, of the second one on a tie, until both fit."""
    a_length, b_length = a_end - a_start, b_end - b_start
    while a_length + b_length > max_tokens:
        at_start = rng.random() < 0.5
        if a_length > b_length:
            a_length -= 1
            a_start += at_start
        else:
            b_length -= 1
            b_start += at_start
    return a_start, a_start + a_length, b_start, b_start + b_length


def _ordered_pairs(
    document: Sequence[int], target: int, max_tokens: int, rng: random.Random, fill_to_length: bool
) -> Iterator[Segments]:
    first, last = 0, len(document) - 1
    while first < last and last > 1:
        first = min(first, last - 2)
        end = max(_chunk_end(document, first, target, fill_to_length), first + 2)
        middle = rng.randint(first + 1, end - 1)
        parts = [(document[first], document[middle]), (document[middle], document[end])]
        is_swapped = rng.random() < 0.5
        a, b = reversed(parts) if is_swapped else parts
        yield Segments(*_truncate(*a, *b, max_tokens, rng), int(is_swapped))
        first = end


def _single_segments(document: Sequence[int], target: int) -> Iterator[Segments]:
    end = document[-1]
    for start in range(document[0], end, target):
        stop = min(start + target, end)
        yield Segments(start, stop, stop, stop, 0)
