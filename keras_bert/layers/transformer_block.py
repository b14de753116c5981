"""One layer of the encoder: attention and a feed-forward network."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.base_layer import BaseLayer, create_sublayer
from keras_bert.layers.dense import Dense
from keras_bert.layers.dropout import Dropout
from keras_bert.layers.layer_norm import LAYER_NORM_EPSILON, LayerNorm
from keras_bert.layers.self_attention import SelfAttention
from keras_bert.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class TransformerBlock(BaseLayer):
    """Self-attention and a feed-forward network, each followed by dropout, residual and layer norm (modeling.py of
    google-research/bert).

    Inputs and outputs as for `SelfAttention`. There is no dropout after the activation. With `first_only`, what follows
    the attention is computed for the first position alone, and the output is [batch, 1, hidden].
    """

    def __init__(
        self,
        num_attention_heads: int,
        intermediate_size: int,
        hidden_act: str = "gelu_new",
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        initializer_range: float = 0.02,
        layer_norm_eps: float = LAYER_NORM_EPSILON,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.hidden_act = hidden_act
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.initializer_range = initializer_range
        self.layer_norm_eps = layer_norm_eps
        self.seed = seed

    def build(self, hidden_states_shape: Sequence[Any], attention_mask_shape: Any = None) -> None:
        """Creates the sublayers in forward order."""
        hidden_size = hidden_states_shape[-1]
        attention = (self.num_attention_heads, self.attention_probs_dropout_prob, self.initializer_range)
        self.self_attention = create_sublayer(self, SelfAttention, "self_attention", *attention)
        self.self_attention_dropout = create_sublayer(self, Dropout, "self_attention_dropout", self.hidden_dropout_prob)
        self.self_attention_layer_norm = self._layer_norm("self_attention_layer_norm")
        self.intermediate = self._dense("intermediate", self.intermediate_size, self.hidden_act)
        self.output_projection = self._dense("output", hidden_size, "linear")
        self.output_dropout = create_sublayer(self, Dropout, "output_dropout", self.hidden_dropout_prob)
        self.output_layer_norm = self._layer_norm("output_layer_norm")

        self.self_attention.build(hidden_states_shape)
        self.self_attention_layer_norm.build(hidden_states_shape)
        self.intermediate.build(hidden_states_shape)
        self.output_projection.build((*hidden_states_shape[:-1], self.intermediate_size))
        self.output_layer_norm.build(hidden_states_shape)

    def call(
        self,
        hidden_states: Tensor,
        attention_mask: Any,
        training: bool = False,
        return_attention_scores: bool = False,
        first_only: bool = False,
    ) -> Any:
        """Runs attention and the feed-forward network."""
        batch, length, hidden = ops.shape(hidden_states)
        # Rows [batch * from, hidden], reshaped once and not in each layer; TensorFlow removes pairs of reshapes.
        residual = ops.reshape(hidden_states[:, :1] if first_only else hidden_states, (-1, hidden))
        options = {"return_attention_scores": return_attention_scores, "first_only": first_only}
        attended = self.self_attention(hidden_states, attention_mask=attention_mask, training=training, **options)
        if return_attention_scores:
            attended, scores = attended
        attended = ops.reshape(attended, (-1, hidden))
        attended = self.self_attention_dropout(attended, training=training)
        residual = self.self_attention_layer_norm(residual + attended)

        rows = self.intermediate(residual, training=training)
        rows = self.output_projection(rows, training=training)
        rows = self.output_dropout(rows, training=training)
        rows = self.output_layer_norm(residual + rows)
        hidden_states = ops.reshape(rows, (batch, 1 if first_only else length, hidden))
        return (hidden_states, scores) if return_attention_scores else hidden_states

    def _dense(self, name: str, units: int, activation: str) -> Dense:
        return create_sublayer(self, Dense, name, units, activation, self.initializer_range)

    def _layer_norm(self, name: str) -> LayerNorm:
        return LayerNorm(self.layer_norm_eps, dtype=self.dtype_policy, name=name)
