import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.windows import split_into_windows
from tests.reference.windows import windows_of


@pytest.mark.parametrize("window_length, stride", [(1, 1), (4, 4), (4, 1), (7, 3), (50, 25)])
def test_windows_are_those_of_the_reference(window_length, stride):
    generator = np.random.default_rng(0)
    rows = [generator.integers(0, 100, size).tolist() for size in [0, 1, 3, 4, 5, 8, 13, 40, 0, 50, 51]]
    windows, row_of_window = split_into_windows(tf.ragged.constant(rows, tf.int32), window_length, stride)
    expected = [(window, i) for i, row in enumerate(rows) for window in windows_of(row, window_length, stride)]
    assert windows.to_list() == [window for window, _ in expected]
    assert row_of_window.numpy().tolist() == [i for _, i in expected]


def test_every_row_may_have_its_own_window():
    rows = [list(range(10)), list(range(10))]
    windows, _ = split_into_windows(tf.ragged.constant(rows), tf.constant([4, 9]), tf.constant([3, 5]))
    assert windows.to_list() == windows_of(rows[0], 4, 3) + windows_of(rows[1], 9, 5)


def test_a_batch_without_rows():
    windows, rows = split_into_windows(tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int32), [0]), 4, 2)
    assert windows.shape[0] == 0
    assert rows.shape == [0]
