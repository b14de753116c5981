"""Two encoders of one attention direction each."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_bert.layers.attention_mask import LEFT_TO_RIGHT, RIGHT_TO_LEFT
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.paper_encoders.composed_encoder import ComposedEncoder
from keras_bert.typing import Inputs, Tensor
from keras_bert.weights.encoder_kinds import TWO_DIRECTIONS, EncoderKind

# Arguments that may differ.
_OWN_ARGUMENTS = ("attention_direction", "name", "gradient_checkpointing", "seed", "trainable")


@keras.saving.register_keras_serializable(package="keras_bert")
class TwoDirectionEncoder(ComposedEncoder):
    """A left-to-right and a right-to-left encoder whose outputs are concatenated, as in ELMo (arXiv 1802.05365).

    Both are pre-trained separately (paper, section 5.1, and figure 3).

    Args:
        left_to_right: a `BertEncoder` with that attention direction.
        right_to_left: a `BertEncoder` with that attention direction and otherwise the same arguments.
        name, trainable: as for every Keras model.

    Inputs: the encoders' dict of ids.

    Outputs: a dict of
        sequence_output: float [batch, length, 2 * hidden].
        pooled_output: float [batch, 2 * hidden], if the encoders have poolers, from the last token left to right and
            the first token right to left, each of which sees the whole input.
        hidden_states: with `return_hidden_states=True`, a list of `num_hidden_layers + 1` tensors, embeddings first.

    Raises:
        ValueError: if one is not a `BertEncoder` or has another direction, or their arguments differ.

    Example:

    >>> left_to_right, right_to_left = (
    ...     keras_bert.BertEncoder(9, 8, num_hidden_layers=1, num_attention_heads=2, attention_direction=direction)
    ...     for direction in ("left_to_right", "right_to_left"))
    >>> outputs = TwoDirectionEncoder(left_to_right, right_to_left)({"token_ids": np.array([[2, 4, 3]])})
    >>> {name: tuple(output.shape) for name, output in outputs.items()}
    {'sequence_output': (1, 3, 16), 'pooled_output': (1, 16)}
    """

    PARTS = (LEFT_TO_RIGHT, RIGHT_TO_LEFT)

    def __init__(
        self, left_to_right: BertEncoder, right_to_left: BertEncoder, name: str | None = None, trainable: bool = True
    ) -> None:
        super().__init__({LEFT_TO_RIGHT: left_to_right, RIGHT_TO_LEFT: right_to_left}, name)
        for direction in self.PARTS:
            found = getattr(self, direction).attention_direction
            if found != direction:
                raise ValueError(
                    f"{direction} must be an encoder with attention_direction={direction!r}, got {found!r}"
                )
        _check_same_arguments(left_to_right.get_config(), right_to_left.get_config())
        self.hidden_size = 2 * left_to_right.hidden_size
        self.with_pooler = left_to_right.with_pooler
        self.built = True  # it has no variables but those of the two
        if not trainable:
            self.trainable = False

    def encoder_kind(self) -> EncoderKind:
        return EncoderKind(TWO_DIRECTIONS)

    def call(
        self, inputs: Inputs, training: bool = False, return_hidden_states: bool = False, pooled_only: bool = False
    ) -> dict[str, Tensor]:
        """Encodes a batch; see the class for inputs and outputs."""
        one, two = (
            encoder(inputs, training=training, return_hidden_states=return_hidden_states, pooled_only=pooled_only)
            for encoder in self.bert_encoders()
        )
        return keras.tree.map_structure(lambda left, right: ops.concatenate([left, right], axis=-1), one, two)


def _check_same_arguments(left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
    names = [name for name in left if name not in _OWN_ARGUMENTS and left[name] != right[name]]
    if names:
        raise ValueError(
            "the two encoders must have the same arguments except for their direction; these differ: "
            + ", ".join(f"{name} ({left[name]!r} and {right[name]!r})" for name in names)
        )
