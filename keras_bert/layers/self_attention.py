"""Multi-head self-attention with one fused kernel."""

import keras
from keras import ops

from keras_bert.layers.dense import Dense
from keras_bert.layers.dropout import Dropout
from keras_bert.layers.seeds import derive_seed

# Added to the scores of keys that may not be seen (google-research/bert, modeling.py). Small enough for float16, large
# enough that their probability is exactly zero; a row without any key stays finite.
MASKED_SCORE = -10000.0


@keras.saving.register_keras_serializable(package="keras_bert")
class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention (arXiv 1706.03762, section 3.2; google-research/bert, modeling.py).

    Query, key and value are one product: `query_key_value/kernel` is [hidden, 3 * hidden], its columns are the query's,
    then the key's, then the value's, each with the heads one after another; the bias is laid out likewise.

    Args:
        num_attention_heads: int. Must divide the hidden size.
        attention_probs_dropout_prob: float. Dropout on the attention probabilities.
        initializer_range: float. Standard deviation of the initial kernels.
        seed: int or None. Seed of initial kernels and dropout.

    Inputs:
        hidden_states: float tensor [batch, length, hidden].
        attention_mask: bool tensor [batch, from, to], True where a key may be seen; `from` may be 1.

    Outputs:
        float tensor [batch, length, hidden]; with `return_attention_scores`, a pair of it and the probabilities before
        dropout, float32 [batch, heads, from, to].

    Raises:
        ValueError: if the heads do not divide the hidden size.

    Example:

    >>> tuple(SelfAttention(2)(np.ones([1, 3, 8]), np.ones([1, 1, 3], bool)).shape)
    (1, 3, 8)
    """

    def __init__(
        self, num_attention_heads, attention_probs_dropout_prob=0.1, initializer_range=0.02, seed=None, **kwargs
    ):
        super().__init__(**kwargs)
        self.num_attention_heads = num_attention_heads
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.initializer_range = initializer_range
        self.seed = seed

    def build(self, hidden_states_shape, attention_mask_shape=None):
        """Creates the fused projection, the dropout and the output projection."""
        hidden_size = hidden_states_shape[-1]
        if hidden_size % self.num_attention_heads:
            raise ValueError(
                "hidden_size must be a multiple of num_attention_heads, "
                f"got {hidden_size} and {self.num_attention_heads}"
            )
        self.head_size = hidden_size // self.num_attention_heads
        self.query_key_value = Dense(
            3 * hidden_size,
            initializer_range=self.initializer_range,
            seed=derive_seed(self.seed, "query_key_value"),
            dtype=self.dtype_policy,
            name="query_key_value",
        )
        self.dropout = Dropout(
            self.attention_probs_dropout_prob,
            seed=derive_seed(self.seed, "dropout"),
            dtype=self.dtype_policy,
            name="dropout",
        )
        self.output_projection = Dense(
            hidden_size,
            initializer_range=self.initializer_range,
            seed=derive_seed(self.seed, "output"),
            dtype=self.dtype_policy,
            name="output",
        )
        self.query_key_value.build(hidden_states_shape)
        self.output_projection.build(hidden_states_shape)

    def call(self, hidden_states, attention_mask, training=False, return_attention_scores=False):
        """Lets every position gather what the mask lets it see."""
        projected = self.query_key_value(hidden_states, training=training)  # [batch, length, 3 * hidden]
        if keras.backend.backend() == "tensorflow" and not return_attention_scores:
            context = self._attend_on_tensorflow(projected, attention_mask, training)
        else:
            context, probabilities = self._attend(projected, attention_mask, training)
        output = self.output_projection(context, training=training)
        return (output, probabilities) if return_attention_scores else output

    def _attend_on_tensorflow(self, projected, attention_mask, training):
        from keras_bert.layers.tensorflow.fast_attention import attend

        seen, unseen = (ops.cast(score, projected.dtype) for score in (0.0, MASKED_SCORE))
        masked_scores = ops.where(ops.cast(attention_mask, "bool"), seen, unseen)[:, None]
        rate = self.dropout.rate if training else 0.0
        seed = self.dropout.seed_generator.next() if rate else None
        return attend(projected, masked_scores, self.num_attention_heads, rate, seed)

    def _attend(self, projected, attention_mask, training):
        """The context, and the probabilities before dropout."""
        batch, length, width = ops.shape(projected)
        projected = ops.reshape(projected, (batch, length, 3, self.num_attention_heads, self.head_size))
        projected = ops.transpose(projected, (2, 0, 3, 1, 4))  # [3, batch, heads, length, head size]
        query, key, value = ops.unstack(projected, 3)  # not by index: its gradient would write three padded copies
        query = query * self.head_size**-0.5
        scores = ops.cast(ops.matmul(query, ops.swapaxes(key, -1, -2)), "float32")  # [batch, heads, from, to]
        scores = scores + (1.0 - ops.cast(attention_mask, "float32")[:, None]) * MASKED_SCORE
        probabilities = ops.softmax(scores, axis=-1)
        dropped = self.dropout(ops.cast(probabilities, self.compute_dtype), training=training)
        context = ops.matmul(dropped, value)  # [batch, heads, from, head size]
        context = ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (batch, length, width // 3))
        return context, probabilities

    def compute_output_shape(self, hidden_states_shape, attention_mask_shape=None):
        """The input's shape."""
        return hidden_states_shape

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_attention_heads": self.num_attention_heads,
            "attention_probs_dropout_prob": self.attention_probs_dropout_prob,
            "initializer_range": self.initializer_range,
            "seed": self.seed,
        }
