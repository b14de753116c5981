import pytest
import tensorflow as tf

from keras_bert.data.text_datasets import encode_label_rows, encode_single_labels, prepare_dataset


def test_names_and_numbers_become_labels():
    assert encode_single_labels(tf.constant(["b", "a"]), ["a", "b"]).numpy().tolist() == [1, 0]
    assert encode_single_labels(tf.constant([[1], [0]], tf.int64), ["a", "b"]).numpy().tolist() == [1, 0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="labels that the model does not have"):
        encode_single_labels(tf.constant([2]), ["a", "b"])


def test_rows_of_labels_are_checked():
    assert encode_label_rows(tf.constant([3, 4]), 1, is_binary=False).numpy().tolist() == [[3.0], [4.0]]
    with pytest.raises(ValueError, match=r"of the shape \[batch, 2\]"):
        encode_label_rows(tf.constant([[1.0]]), 2, is_binary=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="other than zeros and ones"):
        encode_label_rows(tf.constant([[1.0, 2.0]]), 2, is_binary=True)


def test_texts_need_a_preprocessor():
    dataset = tf.data.Dataset.from_tensors(tf.constant(["a text"]))
    with pytest.raises(ValueError, match="takes ids only"):
        prepare_dataset(dataset, None, lambda labels: labels)
