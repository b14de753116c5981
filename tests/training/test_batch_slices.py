import pytest
import tensorflow as tf

from keras_bert.training.batch_slices import slice_batch


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_every_row_is_in_one_part_and_the_parts_are_even(rows, parts):
    batch = {"ids": tf.reshape(tf.range(2 * rows), [rows, 2])}, tf.range(rows)
    found = [slice_batch(batch, number, parts) for number in range(parts)]
    assert tf.concat([labels for _, labels in found], 0).numpy().tolist() == list(range(rows))
    assert tf.concat([inputs["ids"] for inputs, _ in found], 0).numpy().tolist() == batch[0]["ids"].numpy().tolist()
    sizes = [len(labels) for _, labels in found]
    assert max(sizes) - min(sizes) <= 1


def test_a_static_number_of_rows_stays_static():
    signature = [tf.TensorSpec([4, None], tf.int32), tf.TensorSpec([], tf.int32)]
    part = tf.function(lambda ids, number: slice_batch(ids, number, 2), input_signature=signature)
    assert part(tf.reshape(tf.range(12), [4, 3]), 1).numpy().tolist() == [[6, 7, 8], [9, 10, 11]]
    assert part.get_concrete_function().output_shapes.as_list() == [2, None]
