import numpy as np
import pytest

from keras_bert.models.encoder import ENCODER_SIZES
from keras_bert.weights.layout import expected_encoder_shapes, fuse_query_key_value, split_query_key_value

SIZES = {"vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2}


@pytest.mark.parametrize("shape", [(4, 4), (4,)])
def test_splitting_inverts_fusing(shape):
    parts = np.random.default_rng(0).standard_normal((3, *shape))
    fused = fuse_query_key_value(*parts)
    assert fused.shape == (*shape[:-1], 12)
    for part, split in zip(parts, split_query_key_value(fused), strict=True):
        np.testing.assert_array_equal(part, split)


def test_rejects_arrays_that_are_not_fused():
    with pytest.raises(ValueError, match=r"received shape \[4, 4\]"):
        split_query_key_value(np.zeros((4, 4)))


@pytest.mark.parametrize(("size", "parameters"), [("base", 109_482_240), ("large", 335_141_888)])
def test_published_sizes_have_the_published_number_of_parameters(size, parameters):
    config = {**SIZES, **ENCODER_SIZES[size], "intermediate_size": 4 * ENCODER_SIZES[size]["hidden_size"]}
    assert sum(int(np.prod(shape)) for shape in expected_encoder_shapes(config).values()) == parameters
