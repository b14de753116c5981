"""Counts of instances, beside slow ones."""

import statistics

import numpy as np
import pytest

from keras_bert.pretraining.instance_settings import InstanceSettings
from tools.instances.counts import InstanceCounts, RepeatCounter, masked_places, segment_lengths, summary, unmasked_ids

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "##s", "the", "game"]
PAD, UNK, CLS, SEP, MASK, PLAY, ING, S, THE, GAME = range(10)


def instances(rows, length=10, predictions=3):
    """Instances of rows (token_ids, tokens of the first segment with [CLS] and [SEP], {position: label})."""
    made = {name: np.zeros([len(rows), length], "int32") for name in ("token_ids", "padding_mask", "segment_ids")}
    made |= {name: np.zeros([len(rows), predictions], "int32") for name in ("masked_positions", "masked_labels")}
    made["masked_weights"] = np.zeros([len(rows), predictions], "float32")
    made["next_sentence_labels"] = np.arange(len(rows), dtype="int32") % 2
    for row, (token_ids, first, masked) in enumerate(rows):
        made["token_ids"][row, : len(token_ids)] = token_ids
        made["padding_mask"][row, : len(token_ids)] = 1
        made["segment_ids"][row, first : len(token_ids)] = 1
        for place, (position, label) in enumerate(masked):
            made["masked_positions"][row, place] = position
            made["masked_labels"][row, place] = label
            made["masked_weights"][row, place] = 1
    return made


def count(rows, settings=None, vocabulary=VOCABULARY):
    counts = InstanceCounts(10, 3, vocabulary)
    counts.add(instances(rows), settings)
    return counts


def test_what_stands_at_masked_places():
    made = instances([([CLS, MASK, GAME, SEP, THE, SEP], 4, [(1, PLAY), (2, THE), (4, THE)])])
    places = masked_places(made, MASK)
    assert places.is_mask.tolist() == [True, False, False]
    assert places.is_random.tolist() == [False, True, False]
    assert places.is_kept.tolist() == [False, False, True]
    assert unmasked_ids(made, places)[0, :6].tolist() == [CLS, PLAY, THE, SEP, THE, SEP]
    assert made["token_ids"][0, 1] == MASK
    unknown = masked_places(made, None)
    assert unknown.is_mask is None
    assert unknown.is_random.tolist() == [True, True, False]


def test_a_text_that_has_the_mask_itself_keeps_it():
    places = masked_places(instances([([CLS, MASK, SEP, THE, SEP], 3, [(1, MASK)])]), MASK)
    assert (places.is_kept.tolist(), places.is_mask.tolist()) == ([True], [False])


def test_lengths_of_segments():
    made = instances([([CLS, PLAY, THE, SEP, GAME, SEP], 4, []), ([CLS, PLAY, SEP], 3, []), ([CLS, SEP], 2, [])])
    first, second = segment_lengths(made)
    assert first.tolist() == [2, 1, 0]
    assert second.tolist() == [1, 0, 0]


def test_counts():
    counts = count(
        [
            ([CLS, MASK, UNK, SEP, THE, SEP], 4, [(1, PLAY)]),
            ([CLS, MASK, UNK, SEP, THE, SEP], 4, [(1, GAME)]),
            ([CLS, PLAY, THE, GAME, SEP], 5, [(2, UNK), (3, GAME)]),
        ],
        InstanceSettings(sequence_length=10, max_predictions=3, masking_rate=0.5),
    )
    assert counts.instances == 3
    assert np.flatnonzero(counts.lengths).tolist() == [5, 6]
    assert counts.lengths[[5, 6]].tolist() == [1, 2]
    assert counts.first_lengths[[2, 3]].tolist() == [2, 1]
    assert counts.second_lengths[[0, 1]].tolist() == [1, 2]
    assert counts.masked_numbers.tolist() == [0, 2, 1, 0]
    assert counts.masked_at.tolist() == [0, 2, 1, 1, 0, 0, 0, 0, 0, 0]
    assert counts.text_at.tolist() == [0, 3, 3, 1, 2, 0, 0, 0, 0, 0]
    assert (counts.as_mask, counts.as_random, counts.kept) == (2, 1, 1)
    assert counts.planned == 3 + 3 + 2  # round(2.5) is 2
    assert counts.labels.tolist() == [2, 1]
    assert counts.unknown == 3  # the one that was masked, too
    assert counts.repeated_instances.share() == pytest.approx(1 / 3)
    assert counts.repeated_texts.share() == 0
    assert (counts.masked_specials, counts.masked_twice) == (0, 0)


def test_the_plan_is_no_more_than_there_is_to_mask():
    settings = InstanceSettings(sequence_length=10, max_predictions=3, masking_rate=1)
    assert count([([CLS, PLAY, SEP, THE, SEP], 3, [])], settings).planned == 2
    assert count([([CLS, PLAY, SEP, THE, SEP], 3, [])]).planned is None


def test_words_of_several_pieces():
    text = [CLS, PLAY, ING, S, SEP, ING, PLAY, S, SEP]
    for masked, expected in (
        ([1, 2, 3], (1, 1)),
        ([2, 3], (1, 0)),
        ([5], (0, 0)),  # begins its segment, and so a word of one piece
        ([6, 7], (1, 1)),
        ([3, 6], (2, 0)),
    ):
        now = [MASK if position in masked else token for position, token in enumerate(text)]
        counts = count([(now, 5, [(position, text[position]) for position in masked])])
        assert (counts.masked_words, counts.whole_words) == expected, masked


def test_what_should_not_be_masked():
    row = ([CLS, PLAY, SEP, THE, SEP], 3, [(0, CLS), (3, THE), (3, THE)])
    counts = count([row, ([CLS, PLAY, SEP], 3, [(2, SEP), (7, PLAY)])])
    assert (counts.masked_specials, counts.masked_twice) == (3, 1)


def test_without_a_vocabulary():
    counts = count([([CLS, MASK, GAME, SEP, THE, SEP], 4, [(1, PLAY), (2, THE), (4, THE)])], vocabulary=None)
    assert (counts.as_mask, counts.as_random, counts.kept) == (None, 2, 1)
    assert (counts.unknown, counts.masked_words, counts.whole_words) == (None, None, None)
    assert count([([CLS, PLAY, SEP], 3, [(1, PLAY)])], vocabulary=VOCABULARY[:4] + VOCABULARY[5:]).as_mask is None


@pytest.mark.parametrize("values", [[3], [0, 0, 5], [1, 2, 3, 4], [2, 2, 7, 9, 9], [0, 6]])
def test_summaries(values):
    assert summary(np.bincount(values, minlength=12)) == {
        "mean": statistics.mean(values),
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }
    assert summary(np.zeros(4, int)) is None


def test_repetitions_are_counted_across_batches():
    counter = RepeatCounter()
    assert counter.share() is None
    counter.add(np.array([[1, 2], [2, 1], [1, 2]]))
    counter.add(np.array([[1, 2], [3, 3]]))
    assert counter.share() == 2 / 5
    assert counter.is_exact


def test_repetitions_of_many_rows_are_estimated_with_little_room():
    rows = np.repeat(np.arange(20000), [1, 2, 1, 4] * 5000)[:, None]
    counter = RepeatCounter(room=2000)
    np.random.default_rng(0).shuffle(rows)
    counter.add(rows)
    assert not counter.is_exact
    assert len(counter._numbers) <= 2000
    assert counter.share() == pytest.approx(0.5, abs=0.03)
