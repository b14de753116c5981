import collections
import itertools
import logging
import random
import sys

import pytest

from keras_bert.text import vocabulary_learner
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.vocabulary_learner import VocabularyLearner, measure_coverage
from keras_bert.text.word_counter import WordCounter

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
COUNTS = {"low": 50, "lower": 20, "lowest": 9, "newest": 30, "wide": 2, "!": 40, "9": 1}
CHARACTERS = [*"!9deilnorstw", *(f"##{character}" for character in "deiorstw")]


def count(texts, lower_case=True):
    counter = WordCounter(lower_case)
    counter.add(texts)
    return counter.counts


def random_words(generator, letters, number, max_count):
    """Makes counts of words with many ties; no word has a letter twice, which the trainer's queue treats specially."""
    return {
        "".join(generator.sample(letters, generator.randint(1, len(letters)))): generator.randint(1, max_count)
        for _ in range(number)
    }


def reference_vocabulary(word_counts, vocab_size, min_frequency):
    """Joins the most frequent pair, on a tie that of the lowest ids, until the vocabulary is full."""
    within = {character for word in word_counts for character in word[1:]}
    entries = [*SPECIAL, *sorted(set("".join(word_counts))), *(f"##{character}" for character in sorted(within))]
    words = [([word[0], *(f"##{character}" for character in word[1:])], n) for word, n in word_counts.items()]
    while len(entries) < vocab_size:
        pairs = collections.Counter()
        for wordpieces, n in words:
            for pair in itertools.pairwise(wordpieces):
                pairs[pair] += n
        best = min(pairs, key=lambda pair: (-pairs[pair], *map(entries.index, pair)), default=None)
        if best is None or pairs[best] < min_frequency:
            break
        joined = best[0] + best[1].removeprefix("##")
        if joined not in entries:
            entries.append(joined)
        for wordpieces, _ in words:
            for index in range(len(wordpieces) - 1, 0, -1):
                if (wordpieces[index - 1], wordpieces[index]) == best:
                    wordpieces[index - 1 : index + 1] = [joined]
    return entries


@pytest.mark.parametrize("seed", range(10))
def test_vocabulary_equals_the_reference(seed):
    generator = random.Random(seed)
    letters = "abcdef"[: generator.randint(3, 6)]
    counts = random_words(generator, letters, number=60, max_count=generator.choice([2, 50]))
    min_frequency = generator.choice([1, 2, 5])
    learned = VocabularyLearner(60, min_frequency=min_frequency).learn(counts)
    assert learned == reference_vocabulary(counts, 60, min_frequency)


def test_special_tokens_are_ordered_as_in_the_released_vocabularies(vocabularies):
    learned = VocabularyLearner(130, num_unused=99).learn(COUNTS)
    assert learned[:104] == vocabularies["uncased"][:104]
    assert learned[104 : 104 + len(CHARACTERS)] == CHARACTERS
    assert VocabularyLearner(40).learn(COUNTS)[:5] == SPECIAL


def test_error_names_the_smallest_possible_size():
    smallest = len(SPECIAL) + len(CHARACTERS)
    message = f"must be at least {smallest} .* 12 characters, and 8 .*Received: {smallest - 1}"
    with pytest.raises(ValueError, match=message):
        VocabularyLearner(smallest - 1).learn(COUNTS)
    assert VocabularyLearner(smallest).learn(COUNTS) == [*SPECIAL, *CHARACTERS]


def test_small_texts_give_a_smaller_vocabulary_and_a_warning(caplog):
    with caplog.at_level(logging.WARNING, logger="absl"):
        learned = VocabularyLearner(1_000).learn(COUNTS)
    assert {"lowest", "newest", "wide"} <= set(learned)
    assert f"{len(learned)} entries, fewer than the 1000 requested" in caplog.text
    assert len(VocabularyLearner(1_000, min_frequency=10).learn(COUNTS)) < len(learned)


