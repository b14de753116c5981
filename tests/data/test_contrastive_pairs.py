from collections import Counter

import numpy as np
import pytest

from keras_bert.data.contrastive_pairs import contrastive_pairs
from tests.reference.contrastive_pairs import all_pairs

TEXTS, LABELS = list("abcdefghi"), [0, 1, 0, 2, 2, 1, 0, 0, 0]


def kinds_of(pairs, scores):
    rows = [tuple(sorted(pair)) for pair in zip(pairs["text_a"], pairs["text_b"], strict=True)]
    assert scores.dtype == np.float32 and scores.tolist() == [1.0, 0.0] * (len(rows) // 2)
    return rows[::2], rows[1::2]


@pytest.mark.parametrize("labels", [LABELS, ["x"] * 8 + ["y"]])
def test_all_pairs_with_the_rarer_kind_repeated(labels):
    expected = all_pairs(TEXTS, labels)
    number = max(map(len, expected))
    for found, wanted in zip(kinds_of(*contrastive_pairs(TEXTS, labels, seed=3)), expected, strict=True):
        assert len(found) == number
        counts = Counter(found)
        assert set(counts) == set(wanted)
        assert max(counts.values()) - min(counts.values()) <= 1


def test_some_pairs_by_seed():
    found = [kinds_of(*contrastive_pairs(TEXTS, LABELS, max_pairs=13, seed=seed)) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    for kind, wanted in zip(found[0], all_pairs(TEXTS, LABELS), strict=True):
        assert len(set(kind)) == len(kind) == 6 and set(kind) <= set(wanted)


@pytest.mark.parametrize(
    ("texts", "labels", "max_pairs", "message"),
    [
        (TEXTS, LABELS[1:], None, "there must be a label per text; got 9 texts and 8 labels"),
        (TEXTS, ["x"] * 9, None, r"at least two different labels, got \['x'\]"),
        (TEXTS, LABELS, 1, "max_pairs must be at least 2, .* got 1"),
        (["a"] * 5001, [0] * 5001, None, "at most 5000 texts, got 5001; draw some of each label"),
    ],
)
def test_rejects_what_has_no_pairs(texts, labels, max_pairs, message):
    with pytest.raises(ValueError, match=message):
        contrastive_pairs(texts, labels, max_pairs)
