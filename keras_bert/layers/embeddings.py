"""The sum of word, segment and position embeddings."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.base_layer import BaseLayer, create_sublayer
from keras_bert.layers.dropout import Dropout
from keras_bert.layers.layer_norm import LAYER_NORM_EPSILON, LayerNorm
from keras_bert.layers.seeds import derive_seed
from keras_bert.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class Embeddings(BaseLayer):
    """Word, segment and position embeddings, summed, normalized, with dropout (paper, figure 2; modeling.py).

    Takes `token_ids` and `segment_ids`, int32 [batch, length], and `position_ids` or None for 0, 1, 2, ... Returns
    float [batch, length, hidden].
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        type_vocab_size: int = 2,
        max_position_embeddings: int = 512,
        hidden_dropout_prob: float = 0.1,
        initializer_range: float = 0.02,
        layer_norm_eps: float = LAYER_NORM_EPSILON,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.type_vocab_size = type_vocab_size
        self.max_position_embeddings = max_position_embeddings
        self.hidden_dropout_prob = hidden_dropout_prob
        self.initializer_range = initializer_range
        self.layer_norm_eps = layer_norm_eps
        self.seed = seed

    def build(self, token_ids_shape: Any = None, segment_ids_shape: Any = None, position_ids_shape: Any = None) -> None:
        """Creates the three tables, the layer norm and the dropout."""
        self.token_embeddings = self._table("token_embeddings", self.vocab_size)
        self.segment_embeddings = self._table("segment_embeddings", self.type_vocab_size)
        self.position_embeddings = self._table("position_embeddings", self.max_position_embeddings)
        self.layer_norm = LayerNorm(self.layer_norm_eps, dtype=self.dtype_policy, name="layer_norm")
        self.layer_norm.build((None, None, self.hidden_size))
        self.dropout = create_sublayer(self, Dropout, "dropout", self.hidden_dropout_prob)

    def call(
        self, token_ids: Tensor, segment_ids: Tensor, position_ids: Tensor | None = None, training: bool = False
    ) -> Tensor:
        """Sums the three embeddings of every token."""
        # Keras' `take` counts a negative id from the end of the table. Beyond the table it is an error in TensorFlow on
        # a CPU, and NaN in JAX.
        token_ids = ops.where(token_ids < 0, self.vocab_size, token_ids)
        embedded = ops.take(self.token_embeddings, token_ids, axis=0)  # [batch, length, hidden]
        # A product with one-hot rows, as in modeling.py: for so few rows it is faster than a lookup, mostly in the
        # backward pass.
        segments = ops.one_hot(segment_ids, self.type_vocab_size, dtype=embedded.dtype)
        embedded = embedded + ops.matmul(segments, self.segment_embeddings)
        if position_ids is None:
            embedded = embedded + self._first_positions(token_ids)
        else:
            embedded = embedded + ops.take(self.position_embeddings, position_ids, axis=0)
        return self.dropout(self.layer_norm(embedded), training=training)

    def _first_positions(self, token_ids: Tensor) -> Tensor:
        length = token_ids.shape[1]
        if length is not None and length > self.max_position_embeddings:
            raise ValueError(
                f"the input is {length} tokens long, but the model has positions for {self.max_position_embeddings} "
                "(max_position_embeddings); truncate the input or split it into windows"
            )
        return self.position_embeddings[None, : ops.shape(token_ids)[1]]  # [1, length, hidden]

    def _table(self, name: str, rows: int) -> keras.Variable:
        # No autocasting: casting the few rows that are looked up is far cheaper than casting the table.
        initializer = keras.initializers.TruncatedNormal(
            stddev=self.initializer_range, seed=derive_seed(self.seed, name)
        )
        return self.add_weight(name=name, shape=(rows, self.hidden_size), initializer=initializer, autocast=False)

    def compute_output_shape(self, token_ids_shape: Sequence[int | None], *other_shapes: Any) -> tuple[int | None, ...]:
        """Returns [batch, length, hidden]."""
        return (*token_ids_shape, self.hidden_size)
