import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.dense import Dense
from keras_bert.layers.pooler import Pooler

ROWS = np.random.default_rng(0).normal(size=[3, 5, 6]).astype("float32")
PARTS = [(True,), (True, False, True), (False, True), (True, True, True)]


def dense(units=12, layer_class=Dense, **arguments):
    layer = layer_class(units, seed=1, **arguments)
    layer.build((None, None, 6))
    return layer


def adapted(*arguments, scale=0.3, **options):
    """Returns a layer with an adapter that is not zero."""
    layer = dense(**{name: options.pop(name) for name in ("activation", "dtype", "layer_class") if name in options})
    layer.enable_lora(*arguments, **options)
    generator = np.random.default_rng(1)
    for variable in (layer.lora_kernel_a, layer.lora_kernel_b):
        variable.assign(generator.normal(size=variable.shape) * scale)
    return layer


def merged(layer, **arguments):
    other = dense(layer_class=type(layer), activation=layer.activation, **arguments)
    other.kernel.assign(layer.merged_kernel())
    return other


def test_equals_keras_own_dense_with_lora_outputs_and_gradients():
    ours, theirs = adapted(2, lora_alpha=5, activation="gelu"), keras.layers.Dense(12, "gelu")
    theirs.activation = lambda x: keras.ops.gelu(x, approximate=False)
    theirs.build(ROWS.shape)
    theirs.enable_lora(2, lora_alpha=5)
    theirs._kernel.assign(ours.kernel)
    theirs.lora_kernel_a.assign(ours.lora_kernel_a)
    theirs.lora_kernel_b.assign(ours.lora_kernel_b)
    results = []
    for layer in (ours, theirs):
        assert [weight.name for weight in layer.trainable_weights] == ["bias", "lora_kernel_a", "lora_kernel_b"]
        assert (layer.lora_enabled, layer.lora_rank, layer.lora_alpha) == (True, 2, 5)
        with tf.GradientTape() as tape:
            outputs = layer(ROWS, training=True)
            loss = tf.reduce_sum(outputs**2)
        results.append([outputs, *tape.gradient(loss, layer.trainable_weights)])
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("activation", ["linear", "gelu_new"])
def test_parts_have_adapters_of_their_own(parts, activation):
    layer = adapted(2, lora_parts=parts, activation=activation)
    width = 12 // len(parts)
    assert layer.lora_kernel_a.shape == (6, 2 * sum(parts))
    assert layer.lora_kernel_b.shape == (2, width * sum(parts))
    change = np.abs(layer.merged_kernel() - np.array(layer.kernel)).reshape(6, len(parts), width).max(axis=(0, 2))
    assert [bool(value) for value in change > 0] == list(parts)
    for training in (False, True):
        np.testing.assert_allclose(layer(ROWS, training=training), merged(layer)(ROWS, training=training), atol=1e-5)


def test_starts_with_unchanged_outputs_and_drops_only_the_adapters_input():
    plain, layer = dense(), dense()
    layer.enable_lora(2, lora_dropout=0.5)
    np.testing.assert_array_equal(layer(ROWS), plain(ROWS))
    layer.lora_kernel_b.assign(np.ones([2, 12]))
    assert np.abs(np.array(layer(ROWS, training=True)) - np.array(layer(ROWS))).max() > 0.1
    layer.lora_kernel_b.assign(np.zeros([2, 12]))
    np.testing.assert_array_equal(layer(ROWS, training=True), plain(ROWS))


def test_low_precision_keeps_adapters_in_float32():
    layer = adapted(2, dtype="mixed_bfloat16", activation="gelu")
    assert layer(ROWS).dtype == "bfloat16"
    assert layer.lora_kernel_a.dtype == layer.lora_kernel_b.dtype == "float32"
    np.testing.assert_allclose(np.array(layer(ROWS), "float32"), adapted(2, activation="gelu")(ROWS), atol=0.05)


@pytest.mark.parametrize("parts", PARTS[:2])
def test_a_saved_model_keeps_the_adapter(parts, tmp_path):
    layer = adapted(2, lora_alpha=3, lora_parts=parts)
    inputs = keras.Input((5, 6))
    model = keras.Model(inputs, layer(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(ROWS), model(ROWS))
    assert [weight.name for weight in loaded.trainable_weights] == ["bias", "lora_kernel_a", "lora_kernel_b"]


def test_weights_files_fit_layers_with_and_without_adapter(tmp_path):
    inputs = keras.Input((5, 6))
    plain, layer = dense(), adapted(2, lora_alpha=3, lora_parts=(True, False, True))
    models = [keras.Model(inputs, part(inputs)) for part in (plain, layer)]
    expected = models[1].predict(ROWS, verbose=0)
    models[1].save_weights(tmp_path / "adapted.weights.h5")
    models[0].load_weights(tmp_path / "adapted.weights.h5")  # the sum
    np.testing.assert_allclose(models[0](ROWS), expected, atol=1e-5)
    models[0].save_weights(tmp_path / "plain.weights.h5")
    models[1].load_weights(tmp_path / "plain.weights.h5")
    np.testing.assert_array_equal(models[1](ROWS), models[0](ROWS))
    assert np.array(layer.lora_kernel_a).any()  # so that it can be trained again
    assert not np.array(layer.lora_kernel_b).any()
    other = adapted(2, lora_alpha=4, lora_parts=(True, False, True))
    with pytest.raises(ValueError, match=r"the scale 2, that in the file 2 and 1.5"):
        keras.Model(inputs, other(inputs)).load_weights(tmp_path / "adapted.weights.h5")


def test_the_pooler_can_be_adapted():
    layer = adapted(2, layer_class=Pooler)
    np.testing.assert_allclose(layer(ROWS), merged(layer)(ROWS), atol=1e-6)
    rebuilt = Pooler.from_config(layer.get_config())
    rebuilt.build((None, None, 6))
    assert rebuilt.lora_kernel_a.shape == (6, 2)


def test_rejects_invalid_arguments():
    with pytest.raises(ValueError, match="build it before"):
        Dense(3).enable_lora(2)
    for rank in (0, -1, 2.0, True, None):
        with pytest.raises(ValueError, match="rank of LoRA must be an integer of at least 1"):
            dense().enable_lora(rank)
    for alpha in (0, -1, float("inf"), float("nan"), True, "2"):
        with pytest.raises(ValueError, match="lora_alpha must be a positive number"):
            dense().enable_lora(2, lora_alpha=alpha)
    for parts in ((False,), (), (True,) * 5):
        with pytest.raises(ValueError, match="lora_parts must select"):
            dense().enable_lora(2, lora_parts=parts)
    layer = adapted(2)
    with pytest.raises(ValueError, match="has an adapter of rank 2 already"):
        layer.enable_lora(3)
