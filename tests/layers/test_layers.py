"""Shapes, configs, low precision and initial weights of every layer."""

import keras
import numpy as np
import pytest

from keras_bert.layers.dense import Dense, get_activation
from keras_bert.layers.embeddings import Embeddings
from keras_bert.layers.layer_norm import LayerNorm
from keras_bert.layers.pooler import Pooler
from keras_bert.layers.seeds import derive_seed
from keras_bert.layers.self_attention import SelfAttention
from keras_bert.layers.transformer_block import TransformerBlock
from tests.tolerances import assert_close

HIDDEN = np.random.default_rng(0).normal(size=[2, 5, 8]).astype("float32")
MASK = np.ones([2, 1, 5], bool)
IDS = np.array([[1, 2, 3, 0, 0], [4, 4, 4, 4, 4]], "int32")

CASES = [
    (Dense, {"units": 3, "activation": "gelu", "seed": 1}, (HIDDEN,), (2, 5, 3)),
    (LayerNorm, {"epsilon": 1e-6}, (HIDDEN,), (2, 5, 8)),
    (Pooler, {"units": 8, "seed": 1}, (HIDDEN,), (2, 8)),
    (Embeddings, {"vocab_size": 7, "hidden_size": 8, "seed": 1}, (IDS, IDS % 2), (2, 5, 8)),
    (SelfAttention, {"num_attention_heads": 2, "seed": 1}, (HIDDEN, MASK), (2, 5, 8)),
    (TransformerBlock, {"num_attention_heads": 2, "intermediate_size": 16, "seed": 1}, (HIDDEN, MASK), (2, 5, 8)),
]


@pytest.mark.parametrize("layer_class, arguments, inputs, shape", CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_shape_is_inferred_and_config_rebuilds_the_layer(layer_class, arguments, inputs, shape):
    layer = layer_class(**arguments)
    output = np.array(layer(*inputs))
    assert output.shape == shape
    assert layer.compute_output_shape(*(part.shape for part in inputs)) == shape
    rebuilt = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    # The same seed starts the copy with the same weights.
    np.testing.assert_array_equal(rebuilt(*inputs), output)


@pytest.mark.parametrize("layer_class, arguments, inputs, shape", CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_bfloat16_is_close_to_float32(layer_class, arguments, inputs, shape):
    exact = np.array(layer_class(**arguments)(*inputs))
    low = layer_class(**arguments, dtype="mixed_bfloat16")(*inputs)
    assert low.dtype == "bfloat16"
    assert_close(low, exact, dtype="bfloat16")


def test_initial_weights_differ():
    block = TransformerBlock(num_attention_heads=2, intermediate_size=8, seed=1)
    block(HIDDEN, MASK)
    kernels = [np.array(w) for w in block.weights if w.path.endswith("kernel")]
    corners = {float(kernel[0, 0]) for kernel in kernels}
    assert len(corners) == len(kernels) == 4


def test_kernels_start_from_a_truncated_normal():
    dense = Dense(1000, initializer_range=0.02, seed=1)
    dense.build((None, 1000))
    kernel = np.array(dense.kernel)
    assert np.abs(kernel).max() <= 0.04
    # Truncation at two standard deviations reduces 0.02 to 0.0176.
    assert kernel.std() == pytest.approx(0.0176, rel=0.01)
    assert not np.array(dense.bias).any()


def test_attention_scores_are_masked_probabilities_and_do_not_change_outputs():
    mask = np.tril(np.ones([5, 5], bool))[None]
    layer = SelfAttention(2, attention_probs_dropout_prob=0.0, seed=1)
    for training in (False, True):
        output, scores = layer(HIDDEN, mask, training=training, return_attention_scores=True)
        assert_close(layer(HIDDEN, mask, training=training), output, num_terms=24)
        assert_close(np.sum(scores, axis=-1), 1.0, num_terms=5)
        assert not np.array(scores)[:, :, ~mask[0]].any()


def test_a_row_without_keys_is_finite():
    assert np.isfinite(SelfAttention(2, seed=1)(HIDDEN, np.zeros([2, 1, 5], bool))).all()


def test_position_ids_are_used():
    layer = Embeddings(7, 8, seed=1)
    by_default = np.array(layer(IDS, IDS * 0))
    in_order = np.array(layer(IDS, IDS * 0, np.tile(np.arange(5), (2, 1))))
    backwards = np.array(layer(IDS, IDS * 0, np.tile(np.arange(5)[::-1], (2, 1))))
    np.testing.assert_array_equal(by_default, in_order)
    assert np.abs(by_default - backwards).max() > 0.1


def test_rejects_invalid_sizes():
    with pytest.raises(ValueError, match="multiple of num_attention_heads, got 8 and 3"):
        SelfAttention(3)(HIDDEN, MASK)
    with pytest.raises(ValueError, match="5 tokens long, but the model has positions for 4"):
        Embeddings(7, 8, max_position_embeddings=4)(IDS, IDS)


def test_gelu_forms_differ_and_unknown_activations_are_rejected():
    x = np.linspace(-3, 3, 13).astype("float32")
    assert 3e-4 < np.abs(get_activation("gelu")(x) - get_activation("gelu_new")(x)).max() < 5e-4
    assert_close(get_activation("gelu_new")(x), 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
    with pytest.raises(ValueError, match="'swish'; allowed are"):
        get_activation("swish")


def test_seeds_differ_by_name_and_repeat():
    assert derive_seed(1, "a") == derive_seed(1, "a")
    assert len({derive_seed(1, "a"), derive_seed(1, "b"), derive_seed(2, "a")}) == 3
