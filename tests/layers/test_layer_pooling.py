import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.layer_pooling import LAYER_POOLINGS, LayerPooling
from tests.tolerances import assert_close

BLOCKS, BATCH, LENGTH, HIDDEN = 6, 2, 3, 4
STATES = [np.random.default_rng(i).normal(size=[BATCH, LENGTH, HIDDEN]).astype("float32") for i in range(BLOCKS + 1)]
NUM_LAYERS = {"weighted_sum_last_four": 4, "weighted_sum_all": BLOCKS}
WEIGHTED = [pooling for pooling in LAYER_POOLINGS if pooling.startswith("weighted_sum")]


def reference(pooling, layer_weights=None, scale=1.0):
    """The definition in float64."""
    if pooling in WEIGHTED:
        exponentials = np.exp(np.asarray(layer_weights, "float64"))
        chosen = STATES[-NUM_LAYERS[pooling] :]
        return scale * np.einsum("k,kblh->blh", exponentials / exponentials.sum(), chosen)
    return {
        "embeddings": STATES[0],
        "second_to_last": STATES[BLOCKS - 1],
        "last": STATES[BLOCKS],
        "concat_last_four": np.concatenate(STATES[-4:], axis=2),
    }[pooling]


def random_layer(pooling, **arguments):
    """Returns a layer whose weights differ from the initial ones."""
    layer = LayerPooling(pooling, **arguments)
    layer(STATES)
    generator = np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(generator.normal(size=weight.shape))
    return layer


@pytest.mark.parametrize("pooling", LAYER_POOLINGS)
def test_equals_its_definition(pooling):
    layer = random_layer(pooling)
    output = np.array(layer(STATES))
    assert_close(output, reference(pooling, *map(np.array, layer.weights)), num_terms=BLOCKS)
    assert output.shape == layer.compute_output_shape([state.shape for state in STATES])
    assert layer.count_params() == (NUM_LAYERS[pooling] + 1 if pooling in WEIGHTED else 0)


@pytest.mark.parametrize("pooling", WEIGHTED)
def test_weighted_sums_start_as_means(pooling):
    expected = np.mean(STATES[-NUM_LAYERS[pooling] :], axis=0)
    assert_close(LayerPooling(pooling)(STATES), expected, num_terms=BLOCKS)


@pytest.mark.parametrize("pooling", LAYER_POOLINGS)
def test_bfloat16_is_close_to_float32(pooling):
    layer = random_layer(pooling, dtype="mixed_bfloat16")
    output = layer([tf.cast(state, tf.bfloat16) for state in STATES])
    assert output.dtype == tf.bfloat16
    assert all(weight.dtype == "float32" for weight in layer.weights)
    assert_close(output, random_layer(pooling)(STATES), dtype="bfloat16")


@pytest.mark.parametrize("pooling", WEIGHTED)
def test_gradients_reach_the_weights_and_the_pooled_layers(pooling):
    layer, states = random_layer(pooling), [tf.constant(state) for state in STATES]
    with tf.GradientTape() as tape:
        tape.watch(states)
        loss = tf.reduce_sum(layer(states) ** 2)
    d_weights, d_states = tape.gradient(loss, [[weight.value for weight in layer.trainable_weights], states])
    assert len(d_weights) == 2
    assert all(np.abs(np.array(gradient)).max() > 1e-3 for gradient in d_weights)
    num_layers = NUM_LAYERS[pooling]
    assert [gradient is not None for gradient in d_states] == [i > BLOCKS - num_layers for i in range(BLOCKS + 1)]


@pytest.mark.parametrize("pooling", ["concat_last_four", "weighted_sum_all"])
def test_saves_and_loads_as_keras_file(pooling, tmp_path):
    inputs = [keras.Input([None, HIDDEN]) for _ in STATES]
    model = keras.Model(inputs, random_layer(pooling)(inputs))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.layers[-1].pooling == pooling
    np.testing.assert_array_equal(again(STATES), model(STATES))


def test_rejects_invalid_arguments():
    with pytest.raises(ValueError, match=r"unknown layer pooling 'sum_all'; allowed are \['embeddings'"):
        LayerPooling("sum_all")
    with pytest.raises(ValueError, match=r"'concat_last_four' needs .* at least 4 blocks; got 4 hidden .* of 3"):
        LayerPooling("concat_last_four")(STATES[:4])
    with pytest.raises(ValueError, match="'second_to_last' needs an encoder of at least 2 blocks"):
        LayerPooling("second_to_last")(STATES[:2])
