import numpy as np
import tensorflow as tf

from keras_bert.layers.masked_lm_head import MaskedLMHead
from tests.tolerances import assert_close

VOCAB, HIDDEN, POSITIONS = 11, 8, 5


def random_head(**arguments):
    """Returns a head with random weights, and random inputs."""
    generator = np.random.default_rng(0)
    head = MaskedLMHead(VOCAB, seed=1, **arguments)
    hidden = generator.normal(size=[POSITIONS, HIDDEN]).astype("float32")
    table = generator.normal(size=[VOCAB, HIDDEN]).astype("float32")
    head(hidden, token_embeddings=table)
    for weight in head.weights:
        weight.assign(generator.normal(size=weight.shape))
    return head, hidden, table


def reference(head, hidden, table):
    """The definition in float64."""
    dense = hidden @ np.asarray(head.transform.kernel, "float64") + np.asarray(head.transform.bias)
    active = np.maximum(dense, 0)
    centred = active - active.mean(axis=-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + head.layer_norm_eps)
    normal = normal * np.asarray(head.layer_norm.gamma) + np.asarray(head.layer_norm.beta)
    return normal @ table.T + np.asarray(head.bias)


def test_equals_its_definition():
    head, hidden, table = random_head(hidden_act="relu", layer_norm_eps=1e-3)
    logits = head(hidden, token_embeddings=table)
    assert_close(logits, reference(head, hidden, table), num_terms=2 * HIDDEN)


def test_bfloat16_head_returns_float32_logits():
    head, hidden, table = random_head(hidden_act="relu", dtype="mixed_bfloat16")
    head.bias.assign(np.arange(VOCAB) + 1000.123)
    logits = head(hidden, token_embeddings=np.zeros_like(table))
    assert logits.dtype == tf.float32
    np.testing.assert_array_equal(logits, np.tile(np.asarray(head.bias), [POSITIONS, 1]))
    found, expected = head(hidden, token_embeddings=table), reference(head, hidden, table)
    assert_close(found - head.bias, expected - np.asarray(head.bias), dtype="bfloat16")


def test_config_rebuilds_the_head():
    head, hidden, table = random_head(hidden_act="gelu_new", initializer_range=0.5, layer_norm_eps=1e-6)
    again = MaskedLMHead.from_config(head.get_config())
    assert again.get_config() == head.get_config()
    assert again(hidden, token_embeddings=table).shape == (POSITIONS, VOCAB)
    assert again.compute_output_shape((POSITIONS, HIDDEN)) == (POSITIONS, VOCAB)
