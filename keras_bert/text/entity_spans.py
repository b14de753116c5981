"""Decoding of predicted tags to entities, in the graph, by the rules of `keras_bert.text.tags.convert_tags`."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from keras_bert.text.tags import PLAIN, detect_scheme


class EntitySpans(NamedTuple):
    """Entities of texts, in the order of their words, from `find_entities`."""

    types: tf.RaggedTensor  # string [texts, (entities)]
    first_words: tf.RaggedTensor  # int32 [texts, (entities)]: index of the entity's first word in its text
    last_words: tf.RaggedTensor  # int32 [texts, (entities)]: index of its last word
    entity_ids: tf.RaggedTensor  # int32 [texts, (words)]: index of each word's entity among those of all texts, or -1


def are_entity_tags(labels: Sequence[str]) -> bool:
    """Checks whether labels are tags of entities; others are plain tags such as parts of speech."""
    return detect_scheme([[label] for label in labels]) != PLAIN


def find_entities(tag_ids: tf.RaggedTensor, labels: Sequence[str]) -> EntitySpans:
    """Decodes tags `[texts, (words)]`, indices of entity tags of any scheme, also in invalid sequences."""
    types = [label[1:].removeprefix("-") or "_" for label in labels]
    id_of_type = {name: number for number, name in enumerate(types)}
    type_ids = tf.constant([id_of_type[name] for name in types])  # labels of one type have one id
    can_continue = tf.constant([label[0] in "IE" for label in labels])
    can_be_continued = tf.constant([label[0] in "BI" for label in labels])
    ids, row = tag_ids.values, tag_ids.value_rowids()
    type_id = tf.gather(type_ids, ids)
    is_entity = tf.gather(tf.constant([label != "O" for label in labels]), ids)
    continues = tf.logical_and(tf.gather(can_continue, ids[1:]), tf.gather(can_be_continued, ids[:-1]))
    is_same = tf.logical_and(tf.equal(type_id[1:], type_id[:-1]), tf.equal(row[1:], row[:-1]))
    continues = tf.pad(tf.logical_and(continues, is_same), [[1, 0]])[: tf.size(ids)]
    starts = tf.logical_and(is_entity, tf.logical_not(continues))

    entity_ids = tf.where(is_entity, tf.cumsum(tf.cast(starts, tf.int32)) - 1, -1)
    first = tf.where(starts)[:, 0]
    word = tf.ragged.range(tf.cast(tag_ids.row_lengths(), tf.int32)).values
    last_words = tf.math.unsorted_segment_max(word, entity_ids, tf.size(first))

    def by_text(values: tf.Tensor) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_value_rowids(values, tf.gather(row, first), nrows=tag_ids.nrows())

    return EntitySpans(
        by_text(tf.gather(tf.constant(types), tf.gather(ids, first))),
        by_text(tf.gather(word, first)),
        by_text(last_words),
        tag_ids.with_values(entity_ids),
    )
