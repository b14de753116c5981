"""Which sentences make an instance of pre-training: next or random ones, in order or swapped, or one segment.

Documents are ranges of one array of tokens: a document is the list of the positions at which its sentences begin, and
after them the position at which the last one ends. An instance is a `Segments` of such positions, so that choosing one
costs the same whatever its length, and its tokens are copied once, at the end.
"""

from bisect import bisect_left
from typing import NamedTuple

NEXT_SENTENCE_TASKS = ("nsp", "sop", "none")
# create_pretraining_data.py looks so often for a document that is not the one at hand.
_TRIES_FOR_ANOTHER_DOCUMENT = 10
# [CLS] and one [SEP] a segment.
_ADDED_TO_PAIR, _ADDED_TO_SINGLE = 3, 2
SHORTEST_SEQUENCE = 5  # a pair of one token each; the original draws short targets from 2 on


class Segments(NamedTuple):
    """One instance: positions in the array of tokens.

    Args:
        a_start, a_end: int. The first segment's tokens.
        b_start, b_end: int. The second segment's; equal where there is none.
        label: int. 0 where the second segment follows the first, 1 where it is a random one ("nsp") or the two are
            swapped ("sop").
    """

    a_start: int
    a_end: int
    b_start: int
    b_end: int
    label: int


def document_segments(
    documents, index, sequence_length, rng, next_sentence="nsp", short_sequence_rate=0.1, fill_to_length=True
):
    """The instances of one document, in the order of its text.

    Source: `create_instances_from_document` in google-research/bert `create_pretraining_data.py` (arXiv 1810.04805,
    appendix A.2), with the same draws in the same order for "nsp"; "sop" is arXiv 1909.11942, section 3.1; "none" is
    arXiv 1907.11692, section 4.2 (DOC-SENTENCES, cut at the token).

    - "nsp": whole sentences until the target length is reached, cut in two between sentences at random; in half of
      the cases, and where there is one sentence only, sentences of a random document take the second part's place,
      which then goes to the next instance.
    - "sop": the same cut in two, and in half of the cases swapped. It needs two sentences: the last one of a document
      is taken with the one before it, and a document of one sentence gives nothing.
    - "none": one segment of as many tokens as the target length, cut within sentences.

    Args:
        documents: list of lists of int, as this module's documentation says.
        index: int, the document.
        sequence_length: int. Most tokens, with [CLS] and [SEP].
        rng: `random.Random`. Between two instances the caller may draw from it, as the original's masking does.
        next_sentence: str, one of "nsp", "sop" and "none".
        short_sequence_rate: float. The share of documents that get a target length drawn between 2 and the most.
        fill_to_length: bool. False makes pairs of single sentences, of whatever length they are.

    Yields:
        `Segments`.

    Example:

    >>> import random
    >>> documents = [[0, 4, 9], [9, 12]]  # two sentences of 4 and 5 tokens, and one of 3
    >>> list(document_segments(documents, 0, 16, random.Random(1)))
    [Segments(a_start=0, a_end=4, b_start=9, b_end=12, label=1),
     Segments(a_start=4, a_end=9, b_start=9, b_end=12, label=1)]
    """
    most = most_tokens(sequence_length, next_sentence)
    target = most
    if rng.random() < short_sequence_rate:
        target = rng.randint(2, most)
    if next_sentence == "none":
        yield from _single_segments(documents[index], target)
    elif next_sentence == "sop":
        yield from _ordered_pairs(documents[index], target, most, rng, fill_to_length)
    else:
        yield from _next_sentence_pairs(documents, index, target, most, rng, fill_to_length)


def most_tokens(sequence_length, next_sentence):
    """The most tokens of text in an instance.

    Args:
        sequence_length: int, with [CLS] and [SEP].
        next_sentence: str.

    Returns:
        int.

    Example:

    >>> most_tokens(128, "nsp")
    125
    """
    return sequence_length - (_ADDED_TO_SINGLE if next_sentence == "none" else _ADDED_TO_PAIR)


def _next_sentence_pairs(documents, index, target, most, rng, fill_to_length):
    document = documents[index]
    first, last = 0, len(document) - 1  # sentences; the last is one past them
    while first < last:
        end = _end_of_chunk(document, first, target, fill_to_length)
        a_sentences = 1
        if end - first >= 2:
            a_sentences = rng.randint(1, end - first - 1)
        middle = first + a_sentences
        is_random = end - first == 1 or rng.random() < 0.5
        if is_random:
            b = _random_segment(documents, index, target - (document[middle] - document[first]), rng, fill_to_length)
            end = middle  # what was not used goes to the next instance
        else:
            b = document[middle], document[end]
        yield Segments(*_truncate(document[first], document[middle], *b, most, rng), int(is_random))
        first = end


def _end_of_chunk(document, first, target, fill_to_length):
    """One past the last sentence of those that together have the target's number of tokens, or are the last ones."""
    if not fill_to_length:
        return min(first + 2, len(document) - 1)
    return min(bisect_left(document, document[first] + target, first + 1), len(document) - 1)


def _random_segment(documents, index, length, rng, fill_to_length):
    for _ in range(_TRIES_FOR_ANOTHER_DOCUMENT):
        other = rng.randint(0, len(documents) - 1)
        if other != index:
            break
    document = documents[other]
    first = rng.randint(0, len(document) - 2)
    if not fill_to_length:
        return document[first], document[first + 1]
    return document[first], document[_end_of_chunk(document, first, length, fill_to_length)]


def _truncate(a_start, a_end, b_start, b_end, most, rng):
    """Takes tokens from the longer segment, from the second on a tie, at its beginning or its end, until both fit."""
    a_length, b_length = a_end - a_start, b_end - b_start
    while a_length + b_length > most:
        from_beginning = rng.random() < 0.5
        if a_length > b_length:
            a_length -= 1
            a_start += from_beginning
        else:
            b_length -= 1
            b_start += from_beginning
    return a_start, a_start + a_length, b_start, b_start + b_length


def _ordered_pairs(document, target, most, rng, fill_to_length):
    first, last = 0, len(document) - 1
    while first < last and last > 1:
        first = min(first, last - 2)
        end = max(_end_of_chunk(document, first, target, fill_to_length), first + 2)
        middle = rng.randint(first + 1, end - 1)
        parts = [(document[first], document[middle]), (document[middle], document[end])]
        is_swapped = rng.random() < 0.5
        a, b = reversed(parts) if is_swapped else parts
        yield Segments(*_truncate(*a, *b, most, rng), int(is_swapped))
        first = end


def _single_segments(document, target):
    end = document[-1]
    for start in range(document[0], end, target):
        stop = min(start + target, end)
        yield Segments(start, stop, stop, stop, 0)
