"""Logits of all wordpieces at the masked positions."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.base_layer import BaseLayer, create_sublayer
from keras_bert.layers.dense import Dense
from keras_bert.layers.layer_norm import LAYER_NORM_EPSILON, LayerNorm
from keras_bert.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class MaskedLMHead(BaseLayer):
    """A dense layer, a layer norm, and the product with the encoder's word embeddings.

    Source: paper, section 3.1; google-research/bert, run_pretraining.py, get_masked_lm_output.
    Takes hidden states [positions, hidden] and the encoder's `token_embeddings` [vocab, hidden], which are trained
    through both. Returns float32 logits [positions, vocab]; the bias per wordpiece belongs to this layer.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_act: str = "gelu",
        initializer_range: float = 0.02,
        layer_norm_eps: float = LAYER_NORM_EPSILON,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_act = hidden_act
        self.initializer_range = initializer_range
        self.layer_norm_eps = layer_norm_eps
        self.seed = seed

    def build(self, hidden_states_shape: Sequence[int], token_embeddings_shape: Any = None) -> None:
        """Creates the dense layer, the layer norm and `bias` [vocab]."""
        hidden_size = hidden_states_shape[-1]
        self.transform = create_sublayer(self, Dense, "transform", hidden_size, self.hidden_act, self.initializer_range)
        self.transform.build((None, hidden_size))
        self.layer_norm = LayerNorm(self.layer_norm_eps, dtype=self.dtype_policy, name="layer_norm")
        self.layer_norm.build((None, hidden_size))
        # Added in float32, like the logits.
        self.bias = self.add_weight(name="bias", shape=(self.vocab_size,), initializer="zeros", autocast=False)

    def call(self, hidden_states: Tensor, token_embeddings: Tensor, training: bool = False) -> Tensor:
        """Returns the logits of every wordpiece for each hidden state."""
        transformed = self.layer_norm(self.transform(hidden_states, training=training))
        table = ops.cast(token_embeddings, self.compute_dtype)
        logits = ops.matmul(transformed, ops.transpose(table))  # [positions, vocab]
        return ops.cast(logits, "float32") + ops.cast(self.bias, "float32")

    def compute_output_shape(self, input_shape: Sequence[int | None], *other_shapes: Any) -> tuple[int | None, ...]:
        """Returns [positions, vocab]."""
        return (*input_shape[:-1], self.vocab_size)
