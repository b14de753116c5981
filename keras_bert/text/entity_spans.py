"""The entities that predicted tags spell, in the graph."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from keras_bert.text.tags import PLAIN, detect_scheme


class EntitySpans(NamedTuple):
    """Entities of texts, in the order of the texts' words.

    Source: none in BERT; the rules are those of `keras_bert.text.tags.convert_tags`.

    Args:
        types: string `RaggedTensor` [texts, (entities)].
        first_words: int32 `RaggedTensor` [texts, (entities)], the number of an entity's first word in its text, from 0.
        last_words: int32 `RaggedTensor` [texts, (entities)], that of its last word.
        of_words: int32 `RaggedTensor` [texts, (words)], the number of each word's entity among those of all texts, -1
            where it is of none.

    Example:
        >>> spans = find_entities(tf.ragged.constant([[1, 2, 0, 1]]), ["O", "B-place", "I-place"])
        >>> spans.types.to_list(), spans.first_words.to_list(), spans.last_words.to_list()
        ([[b'place', b'place']], [[0, 3]], [[1, 3]])
    """

    types: tf.RaggedTensor
    first_words: tf.RaggedTensor
    last_words: tf.RaggedTensor
    of_words: tf.RaggedTensor


def spell_entities(labels: Sequence[str]) -> bool:
    """Whether labels are tags of entities, and not such as parts of speech.

    Source: none in BERT.

    Args:
        labels: list of str.

    Returns:
        bool.

    Example:
        >>> spell_entities(["O", "B-place", "I-place"]), spell_entities(["NOUN", "VERB"])
        (True, False)
    """
    return detect_scheme([[label] for label in labels]) != PLAIN


def find_entities(tag_ids: tf.RaggedTensor, labels: Sequence[str]) -> EntitySpans:
    """Finds the entities that tags spell, broken sequences included.

    Source: none in BERT; the rules are those of `keras_bert.text.tags.convert_tags`.

    Args:
        tag_ids: integer `RaggedTensor` [texts, (words)], numbers of labels.
        labels: list of str, tags of entities in any scheme.

    Returns:
        `EntitySpans`.

    Example: as for `EntitySpans`.
    """
    types = [label[1:].removeprefix("-") or "_" for label in labels]
    of_label = tf.constant([types.index(name) for name in types])  # labels of one type have one number
    may_go_on, may_be_gone_on = (tf.constant([label[0] in letters for label in labels]) for letters in ("IE", "BI"))
    ids, row = tag_ids.values, tag_ids.value_rowids()
    kind = tf.gather(of_label, ids)
    is_entity = tf.gather(tf.constant([label != "O" for label in labels]), ids)
    goes_on = tf.logical_and(tf.gather(may_go_on, ids[1:]), tf.gather(may_be_gone_on, ids[:-1]))
    goes_on = tf.logical_and(goes_on, tf.logical_and(tf.equal(kind[1:], kind[:-1]), tf.equal(row[1:], row[:-1])))
    goes_on = tf.pad(goes_on, [[1, 0]])[: tf.size(ids)]
    begins = tf.logical_and(is_entity, tf.logical_not(goes_on))

    number = tf.where(is_entity, tf.cumsum(tf.cast(begins, tf.int32)) - 1, -1)
    first = tf.where(begins)[:, 0]
    word = tf.ragged.range(tf.cast(tag_ids.row_lengths(), tf.int32)).values
    last_words = tf.math.unsorted_segment_max(word, number, tf.size(first))
    entity_row = tf.gather(row, first)

    def of_texts(values):
        return tf.RaggedTensor.from_value_rowids(values, entity_row, nrows=tag_ids.nrows())

    return EntitySpans(
        of_texts(tf.gather(tf.gather(tf.constant(types), ids), first)),
        of_texts(tf.gather(word, first)),
        of_texts(last_words),
        tag_ids.with_values(number),
    )
