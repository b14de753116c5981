"""One vector for each token, out of those of several layers."""

import keras
from keras import ops

EMBEDDINGS = "embeddings"
SECOND_TO_LAST, LAST = "second_to_last", "last"
WEIGHTED_LAST_FOUR, WEIGHTED_ALL = "weighted_sum_last_four", "weighted_sum_all"
CONCAT_LAST_FOUR = "concat_last_four"
LAYER_POOLINGS = (EMBEDDINGS, SECOND_TO_LAST, LAST, WEIGHTED_LAST_FOUR, CONCAT_LAST_FOUR, WEIGHTED_ALL)

_WEIGHTED = (WEIGHTED_LAST_FOUR, WEIGHTED_ALL)
_FEWEST_BLOCKS = {SECOND_TO_LAST: 2, WEIGHTED_LAST_FOUR: 4, CONCAT_LAST_FOUR: 4}


@keras.saving.register_keras_serializable(package="keras_bert")
class LayerPooling(keras.layers.Layer):
    """The hidden states of an encoder as features for a model of one's own, mixed as in the paper's comparison on named
    entities (paper, section 5.3 and table 7).

    The paper does not say how its sums are weighted; here they are ELMo's (arXiv 1802.05365, equation 1): the weights
    are a softmax over one learned number for each layer, times one learned scale. The numbers start at 0 and the scale
    at 1, which is the mean of the layers; nothing is random, so that there is no seed.

    Args:
        mix: str. One of `LAYER_POOLINGS`: "embeddings" (what enters the lowest block), "second_to_last", "last",
            "weighted_sum_last_four", "concat_last_four" (the last one's vector stands last), or
            "weighted_sum_all" (of every block; the embeddings are no layer in the paper's count of 12).

    Inputs:
        A list of float tensors [batch, length, hidden], embeddings first: `hidden_states` of a `BertEncoder`.

    Outputs:
        float tensor [batch, length, hidden], four times as wide for "concat_last_four".

    The weights are in float32, and so are the sums.

    Raises:
        ValueError: if there is no such mix; when it is built, if the encoder has too few blocks for it.

    Example:

    >>> hidden_states = [np.full([1, 2, 3], float(layer)) for layer in range(5)]  # of four blocks
    >>> np.array(LayerPooling("weighted_sum_all")(hidden_states)).tolist()
    [[[2.5, 2.5, 2.5], [2.5, 2.5, 2.5]]]
    >>> tuple(LayerPooling("concat_last_four")(hidden_states).shape)
    (1, 2, 12)
    """

    def __init__(self, mix, **kwargs):
        super().__init__(**kwargs)
        if mix not in LAYER_POOLINGS:
            raise ValueError(f"unknown mix {mix!r}; allowed are {list(LAYER_POOLINGS)}")
        self.mix = mix

    def build(self, input_shape):
        """Creates `layer_weights` [layers] and `scale` [] of a weighted sum; the other mixes have no variables."""
        blocks = len(input_shape) - 1
        fewest = _FEWEST_BLOCKS.get(self.mix, 1)
        if blocks < fewest:
            raise ValueError(
                f"the mix {self.mix!r} needs an encoder of at least {fewest} blocks; got {len(input_shape)} hidden "
                f"states, the embeddings' and those of {blocks}"
            )
        if self.mix in _WEIGHTED:
            number = len(self._chosen(input_shape))
            self.layer_weights = self.add_weight(
                name="layer_weights", shape=(number,), initializer="zeros", dtype="float32", autocast=False
            )
            self.scale = self.add_weight(name="scale", shape=(), initializer="ones", dtype="float32", autocast=False)

    def call(self, hidden_states):
        """Mixes the layers."""
        chosen = self._chosen(hidden_states)
        if self.mix not in _WEIGHTED:
            return chosen[0] if len(chosen) == 1 else ops.concatenate(chosen, axis=-1)
        weights = ops.unstack(self.scale * ops.softmax(self.layer_weights))
        terms = [weight * ops.cast(layer, "float32") for weight, layer in zip(weights, chosen, strict=True)]
        return ops.cast(sum(terms), self.compute_dtype)

    def _chosen(self, of_layers):
        """Of a list with an entry for each hidden state, those that the mix takes."""
        if self.mix == EMBEDDINGS:
            return of_layers[:1]
        if self.mix == WEIGHTED_ALL:
            return of_layers[1:]
        if self.mix in (WEIGHTED_LAST_FOUR, CONCAT_LAST_FOUR):
            return of_layers[-4:]
        return of_layers[-1:] if self.mix == LAST else of_layers[-2:-1]

    def compute_output_shape(self, input_shape):
        """The shape of one hidden state, or four times as wide."""
        *outer, hidden_size = input_shape[0]
        return (*outer, 4 * hidden_size if self.mix == CONCAT_LAST_FOUR else hidden_size)

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "mix": self.mix}
