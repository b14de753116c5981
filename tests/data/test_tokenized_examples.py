import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.tokenized_examples import TokenizedExamples, tokenize_examples
from tests.toys import toy_preprocessor, toy_reviews

TEXTS, LABELS = toy_reviews(50)


def as_examples(texts, labels=LABELS):
    return [{"text": text, "label": label} for text, label in zip(texts, labels, strict=False)]


def assert_same(inputs, expected):
    assert set(inputs) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(inputs[name], values)


@pytest.mark.parametrize("arguments", [{}, {"sequence_length": 5}, {"sequence_length": 6, "long_texts": "windows"}])
@pytest.mark.parametrize("is_pair", [False, True])
def test_batches_equal_those_of_the_preprocessor(arguments, is_pair):
    preprocessor = toy_preprocessor(**arguments)
    columns = {"text_a": TEXTS, "text_b": [*TEXTS[1:], ""]} if is_pair else {"text": TEXTS}
    rows = [dict(zip(columns, texts, strict=True)) for texts in zip(*columns.values(), strict=True)]
    examples = tokenize_examples(rows, preprocessor)
    for indices in ([3, 1, 49], [7], list(range(50))):
        expected = preprocessor({name: [texts[i] for i in indices] for name, texts in columns.items()})
        assert_same(examples.batch(tf.constant(indices)), expected)
    np.testing.assert_array_equal(examples.token_counts, preprocessor.token_counts(columns))
    assert len(examples) == 50


def test_autograph_converts_batches():
    assert callable(tf.autograph.to_graph(TokenizedExamples._gather))


def test_concatenates_chunks_of_texts_and_labels():
    texts = [TEXTS[i % 50] for i in range(5000)]
    stream = ({"text": text, "label": i} for i, text in enumerate(texts))
    examples = tokenize_examples(stream, toy_preprocessor(), np.array)
    inputs, labels = examples.batch(tf.constant([4999, 2048, 2047, 0]))
    assert labels.numpy().tolist() == [4999, 2048, 2047, 0]
    assert_same(inputs, toy_preprocessor()([texts[i] for i in (4999, 2048, 2047, 0)]))


def test_the_fingerprint_identifies_the_data():
    numbers = list(range(50))
    data = [
        (TEXTS, numbers),
        (TEXTS, numbers),
        (TEXTS[:-1], numbers[:-1]),
        (TEXTS, numbers[::-1]),
        (TEXTS[::-1], numbers),
        ([*TEXTS[1:], "good"], numbers),
    ]
    examples = [tokenize_examples(as_examples(*arguments), toy_preprocessor(), np.array) for arguments in data]
    fingerprints = [tokenized.fingerprint() for tokenized in examples]
    assert fingerprints[0] == fingerprints[1]
    assert len(set(fingerprints)) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2, 3], [2], [2]), "3 ids do not fit"),
        (([1, 2], [2], [2], None, [2]), "have 2 rows, but there are 1"),
        (([1, 2], [2], [2], np.zeros(3)), "1 examples and 2 tokens, but 3 labels"),
    ],
)
def test_refuses_arrays_that_do_not_match(arguments, message):
    with pytest.raises(ValueError, match=message):
        TokenizedExamples(*arguments)


def test_refuses_examples_without_texts_and_windows_of_static_shape():
    with pytest.raises(ValueError, match="no examples"):
        tokenize_examples([], toy_preprocessor())
    with pytest.raises(ValueError, match=r"needs `text`, or `text_a` and `text_b`; got one with \['words'\]"):
        tokenize_examples([{"words": "a"}], toy_preprocessor())
    windows = TokenizedExamples([2, 7, 3, 2, 3], [3, 2], [3, 2], rows_per_example=[2])
    with pytest.raises(ValueError, match="windows has no static shape"):
        windows.static_batch(tf.constant([0]), num_rows=1)


def test_a_static_batch_is_the_same_batch_with_padding():
    ids, lengths = [2, 7, 3, 2, 3, 2, 8, 9, 3], [3, 2, 4]
    examples = TokenizedExamples(ids, lengths, lengths, labels=np.array([5, 6, 7]), pad_id=1)
    inputs, labels = examples.batch(tf.constant([1, 0]))
    static_inputs, static_labels, weights = examples.static_batch(tf.constant([1, 0]), num_rows=4)
    for name, padding in (("token_ids", 1), ("segment_ids", 0), ("padding_mask", 0)):
        padded = np.pad(inputs[name], [[0, 2], [0, 5]], constant_values=padding)
        np.testing.assert_array_equal(static_inputs[name], padded)
    np.testing.assert_array_equal(static_labels[:2], labels)
    assert weights.numpy().tolist() == [1, 1, 0, 0]
    empty, _, weights = examples.static_batch(tf.zeros([0], tf.int64), num_rows=4)
    assert not empty["padding_mask"].numpy().any()
    assert not weights.numpy().any()
