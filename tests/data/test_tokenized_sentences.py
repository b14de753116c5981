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
    """Returns a unique label for each word."""
    count = iter(range(1000))
    return [[next(count) for _ in words] for words in SENTENCES]


@pytest.mark.parametrize("documents", [None, DOCUMENTS])
def test_each_word_has_its_label_once(preprocessor, documents):
    labels = numbers_of_words()
    tokenized = tokenize_sentences(SENTENCES, preprocessor, labels, documents)
    inputs, token_labels = tokenized.windows.batch(np.arange(len(tokenized.windows)))
    ids, token_labels = inputs["token_ids"].numpy(), token_labels.numpy()
    flat = [label for sentence_labels in labels for label in sentence_labels]
    assert sorted(token_labels[token_labels != NO_LABEL].tolist()) == flat
    assert token_labels[tokenized.word_windows, tokenized.word_positions].tolist() == flat
    words = preprocessor.tokenizer.tokenize([word for sentence in SENTENCES for word in sentence]).to_list()
    first_ids = [wordpieces[0] if wordpieces else preprocessor.tokenizer.unk_id for wordpieces in words]
    assert ids[tokenized.word_windows, tokenized.word_positions].tolist() == first_ids
    assert [values.tolist() for values in tokenized.split_by_sentence(np.array(flat))] == labels


def test_a_document_is_one_sequence(preprocessor):
    separate = tokenize_sentences(SENTENCES, preprocessor)
    joined = tokenize_sentences(SENTENCES, preprocessor, documents=DOCUMENTS)
    ids = joined.windows.batch(np.arange(len(joined.windows)))["token_ids"].numpy()
    first_two = [*preprocessor.tokenizer.tokenize("goodly film").numpy(), preprocessor.tokenizer.unk_id]
    assert ids[0, 1 : 1 + len(first_two)].tolist() == first_two
    assert joined.word_windows[-4:].tolist() == [len(ids) - 1] * 4
    assert len(separate.windows) > len(joined.windows)


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
