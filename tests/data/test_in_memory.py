import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data import in_memory

COLUMNS = {"text": np.array([f"text {i}" for i in range(10)], object)}


def texts_of(batches):
    return [text for batch in batches for text in batch["text"].numpy().tolist()]


def test_batches_keep_order_labels_and_weights():
    batches = list(
        in_memory.text_batches(COLUMNS, lambda columns: columns, 4, np.arange(10), np.arange(10) / 10, shuffle_seed=3)
    )
    assert [len(labels) for _, labels, _ in batches] == [4, 4, 2]
    for texts, labels, weights in batches:
        assert texts["text"].numpy().tolist() == [f"text {label}".encode() for label in labels]
        np.testing.assert_allclose(weights, labels.numpy() / 10)


def test_shuffle_is_seeded_and_new_in_every_pass():
    def shuffled(seed):
        return in_memory.text_batches(COLUMNS, lambda columns: columns, 4, shuffle_seed=seed)

    one, again = shuffled(3), shuffled(3)
    passes = [texts_of(one), texts_of(one)]
    assert passes[0] != passes[1]
    assert passes == [texts_of(again), texts_of(again)]
    assert sorted(passes[0]) == sorted(text.encode() for text in COLUMNS["text"])
    assert texts_of(shuffled(None)) == [text.encode() for text in COLUMNS["text"]]


@pytest.mark.parametrize("mask, length", [([[1, 1, 0, 0], [1, 0, 0, 0]], 2), ([[0, 0, 1, 0]], 3), ([[0, 0, 0, 0]], 1)])
def test_trim_padding(mask, length):
    trimmed = in_memory.trim_padding({"padding_mask": tf.constant(mask), "token_ids": tf.constant(mask)})
    assert {name: values.shape[1] for name, values in trimmed.items()} == {"padding_mask": length, "token_ids": length}


def test_names_and_numbers_become_labels():
    assert in_memory.encode_single_labels(tf.constant(["b", "a"]), ["a", "b"]).numpy().tolist() == [1, 0]
    assert in_memory.encode_single_labels(tf.constant([[1], [0]], tf.int64), ["a", "b"]).numpy().tolist() == [1, 0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="labels that the model does not have"):
        in_memory.encode_single_labels(tf.constant([2]), ["a", "b"])
