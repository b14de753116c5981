import collections
import itertools
import logging
import random
import sys

import pytest
import tokenizers

from keras_bert.text import vocabulary_learner
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.vocabulary_learner import VocabularyLearner, measure_coverage
from keras_bert.text.word_counter import WordCounter
from tests.reference import tokenization as reference
from tests.text.test_word_counter import EveryWord

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
        for pieces, n in words:
            for pair in itertools.pairwise(pieces):
                pairs[pair] += n
        best = min(pairs, key=lambda pair: (-pairs[pair], *map(entries.index, pair)), default=None)
        if best is None or pairs[best] < min_frequency:
            break
        joined = best[0] + best[1].removeprefix("##")
        if joined not in entries:
            entries.append(joined)
        for pieces, _ in words:
            for index in range(len(pieces) - 1, 0, -1):
                if (pieces[index - 1], pieces[index]) == best:
                    pieces[index - 1 : index + 1] = [joined]
    return entries


@pytest.mark.parametrize("seed", range(10))
def test_vocabulary_equals_the_reference(seed):
    generator = random.Random(seed)
    letters = "abcdef"[: generator.randint(3, 6)]
    counts = random_words(generator, letters, number=60, max_count=generator.choice([2, 50]))
    min_frequency = generator.choice([1, 2, 5])
    learned = VocabularyLearner(60, min_frequency=min_frequency).learn(counts)
    assert learned == reference_vocabulary(counts, 60, min_frequency)


@pytest.mark.parametrize("seed", range(3))
def test_order_of_words_does_not_change_the_vocabulary(seed):
    generator = random.Random(seed)
    counts = {"".join(generator.choices("abc", k=generator.randint(1, 9))): generator.randint(1, 2) for _ in range(300)}
    learner, words, learned = VocabularyLearner(400), list(counts), set()
    for _ in range(6):
        generator.shuffle(words)
        learned.add(tuple(learner.learn({word: counts[word] for word in words})))
    assert len(learned) == 1


def test_special_tokens_are_ordered_as_in_the_released_vocabularies(vocabularies):
    learned = VocabularyLearner(130, num_unused=99).learn(COUNTS)
    assert learned[:104] == vocabularies["uncased"][:104]
    assert learned[104 : 104 + len(CHARACTERS)] == CHARACTERS
    assert VocabularyLearner(40).learn(COUNTS)[:5] == SPECIAL


def test_vocabulary_has_exactly_the_requested_size():
    counts = random_words(random.Random(1), "abcdefgh", number=2_000, max_count=9)
    for size in (100, 500, 1_001):
        learned = VocabularyLearner(size).learn(counts)
        assert len(learned) == len(set(learned)) == size


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


def test_words_of_single_characters(caplog):
    counts = {chr(code_point): 1 for code_point in range(0x4E00, 0x4E00 + 3_000)}
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert VocabularyLearner(3_005).learn(counts) == [*SPECIAL, *counts]
    assert caplog.text == ""


def test_limit_alphabet_drops_rare_characters_with_a_warning(caplog):
    counts = {"abab": 30, "axb": 20, "é": 3, "è": 3}
    with caplog.at_level(logging.WARNING, logger="absl"):
        learned = VocabularyLearner(100, limit_alphabet=4).learn(counts)
    # é and è are equally frequent; the lower code point stays.
    assert learned[5:9] == ["a", "b", "x", "è"]
    assert "1 of 5 characters are dropped" in caplog.text
    assert "3 of 56 (5.3571%)" in caplog.text
    # A word that can only be [UNK] is ignored: without x, "axb" does not count as "ab".
    assert VocabularyLearner(100, limit_alphabet=2, min_frequency=1).learn({"ab": 1, "axb": 1})[5:] == [
        "a",
        "b",
        "##b",
        "ab",
    ]


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
        ({"vocab_size": 104, "num_unused": 99}, "more than 104"),
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


@pytest.fixture(scope="module")
def novel_lines(shared):
    """Lines of more than 10 MB of novels."""
    paths = sorted((shared / "data" / "text" / "english_novels").glob("*.txt"))[:16]
    lines = [line for path in paths for line in path.read_text(encoding="utf-8-sig").split("\n")]
    assert sum(map(len, lines)) > 10_000_000
    return lines


@pytest.fixture(scope="module")
def asian_lines(golden_rows):
    """Texts in Chinese, Korean, Japanese and others."""
    return [row["text"] for name in ("chinese", "multi_cased") for row in golden_rows(name)]


def differing_lines(vocabulary, lines, lower_case, words_of_line=None):
    """Finds the lines that the WordPiece model of `tokenizers` splits differently, from its own or the given words."""
    ids = {entry: index for index, entry in enumerate(vocabulary)}
    theirs = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=200))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.CharDelimiterSplit(" ")
    if words_of_line is None:
        theirs.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower_case)
        theirs.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ours, differing = BertTokenizer(vocabulary, lower_case), []
    for begin in range(0, len(lines), 10_000):
        batch = lines[begin : begin + 10_000]
        expected = theirs.encode_batch_fast(
            [" ".join(words_of_line(line)) for line in batch] if words_of_line else batch
        )
        found = ours.tokenize(batch).to_list()
        differing += [line for line, ids, other in zip(batch, found, expected, strict=True) if ids != other.ids]
    return differing


@pytest.mark.slow
def test_novels_are_tokenized_as_by_the_tokenizers_library(novel_lines):
    vocabulary = VocabularyLearner(8_000).learn(count(novel_lines))
    assert len(vocabulary) == 8_000
    assert differing_lines(vocabulary, novel_lines, lower_case=True) == []
    coverage = measure_coverage(BertTokenizer(vocabulary, lower_case=True), count(novel_lines))
    assert coverage.num_unknown == 0
    assert coverage.num_wordpieces < 1.12 * coverage.num_words


@pytest.mark.parametrize("lower_case", [True, False])
def test_asian_texts_are_tokenized_as_by_the_tokenizers_library(asian_lines, lower_case):
    def words_of_line(line):
        return [token.text for token in reference.tokenize(line, EveryWord(), lower_case)]

    counts = count(asian_lines, lower_case)
    vocabulary = VocabularyLearner(12_000).learn(counts)
    # With the words of the reference: those of the library differ in a few hundred of these lines.
    assert differing_lines(vocabulary, asian_lines, lower_case, words_of_line) == []
    assert measure_coverage(BertTokenizer(vocabulary, lower_case), counts).num_unknown == 0


@pytest.mark.slow
@pytest.mark.parametrize("lower_case", [True, False])
def test_every_entry_can_occur(novel_lines, asian_lines, lower_case):
    lines = [*novel_lines[:50_000], *asian_lines]
    learner = VocabularyLearner(15_000, num_unused=2)
    vocabulary = learner.learn(count(lines, lower_case))
    tokenizer = BertTokenizer(vocabulary, lower_case)
    entries = vocabulary[len(learner.special_tokens) :]
    texts = [entry for entry in entries if not entry.startswith("##")]
    assert tokenizer.tokenize(texts).to_list() == [[tokenizer.token_to_id(entry)] for entry in texts]
    missing = {tokenizer.token_to_id(entry) for entry in entries if entry.startswith("##")}
    for first in ["q", "x", "z", "j", "0", "é", "а", "ᄌ"]:
        texts = [first + vocabulary[index].removeprefix("##") for index in missing]
        missing -= set(tokenizer.tokenize(texts).values.numpy().tolist())
    assert [vocabulary[index] for index in missing] == []
    assert [entry for entry in vocabulary if entry.split() != [entry]] == []
