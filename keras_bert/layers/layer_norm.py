"""Layer normalization in float32."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.base_layer import BaseLayer
from keras_bert.typing import Tensor

LAYER_NORM_EPSILON = 1e-12  # tf.contrib's default, which google-research/bert uses in modeling.py


@keras.saving.register_keras_serializable(package="keras_bert")
class LayerNorm(BaseLayer):
    """Normalizes the last axis (arXiv 1607.06450) in float32, and returns the layer's compute dtype.

    Keras' default epsilon of 1e-3 would change every activation of a BERT.
    """

    def __init__(self, epsilon: float = LAYER_NORM_EPSILON, **kwargs: Any) -> None:
        # Without autocasting, the sum of residual and update is not rounded before it is normalized.
        super().__init__(autocast=False, **kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates `gamma` and `beta`, each [size]."""
        self.gamma = self.add_weight(name="gamma", shape=(input_shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(input_shape[-1],), initializer="zeros")

    def call(self, x: Tensor) -> Tensor:
        """Normalizes `x` over its last axis."""
        x = ops.cast(x, "float32")
        mean = ops.mean(x, axis=-1, keepdims=True)
        centered = x - mean
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        gain = ops.rsqrt(variance + self.epsilon) * ops.cast(self.gamma, "float32")
        return ops.cast(centered * gain + ops.cast(self.beta, "float32"), self.compute_dtype)
