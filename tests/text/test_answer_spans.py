import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.answer_spans import find_answer_spans
from tests.reference.answer_spans import spans_of


@pytest.mark.parametrize("n_best, max_answer_length", [(1, 30), (5, 3), (20, 30), (200, 10)])
@pytest.mark.parametrize("step", [None, 0.5])
def test_spans_are_those_of_the_reference(n_best, max_answer_length, step):
    generator = np.random.default_rng(0)
    rows = [0, 0, 0, 1, 2, 2, 4]
    logits = generator.normal(size=(2, len(rows), 50)).astype("float32")
    if step:
        logits = np.round(logits / step).astype("float32") * np.float32(step)  # so that there are many equals
    may_start, may_end = generator.random((2, len(rows), 50)) < 0.7
    found = find_answer_spans(*map(tf.constant, (*logits, may_start, may_end)), rows, n_best, max_answer_length)

    expected = []
    for row in sorted(set(rows)):
        of_row = [i for i, other in enumerate(rows) if other == row]
        windows = [[part[i].tolist() for part in (*logits, may_start, may_end)] for i in of_row]
        expected += [(row, of_row[window], *span) for window, *span in spans_of(windows, n_best, max_answer_length)]
    assert list(zip(*(values.numpy().tolist() for values in found), strict=True)) == expected


def test_a_batch_without_an_allowed_span():
    logits, nowhere = tf.zeros([2, 7]), tf.zeros([2, 7], bool)
    assert find_answer_spans(logits, logits, nowhere, nowhere, [0, 1]).starts.shape == [0]


def test_a_batch_without_windows():
    logits, nowhere = tf.zeros([0, 1]), tf.zeros([0, 1], bool)
    assert find_answer_spans(logits, logits, nowhere, nowhere, tf.zeros([0], tf.int32)).starts.shape == [0]
