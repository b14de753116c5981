import numpy as np
import pytest

from keras_bert.layers.layer_norm import LayerNorm
from tests.tolerances import assert_close


def test_equals_its_definition():
    x = np.random.default_rng(0).normal(3.0, 2.0, [4, 6, 32]).astype("float32")
    layer = LayerNorm()
    layer.build(x.shape)
    gamma, beta = np.random.default_rng(1).normal(size=[2, 32])
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    exact = x.astype("float64")
    exact = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + 1e-12) * gamma + beta
    assert_close(layer(x), exact, num_terms=32)


@pytest.mark.parametrize("policy", ["bfloat16", "mixed_bfloat16"])
def test_low_precision_rounds_only_the_result(policy):
    x = np.random.default_rng(0).normal(100.0, 1.0, [8, 64]).astype("float32")
    exact = np.array(LayerNorm()(x))
    low = LayerNorm(dtype=policy)(x)
    assert low.dtype == "bfloat16"
    np.testing.assert_allclose(np.array(low, "float32"), exact, rtol=2**-8, atol=1e-3)  # half a unit of bfloat16
