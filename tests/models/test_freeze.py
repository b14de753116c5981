import numpy as np
import pytest

from keras_bert.models.freeze import reinitialize_top_blocks
from tests.toys import toy_classifier

TWO_BLOCKS = {"num_hidden_layers": 2}


def changed(number, seed=3):
    """Re-initializes blocks; returns the layers of the encoder that changed, and all weights."""
    encoder = toy_classifier(encoder_arguments=TWO_BLOCKS).encoder
    for weight in encoder.weights:
        weight.assign(weight + 1.0)  # as if trained: no initial value is left
    before = {path: weight.numpy() for path, weight in encoder.variables_by_path().items()}
    reinitialize_top_blocks(encoder, number, seed)
    after = {path: weight.numpy() for path, weight in encoder.variables_by_path().items()}
    return {path.split("/")[0] for path in before if not np.array_equal(before[path], after[path])}, after


def test_reinitializes_the_top_blocks_and_the_pooler():
    assert changed(0)[0] == {"pooler"}
    assert changed(1)[0] == {"pooler", "transformer_block_1"}
    assert changed(2)[0] == {"pooler", "transformer_block_0", "transformer_block_1"}


def test_new_weights_follow_the_initial_distribution():
    _, weights = changed(1)
    kernel = weights["transformer_block_1/intermediate/kernel"]
    deviation = toy_classifier(encoder_arguments=TWO_BLOCKS).encoder.initializer_range
    assert 0.8 * deviation < kernel.std() < deviation
    assert np.abs(kernel).max() <= 2 * deviation + 1e-6  # truncated there
    assert (weights["transformer_block_1/output_layer_norm/gamma"] == 1).all()
    assert (weights["pooler/bias"] == 0).all()


def test_new_weights_depend_on_seed_and_layer():
    one, two, other = (changed(2, seed)[1] for seed in (3, 3, 4))
    assert np.array_equal(one["pooler/kernel"], two["pooler/kernel"])
    assert not np.array_equal(one["pooler/kernel"], other["pooler/kernel"])
    kernels = [one[f"transformer_block_{number}/intermediate/kernel"] for number in range(2)]
    assert not np.array_equal(*kernels)


def test_rejects_frozen_layers_and_invalid_numbers():
    with pytest.raises(ValueError, match="transformer_block_0 cannot be both frozen and re-initialized"):
        reinitialize_top_blocks(toy_classifier(freeze=1, encoder_arguments=TWO_BLOCKS).encoder, 2)
    for number in (-1, 3):
        with pytest.raises(ValueError, match=f"has 2 blocks; {number} of them"):
            reinitialize_top_blocks(toy_classifier(encoder_arguments=TWO_BLOCKS).encoder, number)
