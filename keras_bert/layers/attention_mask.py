"""The mask of self-attention."""

from keras import ops

from keras_bert.typing import Tensor

BIDIRECTIONAL = "bidirectional"
LEFT_TO_RIGHT = "left_to_right"
RIGHT_TO_LEFT = "right_to_left"
ATTENTION_DIRECTIONS = (BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT)


def make_attention_mask(
    padding_mask: Tensor, direction: str = BIDIRECTIONAL, sequence_ids: Tensor | None = None
) -> Tensor:
    """Returns a bool tensor [batch, from, to], True where `to` may be attended to; `from` may be 1.

    BERT is bidirectional (paper, section 3); its ablation "LTR" (section 5.1) attends to the left. Padding is masked
    only as a key: the output at padding is not used. `sequence_ids` [batch, length] restrict attention to one of
    several sequences packed into a row.

    >>> make_attention_mask(np.array([[1, 1, 0]]), "left_to_right")[0].numpy().tolist()
    [[True, False, False], [True, True, False], [True, True, False]]
    """
    if direction not in ATTENTION_DIRECTIONS:
        raise ValueError(f"unknown attention direction {direction!r}; allowed are {ATTENTION_DIRECTIONS}")
    # Axes are added to numbers: LiteRT cannot add one to booleans.
    mask = ops.cast(ops.expand_dims(padding_mask, 1), "bool")  # [batch, 1, to]
    if direction != BIDIRECTIONAL:
        position = ops.arange(ops.shape(padding_mask)[1])
        distance = position[None, None, :] - position[None, :, None]  # [1, from, to], positive where the key is later
        mask = ops.logical_and(mask, distance <= 0 if direction == LEFT_TO_RIGHT else distance >= 0)
    if sequence_ids is not None:
        mask = ops.logical_and(mask, ops.equal(sequence_ids[:, :, None], sequence_ids[:, None, :]))
    return mask
