"""Combines the hidden states of several layers into one vector per token."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.base_layer import BaseLayer
from keras_bert.typing import Tensor

EMBEDDINGS = "embeddings"
SECOND_TO_LAST, LAST = "second_to_last", "last"
WEIGHTED_LAST_FOUR, WEIGHTED_ALL = "weighted_sum_last_four", "weighted_sum_all"
CONCAT_LAST_FOUR = "concat_last_four"
LAYER_POOLINGS = (EMBEDDINGS, SECOND_TO_LAST, LAST, WEIGHTED_LAST_FOUR, CONCAT_LAST_FOUR, WEIGHTED_ALL)

_WEIGHTED = (WEIGHTED_LAST_FOUR, WEIGHTED_ALL)
_MIN_BLOCKS = {SECOND_TO_LAST: 2, WEIGHTED_LAST_FOUR: 4, CONCAT_LAST_FOUR: 4}


@keras.saving.register_keras_serializable(package="keras_bert")
class LayerPooling(BaseLayer):
    """The layer poolings that the paper compares on named entities (section 5.3 and table 7).

    Use it between an encoder and a model of your own. The paper does not say how its sums are weighted; here they are
    ELMo's (arXiv 1802.05365, equation 1): a softmax over one learned number per layer, times a learned scale. The
    numbers start at 0 and the scale at 1, which is the mean of the layers. Weights and sums are in float32.

    Args:
        pooling: one of `LAYER_POOLINGS`: "embeddings" (the input of the lowest block), "second_to_last", "last",
            "weighted_sum_last_four", "concat_last_four" (the last layer comes last), or "weighted_sum_all" (of all
            blocks; the embeddings are not one of the paper's 12 layers).

    Inputs:
        A list of float tensors [batch, length, hidden], embeddings first: `hidden_states` of a `BertEncoder`.

    Outputs:
        float tensor [batch, length, hidden], or [batch, length, 4 * hidden] for "concat_last_four".

    Raises:
        ValueError: if the pooling is unknown; when built, if the encoder has too few blocks.

    Example:

    >>> hidden_states = [np.full([1, 2, 3], float(layer)) for layer in range(5)]  # of four blocks
    >>> np.array(LayerPooling("weighted_sum_all")(hidden_states)).tolist()
    [[[2.5, 2.5, 2.5], [2.5, 2.5, 2.5]]]
    >>> tuple(LayerPooling("concat_last_four")(hidden_states).shape)
    (1, 2, 12)
    """

    def __init__(self, pooling: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if pooling not in LAYER_POOLINGS:
            raise ValueError(f"unknown layer pooling {pooling!r}; allowed are {list(LAYER_POOLINGS)}")
        self.pooling = pooling

    def build(self, input_shape: Sequence[Any]) -> None:
        """Creates `layer_weights` [layers] and `scale` [] of a weighted sum."""
        blocks = len(input_shape) - 1
        min_blocks = _MIN_BLOCKS.get(self.pooling, 1)
        if blocks < min_blocks:
            raise ValueError(
                f"the layer pooling {self.pooling!r} needs an encoder of at least {min_blocks} blocks; got "
                f"{len(input_shape)} hidden states, those of the embeddings and of {blocks} blocks"
            )
        if self.pooling in _WEIGHTED:
            shape = (len(self._select(input_shape)),)
            self.layer_weights = self.add_weight(
                name="layer_weights", shape=shape, initializer="zeros", dtype="float32", autocast=False
            )
            self.scale = self.add_weight(name="scale", shape=(), initializer="ones", dtype="float32", autocast=False)

    def call(self, hidden_states: Sequence[Tensor]) -> Tensor:
        """Combines the layers."""
        selected = self._select(hidden_states)
        if self.pooling not in _WEIGHTED:
            return selected[0] if len(selected) == 1 else ops.concatenate(selected, axis=-1)
        weights = ops.unstack(self.scale * ops.softmax(self.layer_weights))
        terms = [weight * ops.cast(layer, "float32") for weight, layer in zip(weights, selected, strict=True)]
        return ops.cast(sum(terms), self.compute_dtype)

    def _select(self, layers: Sequence[Any]) -> Sequence[Any]:
        """Selects the layers that are pooled, from a list with one entry per hidden state."""
        if self.pooling == EMBEDDINGS:
            return layers[:1]
        if self.pooling == WEIGHTED_ALL:
            return layers[1:]
        if self.pooling in (WEIGHTED_LAST_FOUR, CONCAT_LAST_FOUR):
            return layers[-4:]
        return layers[-1:] if self.pooling == LAST else layers[-2:-1]

    def compute_output_shape(self, input_shape: Sequence[Any]) -> tuple[int | None, ...]:
        """Returns the shape of one hidden state, or four times as wide."""
        *outer, hidden_size = input_shape[0]
        return (*outer, 4 * hidden_size if self.pooling == CONCAT_LAST_FOUR else hidden_size)
