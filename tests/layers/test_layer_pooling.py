"""Each pooling of the paper's table 7, by its definition in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.layer_pooling import LAYER_POOLINGS, LayerPooling

BLOCKS, BATCH, LENGTH, HIDDEN = 6, 2, 3, 4
STATES = [np.random.default_rng(i).normal(size=[BATCH, LENGTH, HIDDEN]).astype("float32") for i in range(BLOCKS + 1)]
WEIGHTED = [pooling for pooling in LAYER_POOLINGS if pooling.startswith("weighted_sum")]


def softmax(numbers):
    exponentials = np.exp(numbers)
    return exponentials / exponentials.sum()


def reference(pooling, layer_weights=None, scale=1.0):
    """The definition in float64."""
    chosen = {
        "embeddings": STATES[0],
        "second_to_last": STATES[BLOCKS - 1],
        "last": STATES[BLOCKS],
        "weighted_sum_last_four": [STATES[i] for i in (3, 4, 5, 6)],
        "concat_last_four": np.concatenate([STATES[i] for i in (3, 4, 5, 6)], axis=2),
        "weighted_sum_all": [STATES[i] for i in (1, 2, 3, 4, 5, 6)],
    }[pooling]
    if pooling not in WEIGHTED:
        return chosen
    return scale * np.einsum("k,kblh->blh", softmax(np.asarray(layer_weights, "float64")), chosen)


def random_layer(pooling, **arguments):
    """A layer whose weights are no longer those it starts with."""
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
    np.testing.assert_allclose(output, reference(pooling, *map(np.array, layer.weights)), rtol=1e-5, atol=1e-6)
    assert output.shape == layer.compute_output_shape([state.shape for state in STATES])


@pytest.mark.parametrize("pooling", LAYER_POOLINGS)
def test_only_weighted_sums_have_weights_and_they_start_as_means(pooling):
    layer = LayerPooling(pooling)
    output = np.array(layer(STATES))
    layers = {"weighted_sum_last_four": 4, "weighted_sum_all": BLOCKS}.get(pooling)
    assert layer.count_params() == (layers + 1 if layers else 0)
    if layers:
        np.testing.assert_allclose(output, np.mean(STATES[-layers:], axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pooling", LAYER_POOLINGS)
def test_bfloat16(pooling):
    layer = random_layer(pooling, dtype="mixed_bfloat16")
    output = layer([tf.cast(state, tf.bfloat16) for state in STATES])
    assert output.dtype == tf.bfloat16
    assert all(weight.dtype == "float32" for weight in layer.weights)
    expected = np.array(random_layer(pooling)(STATES))
    np.testing.assert_allclose(np.array(output, "float32"), expected, rtol=0.01, atol=0.02)


@pytest.mark.parametrize("pooling", WEIGHTED)
def test_gradients(pooling):
    layer, states = random_layer(pooling), [tf.constant(state) for state in STATES]
    with tf.GradientTape() as tape:
        tape.watch(states)
        loss = tf.reduce_sum(layer(states) ** 2)
    of_weights, of_states = tape.gradient(loss, [[weight.value for weight in layer.trainable_weights], states])
    assert len(of_weights) == 2
    assert all(np.abs(np.array(gradient)).max() > 1e-3 for gradient in of_weights)
    taken = 4 if pooling == "weighted_sum_last_four" else BLOCKS
    assert [gradient is not None for gradient in of_states] == [i > BLOCKS - taken for i in range(BLOCKS + 1)]


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
