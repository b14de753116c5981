"""Which position may look at which: the mask that self-attention takes."""

from keras import ops

BIDIRECTIONAL = "bidirectional"
LEFT_TO_RIGHT = "left_to_right"
RIGHT_TO_LEFT = "right_to_left"
ATTENTION_DIRECTIONS = (BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT)


def make_attention_mask(padding_mask, direction=BIDIRECTIONAL, sequence_ids=None):
    """True where a token may be attended to.

    BERT looks both ways (paper, section 3); the paper's ablation "LTR" (section 5.1) looks left. Padding is masked as a
    key
    only: what a padding position itself computes is of no interest, and may look anywhere.

    Args:
        padding_mask: int or bool tensor [batch, length], nonzero where there is a token.
        direction: "bidirectional", "left_to_right" (a token sees itself and those before it) or "right_to_left".
        sequence_ids: int tensor [batch, length] or None. Which of several sequences packed into one row a token belongs
            to; attention stays inside one.

    Returns:
        bool tensor [batch, from, to]; `from` is 1 where all rows are alike (it broadcasts).

    Raises:
        ValueError: if the direction is not one of the three.

    Example:

    >>> make_attention_mask(np.array([[1, 1, 0]]), "left_to_right")[0].numpy().tolist()
    [[True, False, False], [True, True, False], [True, True, False]]
    """
    if direction not in ATTENTION_DIRECTIONS:
        raise ValueError(f"unknown attention direction {direction!r}; allowed are {ATTENTION_DIRECTIONS}")
    mask = ops.cast(padding_mask, "bool")[:, None, :]  # [batch, 1, to]
    if direction != BIDIRECTIONAL:
        position = ops.arange(ops.shape(padding_mask)[1])
        distance = position[None, :] - position[:, None]  # [from, to], positive where the key is later
        allowed = distance <= 0 if direction == LEFT_TO_RIGHT else distance >= 0
        mask = ops.logical_and(mask, allowed[None])
    if sequence_ids is not None:
        mask = ops.logical_and(mask, ops.equal(sequence_ids[:, :, None], sequence_ids[:, None, :]))
    return mask
