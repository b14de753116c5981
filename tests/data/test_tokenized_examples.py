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


@pytest.mark.parametrize("sequence_length", [16, 5])
def test_a_batch_is_what_the_preprocessor_makes_of_its_texts(sequence_length):
    preprocessor = toy_preprocessor(sequence_length=sequence_length)
    examples = tokenize_examples(as_examples(TEXTS), preprocessor)
    for indices in ([3, 1, 49], [7], list(range(50))):
        assert_same(examples.batch(tf.constant(indices)), preprocessor([TEXTS[i] for i in indices]))
    np.testing.assert_array_equal(examples.token_counts, preprocessor.token_counts(TEXTS))


def test_pairs():
    preprocessor = toy_preprocessor(sequence_length=12)
    pairs = [{"text_a": a, "text_b": b} for a, b in zip(TEXTS, [*TEXTS[1:], ""], strict=True)]
    examples = tokenize_examples(pairs, preprocessor)
    expected = preprocessor((TEXTS[40:], [*TEXTS[41:], ""]))
    assert_same(examples.batch(tf.range(40, 50)), expected)


def test_windows():
    preprocessor = toy_preprocessor(sequence_length=6, long_texts="windows")
    examples = tokenize_examples(as_examples(TEXTS), preprocessor)
    for indices in ([3, 1, 49], [7]):
        assert_same(examples.batch(tf.constant(indices)), preprocessor([TEXTS[i] for i in indices]))
    assert len(examples) == 50
    assert examples.lengths.max() == 6


def test_many_chunks_are_one_stream_and_labels_stay_with_their_texts():
    texts = [TEXTS[i % 50] for i in range(5000)]
    stream = ({"text": text, "label": i} for i, text in enumerate(texts))
    examples = tokenize_examples(stream, toy_preprocessor(), np.array)
    inputs, labels = examples.batch(tf.constant([4999, 2048, 2047, 0]))
    assert labels.numpy().tolist() == [4999, 2048, 2047, 0]
    assert_same(inputs, toy_preprocessor()([texts[i] for i in (4999, 2048, 2047, 0)]))


def test_padding_to_a_multiple():
    examples = tokenize_examples(as_examples(TEXTS), toy_preprocessor())
    short = np.flatnonzero(examples.lengths <= 6)
    assert examples.batch(tf.constant(short), length_multiple=8)["token_ids"].shape[1] == 8
    # Never beyond the longest of all: there may be no positions for more.
    assert examples.batch(tf.range(50), length_multiple=8)["token_ids"].shape[1] == examples.lengths.max()
    np.testing.assert_array_equal(
        examples.batch(tf.range(9), 8)["padding_mask"].numpy().sum(axis=1), examples.lengths[:9]
    )


def test_the_fingerprint_tells_other_data():
    def fingerprint(texts, labels):
        return tokenize_examples(as_examples(texts, labels), toy_preprocessor(), np.array).fingerprint()

    numbers = list(range(50))
    assert fingerprint(TEXTS, numbers) == fingerprint(TEXTS, numbers)
    others = [
        (TEXTS[:-1], numbers[:-1]),
        (TEXTS, numbers[::-1]),
        (TEXTS[::-1], numbers),
        ([*TEXTS[1:], "good"], numbers),
    ]
    assert len({fingerprint(texts, labels) for texts, labels in [(TEXTS, numbers), *others]}) == 5


def test_no_examples():
    with pytest.raises(ValueError, match="no examples"):
        tokenize_examples([], toy_preprocessor())


def test_examples_without_texts():
    with pytest.raises(ValueError, match=r"needs `text`, or `text_a` and `text_b`; got one with \['words'\]"):
        tokenize_examples([{"words": "a"}], toy_preprocessor())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2, 3], [2], [2]), "3 ids do not fit"),
        (([1, 2], [2], [2], None, [2]), "have 2 rows, but there are 1"),
        (([1, 2], [2], [2], np.zeros(3)), "1 examples and 2 tokens, but 3 labels"),
    ],
)
def test_arrays_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        TokenizedExamples(*arguments)


def test_a_static_batch_is_the_same_batch_with_padding():
    examples = TokenizedExamples(
        [2, 7, 3, 2, 3, 2, 8, 9, 3], [3, 2, 4], [3, 2, 4], labels=np.array([5, 6, 7]), pad_id=1
    )
    (inputs, labels), (static_inputs, static_labels, weights) = (
        examples.batch(tf.constant([1, 0])),
        examples.static_batch(tf.constant([1, 0]), num_rows=4),
    )
    for name, padding in (("token_ids", 1), ("segment_ids", 0), ("padding_mask", 0)):
        values = static_inputs[name].numpy()
        assert values.shape == (4, 8)
        np.testing.assert_array_equal(values[:2, :3], inputs[name])
        assert (values[:2, 3:] == padding).all()
        assert (values[2:] == padding).all()
    np.testing.assert_array_equal(static_labels[:2], labels)
    assert weights.numpy().tolist() == [1, 1, 0, 0]
    empty, _, weights = examples.static_batch(tf.zeros([0], tf.int64), num_rows=4)
    assert not empty["padding_mask"].numpy().any()
    assert not weights.numpy().any()


def test_windows_have_no_static_shape():
    examples = TokenizedExamples([2, 7, 3, 2, 3], [3, 2], [3, 2], rows_per_example=[2])
    with pytest.raises(ValueError, match="windows has no static shape"):
        examples.static_batch(tf.constant([0]), num_rows=1)
