"""Instances of pre-training as a model takes them: inputs and labels, of masked words or of a language model."""

import tensorflow as tf

MASKED, LEFT_TO_RIGHT, RIGHT_TO_LEFT = "mlm", "left_to_right", "right_to_left"
OBJECTIVES = (MASKED, LEFT_TO_RIGHT, RIGHT_TO_LEFT)

_LABEL_NAMES = ("masked_labels", "masked_weights", "next_sentence_labels", "next_sentence_weights")


def inputs_and_labels(instances, objective=MASKED):
    """Parts a batch of instances into what a model is given and what it is to predict.

    Args:
        instances: dict of tensors, as of `InstanceMaker.make` or, packed, of `packed`.
        objective: str. "mlm": the masked words, from both sides (arXiv 1810.04805, section 3.1). "left_to_right" or
            "right_to_left": every word from those before it, or after it, with nothing masked (section 5.1, LTR).

    Returns:
        A pair of dicts of tensors, the inputs and the labels of `BertPretrainer`.

    Raises:
        ValueError: if the objective is unknown.

    Example:

    >>> instances = {
    ...     "token_ids": tf.constant([[2, 4, 9, 3]]),
    ...     "padding_mask": tf.constant([[1, 1, 1, 1]]),
    ...     "segment_ids": tf.constant([[0, 0, 0, 0]]),
    ...     "masked_positions": tf.constant([[1]]),
    ...     "masked_labels": tf.constant([[8]]),
    ...     "masked_weights": tf.constant([[1.0]]),
    ...     "next_sentence_labels": tf.constant([0]),
    ... }
    >>> inputs, labels = inputs_and_labels(instances, "left_to_right")
    >>> inputs["token_ids"].numpy().tolist(), labels["masked_labels"].numpy().tolist()
    ([[2, 8, 9, 3]], [[8, 9, 3]])
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
    if objective != MASKED:
        instances = _neighbours_as_labels(instances, objective)
    labels = {name: instances[name] for name in _LABEL_NAMES if name in instances}
    return {name: values for name, values in instances.items() if name not in labels}, labels


def _neighbours_as_labels(instances, objective):
    """Each position has the label of the next one, or the one before, of the same sequence."""
    token_ids = _without_masks(instances)
    sequences = instances.get("sequence_ids", instances["padding_mask"])  # 0 on padding
    before, after = slice(None, -1), slice(1, None)
    here, there = (before, after) if objective == LEFT_TO_RIGHT else (after, before)
    belongs = (sequences[:, here] == sequences[:, there]) & (sequences[:, there] != 0)
    positions = tf.range(tf.shape(token_ids)[1])[None, here]
    labels = token_ids[:, there]
    return {
        **instances,
        "token_ids": token_ids,
        "masked_positions": tf.broadcast_to(positions, tf.shape(labels)),
        "masked_labels": labels,
        "masked_weights": tf.cast(belongs, tf.float32),
    }


def _without_masks(instances):
    """The tokens as they were before some were masked."""
    is_masked = instances["masked_weights"] > 0
    rows = tf.cast(tf.where(is_masked)[:, :1], tf.int32)
    positions = tf.boolean_mask(instances["masked_positions"], is_masked)[:, None]
    originals = tf.boolean_mask(instances["masked_labels"], is_masked)
    return tf.tensor_scatter_nd_update(instances["token_ids"], tf.concat([rows, positions], axis=1), originals)
