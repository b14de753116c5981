import numpy as np
import pytest

from keras_bert.weights.layout import expected_encoder_shapes
from keras_bert.weights.variable_map import StoredVariable, drop_absent_pooler, map_encoder
from tests.weights.conftest import SIZES


def test_file_shapes_of_a_fused_transposed_kernel():
    stored = StoredVariable(("q", "k", "v"), transposed=True)
    assert stored.file_shapes((4, 12)) == {"q": (4, 4), "k": (4, 4), "v": (4, 4)}


def test_file_shapes_of_one_transposed_kernel():
    assert StoredVariable(("dense",), transposed=True).file_shapes((4, 6)) == {"dense": (6, 4)}


@pytest.mark.parametrize("transposed", [False, True])
def test_joined_columns_are_query_key_value(transposed):
    parts = np.random.default_rng(0).standard_normal((3, 4, 4))
    joined = StoredVariable(("q", "k", "v"), transposed).join(parts)
    for index, part in enumerate(parts):
        np.testing.assert_array_equal(joined[:, 4 * index : 4 * index + 4], part.T if transposed else part)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("names", [("q", "k", "v"), ("dense",)])
def test_splitting_undoes_joining(names, transposed):
    parts = dict(zip(names, np.random.default_rng(0).standard_normal((3, 4, 4)), strict=False))
    stored = StoredVariable(names, transposed)
    split = stored.split(stored.join(list(parts.values())))
    assert split.keys() == parts.keys()
    for name, part in parts.items():
        np.testing.assert_array_equal(split[name], part)


def test_a_single_tensor_is_not_copied():
    tensor = np.zeros((2, 3))
    assert np.shares_memory(StoredVariable(("dense",), transposed=True).join([tensor]), tensor)


def test_pieces_cover_exactly_the_expected_variables():
    variables = map_encoder(SIZES["num_hidden_layers"], str, kernels_transposed=True)
    assert list(variables) and set(variables) == set(expected_encoder_shapes(SIZES))
    names = [name for stored in variables.values() for name in stored.names]
    assert len(names) == len(set(names))


def test_only_kernels_are_transposed():
    variables = map_encoder(1, str, kernels_transposed=True)
    assert {path for path, stored in variables.items() if stored.transposed} == {
        path for path in variables if path.endswith("/kernel")
    }


def test_half_a_pooler_stays_wanted():
    variables = map_encoder(1, str, kernels_transposed=False)
    assert drop_absent_pooler(variables, ["pooler/dense/bias"]) == variables
    assert set(variables) - set(drop_absent_pooler(variables, [])) == {"encoder/pooler/kernel", "encoder/pooler/bias"}
