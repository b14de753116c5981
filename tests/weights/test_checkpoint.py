import dataclasses

import pytest

from keras_bert.weights.checkpoint_reader import read_checkpoint


def test_a_checkpoint_is_replaced_and_not_changed(hugging_face_folder):
    checkpoint = read_checkpoint(hugging_face_folder.write())
    with pytest.raises(dataclasses.FrozenInstanceError):
        checkpoint.arrays = {}
    assert dataclasses.replace(checkpoint, unused=("more",)).arrays is checkpoint.arrays
