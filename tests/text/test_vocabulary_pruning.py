import numpy as np
import pytest

from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.vocabulary_pruning import choose_wordpieces, count_wordpieces

VOCABULARY = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdé", *(f"##{c}" for c in "abcd")]
VOCABULARY += ["ab", "ca", "##ab", "##cd", "abc", "dad", "##bc", "abcd", "cab"]
TOKENIZER = BertTokenizer(VOCABULARY, lower_case=False)


def random_texts(seed, number=50):
    generator = np.random.default_rng(seed)
    words = ["".join(generator.choice(list("abcd"), generator.integers(1, 7))) for _ in range(4 * number)]
    return [" ".join(words[index : index + 4]) for index in range(0, len(words), 4)]


def pieces(indices):
    return [VOCABULARY[index] for index in indices]


def test_counts():
    counts = count_wordpieces(TOKENIZER, iter(["ab ab abab", "zz"]))
    assert {VOCABULARY[i]: counts[i] for i in np.flatnonzero(counts)} == {"ab": 3, "##ab": 1, "[UNK]": 1}


def test_keeps_the_most_frequent_and_all_characters_that_occur():
    texts = ["ab ab ab ca ca abc"]
    kept = pieces(choose_wordpieces(TOKENIZER, texts))
    assert set(kept) == {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc", "##a", "##b", "##c", "ab", "ca", "abc"}
    assert "ca" not in pieces(choose_wordpieces(TOKENIZER, texts, vocab_size=len(kept) - 2))
    assert "ab" in pieces(choose_wordpieces(TOKENIZER, texts, vocab_size=len(kept) - 2))
    assert "abc" not in pieces(choose_wordpieces(TOKENIZER, texts, min_count=2))


def test_keeps_the_first_wordpieces_with_their_characters():
    kept = pieces(choose_wordpieces(TOKENIZER, ["ab"], keep_first=VOCABULARY.index("dad") + 1))
    assert {"##cd", "dad", "d", "##d"} <= set(kept)
    assert not {"[unused0]", "é", "abcd"} & set(kept)


def test_refuses_a_vocabulary_without_room_for_the_characters():
    with pytest.raises(ValueError, match="vocab_size=7 is too small: 11 wordpieces are always kept"):
        choose_wordpieces(TOKENIZER, ["abc"], vocab_size=7)


@pytest.mark.parametrize("vocab_size", [14, 17, None])
def test_texts_of_kept_wordpieces_are_tokenized_as_before(vocab_size):
    kept = choose_wordpieces(TOKENIZER, random_texts(0, 3), vocab_size)
    smaller = BertTokenizer(pieces(kept), lower_case=False)
    before, after = (tokenizer.tokenize(random_texts(1)).to_list() for tokenizer in (TOKENIZER, smaller))
    same = [set(ids) <= set(kept) for ids in before]
    assert 0 < sum(same) <= len(same)
    for was, now, is_kept in zip(before, after, same, strict=True):
        assert not is_kept or [kept[index] for index in now] == was
    assert smaller.vocabulary.index("[UNK]") not in {index for ids in after for index in ids}
