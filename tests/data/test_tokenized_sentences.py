import numpy as np
import pytest

from keras_bert.data.tokenized_examples import NO_LABEL
from keras_bert.data.tokenized_sentences import tokenize_sentences
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.word_preprocessor import BertWordPreprocessor
from tests.toys import OTHER_WORDS, VOCABULARY

SENTENCES = [["goodly", "film"], ["\u200b"], OTHER_WORDS * 4, ["bad"], ["a", "plot", "."]]
DOCUMENTS = [0, 0, 0, 1, 1]


@pytest.fixture(scope="module")
def preprocessor():
    return BertWordPreprocessor(BertTokenizer(VOCABULARY, lower_case=True), sequence_length=12)


def numbers_of_words():
    """A label for each word that no other has."""
    count = iter(range(1000))
    return [[next(count) for _ in words] for words in SENTENCES]


@pytest.mark.parametrize("documents", [None, DOCUMENTS])
def test_each_word_has_its_label_once(preprocessor, documents):
    labels = numbers_of_words()
    tokenized = tokenize_sentences(SENTENCES, preprocessor, labels, documents)
    inputs, of_tokens = tokenized.windows.batch(np.arange(len(tokenized.windows)))
    of_tokens, ids = of_tokens.numpy(), inputs["token_ids"].numpy()
    flat = [label for of_sentence in labels for label in of_sentence]
    assert sorted(of_tokens[of_tokens != NO_LABEL].tolist()) == flat
    assert of_tokens[tokenized.word_windows, tokenized.word_positions].tolist() == flat
    words = [word for sentence in SENTENCES for word in sentence]
    tokenizer = preprocessor.tokenizer
    for word, window, place in zip(words, tokenized.word_windows, tokenized.word_positions, strict=True):
        pieces = tokenizer.tokenize(word).numpy().tolist() or [tokenizer.unk_id]
        assert ids[window, place] == pieces[0]
    assert [of_sentence.tolist() for of_sentence in tokenized.split_by_sentence(np.array(flat))] == labels


def test_a_document_is_one_sequence(preprocessor):
    apart = tokenize_sentences(SENTENCES, preprocessor)
    together = tokenize_sentences(SENTENCES, preprocessor, documents=DOCUMENTS)
    ids = together.windows.batch(np.arange(len(together.windows)))["token_ids"].numpy()
    first = [*preprocessor.tokenizer.tokenize("goodly film").numpy(), preprocessor.tokenizer.unk_id]
    assert ids[0, 1 : 1 + len(first)].tolist() == first  # the first sentence, and the second one behind it
    assert together.word_windows[-4:].tolist() == [len(ids) - 1] * 4
    assert len(apart.windows) > len(together.windows)


def test_concatenates_chunks(preprocessor, monkeypatch):
    whole = tokenize_sentences(SENTENCES, preprocessor, numbers_of_words())
    monkeypatch.setattr("keras_bert.data.tokenized_sentences._CHUNK_SIZE", 2)
    parts = tokenize_sentences(SENTENCES, preprocessor, numbers_of_words())
    assert parts.windows.fingerprint() == whole.windows.fingerprint()
    np.testing.assert_array_equal(parts.word_windows, whole.word_windows)
    np.testing.assert_array_equal(parts.word_positions, whole.word_positions)


def test_refuses_labels_and_documents_of_other_lengths(preprocessor):
    with pytest.raises(ValueError, match="no sentences"):
        tokenize_sentences([], preprocessor)
    with pytest.raises(ValueError, match="sentence 1 has 2 words and 1 labels"):
        tokenize_sentences([["a"], ["a", "b"]], preprocessor, [[0], [0]])
    with pytest.raises(ValueError, match="got 2 lists for 1"):
        tokenize_sentences([["a"]], preprocessor, [[0], [0]])
    for documents in ([0], [0, 0, 1]):
        with pytest.raises(ValueError, match=f"a number for each sentence; got {len(documents)} for 2"):
            tokenize_sentences([["a"], ["b"]], preprocessor, documents=documents)