def test_limit_alphabet_drops_rare_characters_with_a_warning(caplog):
    counts = {"abab": 30, "axb": 20, "é": 3, "è": 3}
    with caplog.at_level(logging.WARNING, logger="absl"):
        learned = VocabularyLearner(100, limit_alphabet=4).learn(counts)
    # é and è are equally frequent; the lower code point stays.
    assert learned[5:9] == ["a", "b", "x", "è"]
    assert "1 of 5 characters are dropped" in caplog.text
    assert "3 of 56 (5.3571%)" in caplog.text
    # A word that can only be [UNK] is ignored: without x, "axb" does not count as "ab".
    learned = VocabularyLearner(100, limit_alphabet=2, min_frequency=1).learn({"ab": 1, "axb": 1})
    assert learned[5:] == ["a", "b", "##b", "ab"]


def test_large_counts_are_divided(monkeypatch):
    counts = random_words(random.Random(2), "abcdef", number=50, max_count=20)
    characters = sum(len(word) * n for word, n in counts.items() if len(word) > 1)
    monkeypatch.setattr(vocabulary_learner, "_MAX_CHARACTERS", characters)
    huge = {word: n * 10**9 for word, n in counts.items()}
    assert VocabularyLearner(80).learn(huge) == VocabularyLearner(80).learn(counts)


def test_ignores_the_rarest_of_too_many_words(monkeypatch):
    monkeypatch.setattr(vocabulary_learner, "_MAX_WORDS", 2)
    counts = {"cd": 5, "ab": 5, "ef": 5, "gh": 2}
    characters = [*"abcdefgh", "##b", "##d", "##f", "##h"]
    assert VocabularyLearner(100).learn(counts) == [*SPECIAL, *characters, "ab", "cd"]


def test_entries_are_not_longer_than_the_tokenizer_accepts():
    counts = {"щ" * 128: 9, "é" * 129: 9, "a" * 200: 9}
    learned = VocabularyLearner(1_000).learn(counts)
    assert "щ" * 128 in learned
    assert {entry for entry in learned if "é" in entry} == {"é", "##é"}
    assert measure_coverage(BertTokenizer(learned, lower_case=False), counts).num_unknown == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 5}, "more than 5, the number of special tokens. Received: 5"),
        ({"num_unused": -1}, "num_unused must be at least 0. Received: -1"),
        ({"limit_alphabet": 0}, "limit_alphabet must be at least 1, or None for all. Received: 0"),
        ({"min_frequency": 0}, "min_frequency must be at least 1. Received: 0"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        VocabularyLearner(**arguments)


@pytest.mark.parametrize("counts", [{}, {"two words": 1}, {"": 1}, {"line\n": 1}, {"word": 0}, {"\u2028": 2}])
def test_invalid_counts_are_refused(counts):
    with pytest.raises(ValueError, match=r"no words|Received: '.*': \d"):
        VocabularyLearner(100).learn(counts)


def test_missing_tokenizers_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r'pip install "keras-bert-zoo\[pretraining\]"'):
        VocabularyLearner(100)


def test_coverage_counts_wordpieces_and_unknown_words(monkeypatch):
    monkeypatch.setattr(vocabulary_learner, "_WORDS_PER_BATCH", 2)
    tokenizer = BertTokenizer([*SPECIAL, "low", "##er", "new"], lower_case=True)
    counts = {"low": 5, "lower": 3, "new": 2, "newest": 7, "?": 1}
    assert measure_coverage(tokenizer, counts) == (18, 5 + 2 * 3 + 2 + 7 + 1, 8)


@pytest.mark.slow
def test_vocabulary_of_novels_covers_their_words(shared):
    paths = sorted((shared / "data" / "text" / "english_novels").glob("*.txt"))[:16]
    counts = count([line for path in paths for line in path.read_text(encoding="utf-8-sig").split("\n")])
    vocabulary = VocabularyLearner(8_000).learn(counts)
    assert len(vocabulary) == 8_000
    coverage = measure_coverage(BertTokenizer(vocabulary, lower_case=True), counts)
    assert coverage.num_unknown == 0
    assert coverage.num_wordpieces < 1.12 * coverage.num_words
