"""Scores of all wordpieces at the masked positions."""

import keras
from keras import ops

from keras_bert.layers.dense import Dense
from keras_bert.layers.layer_norm import LAYER_NORM_EPSILON, LayerNorm
from keras_bert.layers.seeds import derive_seed


@keras.saving.register_keras_serializable(package="keras_bert")
class MaskedLMHead(keras.layers.Layer):
    """A dense layer, a normalisation, and the product with the encoder's word table (paper, section 3.1;
    google-research/bert, run_pretraining.py, get_masked_lm_output).

    The table is the encoder's own variable, which so learns from both ends; a bias for each wordpiece is this layer's.

    Args:
        vocab_size: int.
        hidden_act: str. The activation of the dense layer, the encoder's.
        initializer_range: float. Standard deviation of the initial kernel.
        layer_norm_eps: float. Added to the variance.
        seed: int or None. Seed of the initial kernel.

    Inputs:
        hidden_states: float tensor [positions, hidden], those of the positions to be scored.
        token_embeddings: float tensor [vocab, hidden], the word table.

    Outputs:
        float32 logits [positions, vocab].

    Example:

    >>> head = MaskedLMHead(vocab_size=9)
    >>> tuple(head(np.ones([2, 4]), token_embeddings=np.ones([9, 4])).shape)
    (2, 9)
    """

    def __init__(
        self,
        vocab_size,
        hidden_act="gelu",
        initializer_range=0.02,
        layer_norm_eps=LAYER_NORM_EPSILON,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_act = hidden_act
        self.initializer_range = initializer_range
        self.layer_norm_eps = layer_norm_eps
        self.seed = seed

    def build(self, hidden_states_shape, token_embeddings_shape=None):
        """Creates the dense layer, the normalisation, and `bias` [vocab]."""
        hidden_size = hidden_states_shape[-1]
        self.transform = Dense(
            hidden_size,
            self.hidden_act,
            self.initializer_range,
            derive_seed(self.seed, "transform"),
            dtype=self.dtype_policy,
            name="transform",
        )
        self.transform.build((None, hidden_size))
        self.layer_norm = LayerNorm(self.layer_norm_eps, dtype=self.dtype_policy, name="layer_norm")
        self.layer_norm.build((None, hidden_size))
        # Added in float32: it is of the size of the logits, which are.
        self.bias = self.add_weight(name="bias", shape=(self.vocab_size,), initializer="zeros", autocast=False)

    def call(self, hidden_states, token_embeddings, training=False):
        """Logits of every wordpiece for each hidden state."""
        transformed = self.layer_norm(self.transform(hidden_states, training=training))
        table = ops.cast(token_embeddings, self.compute_dtype)
        logits = ops.matmul(transformed, ops.transpose(table))  # [positions, vocab]
        return ops.cast(logits, "float32") + ops.cast(self.bias, "float32")

    def compute_output_shape(self, hidden_states_shape, token_embeddings_shape=None):
        """[positions, vocab]."""
        return (*hidden_states_shape[:-1], self.vocab_size)

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "hidden_act": self.hidden_act,
            "initializer_range": self.initializer_range,
            "layer_norm_eps": self.layer_norm_eps,
            "seed": self.seed,
        }
