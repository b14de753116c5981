import random
from collections import Counter
from itertools import pairwise

import pytest

from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.instances import choose_segments
from tests.reference.instances import pairs_of_document


def random_documents(seed, documents=6, sentences=9, tokens=12):
    generator = random.Random(seed)
    made, position = [], 0
    for _ in range(documents):
        starts = [position]
        for _ in range(generator.randint(1, sentences)):
            position += generator.randint(1, tokens)
            starts.append(position)
        made.append(starts)
    return made


def as_tokens(documents):
    """Sentences as lists of tokens; each token is its position."""
    return [[list(range(start, end)) for start, end in pairwise(document)] for document in documents]


def tokens_of(segments):
    return list(range(segments.a_start, segments.a_end)), list(range(segments.b_start, segments.b_end))


def segments_of(documents, index, length, rng, **options):
    return list(choose_segments(documents, index, InstanceSettings(sequence_length=length, **options), rng))


@pytest.mark.parametrize(
    "sizes, length",
    [
        ({}, 32),
        ({"documents": 1}, 24),
        ({"sentences": 1}, 16),
        ({"tokens": 80}, 20),  # sentences longer than an instance
        ({"tokens": 3}, 5),
        ({"tokens": 1}, 5),
        ({"documents": 2, "sentences": 60, "tokens": 4}, 128),
    ],
    ids=str,
)
def test_next_sentence_pairs_equal_the_reference(sizes, length):
    for seed in range(20):
        documents = random_documents(seed, **sizes)
        tokens = as_tokens(documents)
        ours, theirs = random.Random(seed), random.Random(seed)
        for index in range(len(documents)):
            short_rate = index % 3 / 2
            found = segments_of(documents, index, length, ours, short_seq_prob=short_rate)
            expected = list(pairs_of_document(tokens, index, length - 3, theirs, short_rate))
            assert [(*tokens_of(segments), bool(segments.label)) for segments in found] == expected
            assert ours.random() == theirs.random()


def test_the_caller_may_draw_random_numbers_between_instances():
    documents = random_documents(0, sentences=40)
    tokens = as_tokens(documents)
    ours, theirs = random.Random(0), random.Random(0)
    settings = InstanceSettings(sequence_length=16)
    for index in range(len(documents)):
        found = [(*tokens_of(each), ours.random()) for each in choose_segments(documents, index, settings, ours)]
        slow = pairs_of_document(tokens, index, 13, theirs, 0.1)
        assert found == [(first, second, theirs.random()) for first, second, _ in slow]


def test_unfilled_instances_are_pairs_of_single_sentences():
    documents = random_documents(5, documents=4, sentences=50, tokens=9)
    sentences = {(start, end) for document in documents for start, end in pairwise(document)}
    following = {
        (middle, end)
        for document in documents
        for _, middle, end in zip(document, document[1:], document[2:], strict=False)
    }
    for index in range(4):
        found = segments_of(documents, index, 128, random.Random(index), fill_to_length=False)
        firsts = [(each.a_start, each.a_end) for each in found]
        seconds = [(each.b_start, each.b_end) for each in found]
        assert set(firsts) | set(seconds) <= sentences
        for each in found:
            if not each.label:
                assert each.a_end == each.b_start
                assert (each.b_start, each.b_end) in following
        # Each sentence of the document is a first one, or the next of the one before it.
        used = firsts + [(each.b_start, each.b_end) for each in found if not each.label]
        assert sorted(used) == [(a, b) for a, b in pairwise(documents[index])]


@pytest.mark.parametrize("fill_to_length", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_ordered_pairs_use_every_token_of_documents_with_two_sentences(seed, fill_to_length):
    documents = random_documents(seed, sentences=20)
    rng = random.Random(seed)
    for index, document in enumerate(documents):
        found = segments_of(
            documents, index, 400, rng, next_sentence="sop", short_seq_prob=0.5, fill_to_length=fill_to_length
        )
        if len(document) == 2:
            assert found == []
            continue
        covered = []
        for each in found:
            first, second = tokens_of(each)
            first, second = (second, first) if each.label else (first, second)
            assert first[-1] + 1 == second[0]  # adjacent in the text
            assert {first[0], second[0], second[-1] + 1} <= set(document)  # whole sentences
            covered.append(first + second)
        times = Counter(token for tokens in covered for token in tokens)
        assert set(times) == set(range(document[0], document[-1]))
        # Only tokens of the sentence before the last one may be used twice.
        twice = {token for token, number in times.items() if number > 1}
        assert twice <= set(range(document[-3], document[-2]))
        assert max(times.values()) <= 2


def test_half_of_the_ordered_pairs_are_swapped():
    documents = [list(range(0, 4001, 4))]
    found = segments_of(documents, 0, 16, random.Random(0), next_sentence="sop", short_seq_prob=0)
    assert 0.4 < sum(each.label for each in found) / len(found) < 0.6


def test_the_longer_segment_is_truncated_at_both_ends():
    documents = [[0, 100, 104], [104, 108]]
    cuts = [segments_of(documents, 0, 13, random.Random(seed), next_sentence="sop")[0] for seed in range(30)]
    longer = [(each.b_start, each.b_end) if each.label else (each.a_start, each.a_end) for each in cuts]
    assert all(end - start <= 6 for start, end in longer)
    assert all(start > 0 and end < 100 for start, end in longer)


@pytest.mark.parametrize("length", [5, 17, 64])
def test_single_segments_fill_their_length_and_use_each_token_once(length):
    documents = random_documents(1, sentences=40)
    for index, document in enumerate(documents):
        found = segments_of(documents, index, length, random.Random(index), next_sentence="none", short_seq_prob=0)
        assert [token for each in found for token in tokens_of(each)[0]] == list(range(document[0], document[-1]))
        assert all(each.b_start == each.b_end and each.label == 0 for each in found)
        assert all(each.a_end - each.a_start == length - 2 for each in found[:-1])


def test_the_short_seq_prob_applies_to_documents():
    documents = [list(range(number * 1000, number * 1000 + 901, 10)) for number in range(300)]
    rng = random.Random(0)
    short = 0
    for index in range(len(documents)):
        found = segments_of(documents, index, 102, rng, next_sentence="none", short_seq_prob=0.3)
        lengths = {each.a_end - each.a_start for each in found[:-1]}
        assert len(lengths) == 1
        short += lengths != {100}
    assert 60 < short < 120
