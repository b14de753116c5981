"""What an exported token classifier answers to: texts in, words with tags and entities with places out."""

import tensorflow as tf

from keras_bert.data.columns import TEXT_COLUMNS
from keras_bert.models.serving import text_signatures
from keras_bert.text.entity_spans import find_entities, spell_entities
from keras_bert.text.words import split_text, split_words

_PLACES = ("start_bytes", "end_bytes", "start_characters", "end_characters")


def serving_signatures(model):
    """The functions that an exported token classifier offers.

    Args:
        model: a `BertTokenClassifier` with a preprocessor.

    Returns:
        dict of signature name to `(function, {input name: tf.TensorSpec})`, as `text_signatures` says, and `words`.
    """

    def from_ids(ids):
        logits = model(ids, training=False)
        tags = tf.gather(tf.constant(model.labels), tf.argmax(logits, axis=-1))
        return {"probabilities": tf.nn.softmax(logits), "tags": tags}

    def from_words(inputs):
        return tag_texts(model, inputs["words"], split_words)

    signatures = text_signatures(model, TEXT_COLUMNS, from_ids, lambda texts: tag_texts(model, texts["text"]))
    return {**signatures, "words": (from_words, {"words": tf.TensorSpec([None], tf.string)})}


def ids_of_texts(preprocessor, texts):
    """The ids of texts, in the graph.

    Args:
        preprocessor: a `BertWordPreprocessor`.
        texts: string tensor or list [texts].

    Returns:
        dict of int32 tensors [windows, length].
    """
    return preprocessor(split_text(texts)[0]).inputs


def tag_texts(model, texts, split=split_text):
    """Tags texts and finds their entities, in the graph.

    Args:
        model: a `BertTokenClassifier` with a preprocessor.
        texts: string tensor [batch].
        split: function of texts that gives their words and the bytes that these begin with, as `split_text` does.

    Returns:
        dict of dense tensors, as `BertTokenClassifier.export` describes them.
    """
    words, starts = split(texts)
    prepared = model.preprocessor(words)
    logits = model(prepared.inputs, training=False)
    of_words = tf.gather_nd(logits, tf.stack([prepared.windows, prepared.places], axis=1))  # [words, labels]
    numbers = tf.argmax(of_words, axis=1, output_type=tf.int32)
    scores = words.with_values(tf.reduce_max(tf.nn.softmax(of_words), axis=1))
    ends = starts + words.with_values(tf.strings.length(words.values))
    answers = {
        "words": words,
        "tags": words.with_values(tf.gather(tf.constant(model.labels), numbers)),
        "scores": scores,
        **_places(texts, starts, ends),
    }
    answers = {"word_count": tf.cast(words.row_lengths(), tf.int32), **_dense(answers)}
    if not spell_entities(model.labels):
        return answers
    return {**answers, **_entities(texts, words.with_values(numbers), model.labels, scores, starts, ends)}


def _entities(texts, numbers, labels, scores, starts, ends):
    spans = find_entities(numbers, labels)
    offset = tf.gather(tf.cast(numbers.row_starts(), tf.int32), spans.types.value_rowids())
    entity_starts = spans.types.with_values(tf.gather(starts.values, offset + spans.first_words.values))
    entity_ends = spans.types.with_values(tf.gather(ends.values, offset + spans.last_words.values))
    size = tf.size(spans.types.values)
    of_entity = tf.math.unsorted_segment_mean(scores.values, spans.of_words.values, size)
    cut = tf.strings.substr(
        tf.gather(texts, spans.types.value_rowids()), entity_starts.values, entity_ends.values - entity_starts.values
    )
    answers = {
        "entities": spans.types.with_values(cut),
        "entity_types": spans.types,
        "entity_scores": spans.types.with_values(of_entity),
        **{f"entity_{name}": values for name, values in _places(texts, entity_starts, entity_ends).items()},
    }
    return {"entity_count": tf.cast(spans.types.row_lengths(), tf.int32), **_dense(answers)}


def _places(texts, starts, ends):
    """Bytes, and the characters that they are."""
    whole = tf.gather(texts, starts.value_rowids())

    def characters(places):
        before = tf.strings.substr(whole, tf.zeros_like(places.values), places.values)
        return places.with_values(tf.strings.length(before, unit="UTF8_CHAR"))

    return dict(zip(_PLACES, (starts, ends, characters(starts), characters(ends)), strict=True))


def _dense(answers):
    return {name: values.to_tensor() for name, values in answers.items()}


def described_texts(answers):
    """The answers of `tag_texts`, text by text.

    Args:
        answers: dict of tensors.

    Returns:
        list of dicts, as `BertTokenClassifier.tag` describes them.
    """
    values = {name: tensor.numpy().tolist() for name, tensor in answers.items()}

    def described(row, kinds, count):
        columns = {key: values[name][row][:count] for key, name in kinds.items()}
        for place in range(count):
            item = {key: column[place] for key, column in columns.items()}
            yield {
                key: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
                for key, value in item.items()
            }

    places = {"start": "start_characters", "end": "end_characters"}
    of_words = {"text": "words", "tag": "tags", "score": "scores", **places}
    of_entities = {"text": "entities", "type": "entity_types", "score": "entity_scores"}
    of_entities |= {key: f"entity_{name}" for key, name in places.items()}
    texts = []
    for row, count in enumerate(values["word_count"]):
        texts.append({"words": list(described(row, of_words, count))})
        if "entity_count" in values:
            texts[-1]["entities"] = list(described(row, of_entities, values["entity_count"][row]))
    return texts
