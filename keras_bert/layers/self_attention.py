"""Multi-head self-attention with one fused kernel."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.base_layer import BaseLayer, create_sublayer
from keras_bert.layers.dense import Dense
from keras_bert.layers.dropout import Dropout
from keras_bert.typing import Tensor

# Added to the scores of masked keys (google-research/bert, modeling.py). It fits into float16, and gives a probability
# of exactly zero; a row without keys remains finite.
MASKED_SCORE = -10000.0


@keras.saving.register_keras_serializable(package="keras_bert")
class SelfAttention(BaseLayer):
    """Multi-head self-attention (arXiv 1706.03762, section 3.2; google-research/bert, modeling.py).

    Takes hidden states [batch, length, hidden] and a bool attention mask [batch, from, to], in which `from` may be 1,
    or those of texts without padding and their `PackedTexts`. Returns [batch, length, hidden]; with
    `return_attention_scores`, also the probabilities before dropout, float32 [batch, heads, from, to].

    Query, key and value are one product: the columns of `query_key_value/kernel` [hidden, 3 * hidden] are those of the
    query, the key and the value, each head by head.

    On JAX, `keras.ops.dot_product_attention` computes the context, with flash attention where Keras can use it
    (`keras.config.enable_flash_attention`), unless probabilities are returned or dropped out.
    """

    def __init__(
        self,
        num_attention_heads: int,
        attention_probs_dropout_prob: float = 0.1,
        initializer_range: float = 0.02,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_attention_heads = num_attention_heads
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.initializer_range = initializer_range
        self.seed = seed

    def build(self, hidden_states_shape: Sequence[Any], attention_mask_shape: Any = None) -> None:
        """Creates the fused projection, the dropout and the output projection."""
        hidden_size = hidden_states_shape[-1]
        if hidden_size % self.num_attention_heads:
            raise ValueError(
                "hidden_size must be a multiple of num_attention_heads, "
                f"got {hidden_size} and {self.num_attention_heads}"
            )
        self.head_size = hidden_size // self.num_attention_heads
        initial = {"initializer_range": self.initializer_range}
        self.query_key_value = create_sublayer(self, Dense, "query_key_value", 3 * hidden_size, **initial)
        self.dropout = create_sublayer(self, Dropout, "dropout", self.attention_probs_dropout_prob)
        self.output_projection = create_sublayer(self, Dense, "output", hidden_size, **initial)
        self.query_key_value.build(hidden_states_shape)
        self.output_projection.build(hidden_states_shape)

    def call(
        self,
        hidden_states: Tensor,
        attention_mask: Any,
        training: bool = False,
        return_attention_scores: bool = False,
        first_only: bool = False,
    ) -> Any:
        """Attends from every position, or for the output from the first one only, to those that the mask allows."""
        batch, length, hidden = ops.shape(hidden_states)
        projected = self.project(hidden_states, training)
        backend, has_dropout = keras.backend.backend(), training and self.dropout.rate > 0
        if backend == "tensorflow" and not return_attention_scores:
            context = self._attend_on_tensorflow(projected, attention_mask, training)
        elif backend == "jax" and not return_attention_scores and not has_dropout:
            context = self._attend_on_jax(projected, attention_mask)
        else:
            context, probabilities = self._attend(projected, attention_mask, training)
        context = ops.reshape(context[:, :1] if first_only else context, (-1, hidden))
        output = self.output_projection(context, training=training)
        output = ops.reshape(output, (batch, 1 if first_only else length, hidden))
        return (output, probabilities) if return_attention_scores else output

    def project(self, hidden_states: Tensor, training: bool = False) -> Tensor:
        """Returns query, key and value side by side, each head by head: [batch, length, 3 * hidden]."""
        batch, length, hidden = ops.shape(hidden_states)
        projected = self.query_key_value(ops.reshape(hidden_states, (-1, hidden)), training=training)
        return ops.reshape(projected, (batch, length, 3 * hidden))

    def _attend_on_tensorflow(self, projected: Tensor, attention_mask: Any, training: bool) -> Tensor:
        from keras_bert.layers.tensorflow.fast_attention import attend
        from keras_bert.layers.tensorflow.packed_texts import PackedTexts

        if isinstance(attention_mask, PackedTexts):
            groups = zip(attention_mask.split(projected), attention_mask.attention_masks, strict=True)
            return attention_mask.join([self._attend_on_tensorflow(*group, training) for group in groups])
        seen, unseen = (ops.cast(score, projected.dtype) for score in (0.0, MASKED_SCORE))
        masked_scores = ops.where(ops.cast(attention_mask, "bool"), seen, unseen)[:, None]
        rate = self.dropout.rate if training else 0.0
        seed = self.dropout.seed_generator.next() if rate else None
        return attend(projected, masked_scores, self.num_attention_heads, rate, seed)

    def _attend_on_jax(self, projected: Tensor, attention_mask: Tensor) -> Tensor:
        batch, length, width = ops.shape(projected)
        projected = ops.reshape(projected, (batch, length, 3, self.num_attention_heads, self.head_size))
        query, key, value = ops.unstack(projected, 3, axis=2)
        # Keras would use the first row's mask for all rows on a TPU, and cuDNN has no gradient for odd lengths.
        is_exact = length % 2 == 0 and not keras.distribution.list_devices()[0].startswith("tpu")
        context = ops.dot_product_attention(
            query,
            key,
            value,
            mask=ops.cast(attention_mask, "bool")[:, None],
            flash_attention=keras.config.is_flash_attention_enabled() if is_exact else False,
        )
        return ops.reshape(context, (batch, length, width // 3))

    def _attend(self, projected: Tensor, attention_mask: Tensor, training: bool) -> tuple[Tensor, Tensor]:
        """Returns the context and the probabilities before dropout."""
        batch, length, width = ops.shape(projected)
        projected = ops.reshape(projected, (batch, length, 3, self.num_attention_heads, self.head_size))
        projected = ops.transpose(projected, (2, 0, 3, 1, 4))  # [3, batch, heads, length, head size]
        query, key, value = ops.unstack(projected, 3)  # not by index, whose gradient writes three padded copies
        query = query * self.head_size**-0.5
        scores = ops.cast(ops.matmul(query, ops.swapaxes(key, -1, -2)), "float32")  # [batch, heads, from, to]
        scores = scores + (1.0 - ops.cast(attention_mask, "float32")[:, None]) * MASKED_SCORE
        probabilities = ops.softmax(scores, axis=-1)
        dropped = self.dropout(ops.cast(probabilities, self.compute_dtype), training=training)
        context = ops.matmul(dropped, value)  # [batch, heads, from, head size]
        context = ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (batch, length, width // 3))
        return context, probabilities
