"""Layer normalisation in float32."""

import keras
from keras import ops

LAYER_NORM_EPSILON = 1e-12  # tf.contrib's default, which google-research/bert uses in modeling.py


@keras.saving.register_keras_serializable(package="keras_bert")
class LayerNorm(keras.layers.Layer):
    """Normalises the last axis (arXiv 1607.06450), always computing in float32.

    Args:
        epsilon: float. Added to the variance. Keras' default of 1e-3 would change every activation of a BERT.

    Inputs:
        float tensor [..., size].

    Outputs:
        float tensor [..., size] in the layer's compute dtype.

    Example:

    >>> np.array(LayerNorm()(np.array([[1.0, 3.0]]))).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(self, epsilon=LAYER_NORM_EPSILON, **kwargs):
        # Without autocasting the sum of residual and update arrives as it was computed.
        super().__init__(autocast=False, **kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        """Creates `gamma` and `beta`, each [size]."""
        self.gamma = self.add_weight(name="gamma", shape=(input_shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(input_shape[-1],), initializer="zeros")

    def call(self, x):
        """Normalises `x` over its last axis."""
        x = ops.cast(x, "float32")
        mean = ops.mean(x, axis=-1, keepdims=True)
        centred = x - mean
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        gain = ops.rsqrt(variance + self.epsilon) * ops.cast(self.gamma, "float32")
        return ops.cast(centred * gain + ops.cast(self.beta, "float32"), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        """The input's shape."""
        return input_shape

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "epsilon": self.epsilon}
