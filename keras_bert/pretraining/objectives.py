"""Inputs and labels of the pre-training objectives: masked words, or a language model in either direction."""

import tensorflow as tf

MASKED, LEFT_TO_RIGHT, RIGHT_TO_LEFT = "mlm", "left_to_right", "right_to_left"
OBJECTIVES = (MASKED, LEFT_TO_RIGHT, RIGHT_TO_LEFT)

_LABEL_NAMES = ("masked_labels", "masked_weights", "next_sentence_labels", "next_sentence_weights")


def inputs_and_labels(
    instances: dict[str, tf.Tensor], objective: str = MASKED
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Splits a batch of `text_batches`, `shard_batches` or `pack_dataset` into inputs and labels of `BertPretrainer`.

    The objective "mlm" predicts masked words from both sides (arXiv 1810.04805, section 3.1); "left_to_right" and
    "right_to_left" predict every word from those before or after it, with nothing masked (section 5.1, LTR).
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
    if objective != MASKED:
        instances = _label_with_neighbors(instances, objective)
    labels = {name: instances[name] for name in _LABEL_NAMES if name in instances}
    return {name: values for name, values in instances.items() if name not in labels}, labels


def _label_with_neighbors(instances: dict[str, tf.Tensor], objective: str) -> dict[str, tf.Tensor]:
    """Labels each position with the next (or previous) token of the same sequence."""
    token_ids = _unmask(instances)
    sequences = instances.get("sequence_ids", instances["padding_mask"])  # 0 on padding
    before, after = slice(None, -1), slice(1, None)
    here, there = (before, after) if objective == LEFT_TO_RIGHT else (after, before)
    is_same_sequence = (sequences[:, here] == sequences[:, there]) & (sequences[:, there] != 0)
    positions = tf.range(tf.shape(token_ids)[1])[None, here]
    labels = token_ids[:, there]
    return {
        **instances,
        "token_ids": token_ids,
        "masked_positions": tf.broadcast_to(positions, tf.shape(labels)),
        "masked_labels": labels,
        "masked_weights": tf.cast(is_same_sequence, tf.float32),
    }


def _unmask(instances: dict[str, tf.Tensor]) -> tf.Tensor:
    """Returns the token ids before masking."""
    is_masked = instances["masked_weights"] > 0
    rows = tf.cast(tf.where(is_masked)[:, :1], tf.int32)
    positions = tf.boolean_mask(instances["masked_positions"], is_masked)[:, None]
    originals = tf.boolean_mask(instances["masked_labels"], is_masked)
    return tf.tensor_scatter_nd_update(instances["token_ids"], tf.concat([rows, positions], axis=1), originals)
