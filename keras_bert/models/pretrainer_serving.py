"""What an exported pretrainer answers to: texts with [MASK] in them, and which words may stand there."""

import tensorflow as tf

from keras_bert.data.columns import TEXT_COLUMNS
from keras_bert.models.serving import text_signatures

# As the one of `keras_bert.models.serving`, with masks.
WARMUP_TEXTS = ("[MASK]", "a second [MASK] which is somewhat [MASK] than the first one was")


def serving_signatures(pretrainer, top):
    """The functions that an exported pretrainer offers, as `text_signatures` says.

    Args:
        pretrainer: a `BertPretrainer` with a preprocessor.
        top: int. How many words each mask gets.

    Returns:
        dict of signature name to `(function, {input name: tf.TensorSpec})`.
    """
    return text_signatures(pretrainer, TEXT_COLUMNS, lambda ids: fill_masks(pretrainer, ids, top))


def fill_masks(pretrainer, ids, top):
    """The likeliest wordpieces at each [MASK], in the graph.

    Args:
        pretrainer: a `BertPretrainer` with a preprocessor.
        ids: dict of int32 tensors [batch, length].
        top: int.

    Returns:
        dict: `words` string [batch, masks, top] and `probabilities` float32 [batch, masks, top], the likeliest first;
        `masks` int32 [batch], how many the text has. Texts with fewer masks than another of the batch have "" and 0
        for those that are missing.
    """
    tokenizer = pretrainer.preprocessor.tokenizer
    is_mask = (ids["token_ids"] == tokenizer.mask_id) & (ids["padding_mask"] != 0)
    places = tf.where(is_mask)  # [all masks, 2]
    positions = tf.RaggedTensor.from_value_rowids(
        tf.cast(places[:, 1], tf.int32), places[:, 0], tf.shape(is_mask, tf.int64)[0]
    )
    numbers = tf.cast(positions.row_lengths(), tf.int32)
    logits = pretrainer({**ids, "masked_positions": positions.to_tensor()}, training=False)["masked_logits"]
    probabilities, words = tf.math.top_k(tf.nn.softmax(logits), top)
    exists = tf.sequence_mask(numbers, tf.shape(words)[1])[:, :, None]
    return {
        "words": tf.where(exists, tf.gather(tf.constant(tokenizer.vocabulary), words), ""),
        "probabilities": tf.where(exists, probabilities, 0.0),
        "masks": numbers,
    }
