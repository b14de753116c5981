"""One layer of the encoder: attention and a feed-forward network."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_bert.layers.dense import Dense
from keras_bert.layers.dropout import Dropout
from keras_bert.layers.layer_norm import LAYER_NORM_EPSILON, LayerNorm
from keras_bert.layers.seeds import derive_seed
from keras_bert.layers.self_attention import SelfAttention
from keras_bert.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class TransformerBlock(keras.layers.Layer):
    """Self-attention and a feed-forward network, each followed by dropout, residual and layer norm (modeling.py of
    google-research/bert).

    Inputs and outputs as for `SelfAttention`. There is no dropout after the activation.
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
        self.self_attention = SelfAttention(
            self.num_attention_heads,
            self.attention_probs_dropout_prob,
            self.initializer_range,
            seed=derive_seed(self.seed, "self_attention"),
            dtype=self.dtype_policy,
            name="self_attention",
        )
        self.self_attention_dropout = self._dropout("self_attention_dropout")
        self.self_attention_layer_norm = self._layer_norm("self_attention_layer_norm")
        self.intermediate = self._dense("intermediate", self.intermediate_size, self.hidden_act)
        self.output_projection = self._dense("output", hidden_size, "linear")
        self.output_dropout = self._dropout("output_dropout")
        self.output_layer_norm = self._layer_norm("output_layer_norm")

        self.self_attention.build(hidden_states_shape)
        self.self_attention_layer_norm.build(hidden_states_shape)
        self.intermediate.build(hidden_states_shape)
        self.output_projection.build((*hidden_states_shape[:-1], self.intermediate_size))
        self.output_layer_norm.build(hidden_states_shape)

    def call(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> Any:
        """Runs attention and the feed-forward network."""
        residual = hidden_states
        attended = self.self_attention(
            hidden_states, attention_mask, training=training, return_attention_scores=return_attention_scores
        )
        if return_attention_scores:
            attended, scores = attended
        attended = self.self_attention_dropout(attended, training=training)
        hidden_states = self.self_attention_layer_norm(residual + attended)

        residual = hidden_states
        hidden_states = self.intermediate(hidden_states, training=training)
        hidden_states = self.output_projection(hidden_states, training=training)
        hidden_states = self.output_dropout(hidden_states, training=training)
        hidden_states = self.output_layer_norm(residual + hidden_states)
        return (hidden_states, scores) if return_attention_scores else hidden_states

    def _dense(self, name: str, units: int, activation: str) -> Dense:
        seed = derive_seed(self.seed, name)
        return Dense(units, activation, self.initializer_range, seed, dtype=self.dtype_policy, name=name)

    def _dropout(self, name: str) -> Dropout:
        return Dropout(self.hidden_dropout_prob, derive_seed(self.seed, name), dtype=self.dtype_policy, name=name)

    def _layer_norm(self, name: str) -> LayerNorm:
        return LayerNorm(self.layer_norm_eps, dtype=self.dtype_policy, name=name)

    def compute_output_shape(
        self, hidden_states_shape: Sequence[Any], attention_mask_shape: Any = None
    ) -> Sequence[Any]:
        """Returns the shape of the hidden states."""
        return hidden_states_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "num_attention_heads": self.num_attention_heads,
            "intermediate_size": self.intermediate_size,
            "hidden_act": self.hidden_act,
            "hidden_dropout_prob": self.hidden_dropout_prob,
            "attention_probs_dropout_prob": self.attention_probs_dropout_prob,
            "initializer_range": self.initializer_range,
            "layer_norm_eps": self.layer_norm_eps,
            "seed": self.seed,
        }
