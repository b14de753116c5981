import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.layers.base_layer import BaseLayer


def layer_classes(parent=BaseLayer):
    for child in parent.__subclasses__():
        yield child
        yield from layer_classes(child)


def test_no_layer_quantizes():
    classes = list(layer_classes())
    assert {"Dense", "Embeddings", "LayerNorm"} <= {each.__name__ for each in classes}
    assert all(each.quantize is BaseLayer.quantize for each in classes)


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_quantize_raises_and_changes_nothing(mode):
    encoder = keras_bert.BertEncoder(6, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, seed=0)
    classifier = keras_bert.BertClassifier(encoder, labels=2, seed=0)
    extractor = keras_bert.BertFeatureExtractor(encoder)
    weights = [np.array(weight) for weight in classifier.weights]
    for model in (encoder, classifier, extractor, encoder.pooler):
        with pytest.raises(
            ValueError,
            match=rf"cannot be quantized \(mode='{mode}'\).*quantize=.*dtype=.*`filters`",
        ):
            model.quantize(mode)
    for weight, before in zip(classifier.weights, weights, strict=True):
        np.testing.assert_array_equal(weight, before)


def test_other_layers_of_a_model_are_quantized_with_filters():
    encoder = keras_bert.BertEncoder(6, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, seed=0)
    ids = keras.Input([None], dtype="int32")
    outputs = keras.layers.Dense(2, name="mine")(encoder({"token_ids": ids})["pooled_output"])
    model = keras.Model(ids, outputs)
    before = model(np.array([[2, 4, 3]]))
    with pytest.raises(ValueError, match="cannot be quantized"):
        model.quantize("int8")
    model.quantize("int8", filters="mine")
    assert model.get_layer("mine").kernel.dtype == "int8"
    np.testing.assert_allclose(model(np.array([[2, 4, 3]])), before, atol=0.05)
