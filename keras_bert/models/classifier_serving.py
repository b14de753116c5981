"""What an exported classifier answers to: its serving signatures."""

import re

import tensorflow as tf

from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS
from keras_bert.models.labels import MULTI_LABEL, REGRESSION

# What the server is warmed up with: a request of one text and one of several, so that both shapes have been run.
_WARMUP_TEXTS = ("warm up", "a second text, which is somewhat longer than the first one was")
_ALL_VALUES = "values"  # the output that holds every value of a regression


def output_names(labels, problem_type):
    """The name of each label's own output.

    Args:
        labels: list of str.
        problem_type: str. Scores of classifiers are `score_<label>`; values of a regression bear the label's name
            alone.

    Returns:
        list of str, distinct; what is not a letter, digit or underscore becomes an underscore, and a name that is
        taken already gets a number.

    Example:

    >>> output_names(["very good", "bad", "very-good"], "single_label_classification")
    ['score_very_good', 'score_bad', 'score_very_good_2']
    """
    prefix = "" if problem_type == REGRESSION else "score_"
    names = []
    for label in labels:
        name = wanted = prefix + re.sub(r"[^0-9A-Za-z_]", "_", label)
        number = 2
        while name in names or name == _ALL_VALUES:
            name, number = f"{wanted}_{number}", number + 1
        names.append(name)
    return names


def serving_signatures(classifier, pairs):
    """The functions that an exported classifier offers, with the inputs of each.

    Args:
        classifier: a `BertClassifier` with a preprocessor.
        pairs: bool. Whether it takes `text_a` and `text_b` or `text`.

    Returns:
        dict of signature name to `(function, {input name: tf.TensorSpec})`: `serving_default` takes strings [batch],
        `tokens` the ids [batch, length], `examples` serialized tf.Examples [batch] whose features bear the names of the
        text inputs.
    """
    text_names = PAIR_COLUMNS if pairs else TEXT_COLUMNS
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in text_names}

    def from_ids(ids):
        longest = classifier.encoder.max_position_embeddings
        message = f"the ids are longer than the {longest} positions of the model"
        with tf.control_dependencies([tf.debugging.assert_less_equal(tf.shape(ids["token_ids"])[1], longest, message)]):
            ids = {name: tf.identity(values) for name, values in ids.items()}
        return _answers(classifier, classifier(ids, training=False))

    def from_texts(texts):
        return _answers(classifier, classifier(classifier.preprocessor(texts), training=False))

    def from_examples(inputs):
        return from_texts(tf.io.parse_example(inputs["examples"], features))

    ids_spec = tf.TensorSpec([None, None], tf.int32)
    return {
        "serving_default": (from_texts, {name: tf.TensorSpec([None], tf.string) for name in text_names}),
        "tokens": (from_ids, {name: ids_spec for name in ("token_ids", "segment_ids", "padding_mask")}),
        "examples": (from_examples, {"examples": tf.TensorSpec([None], tf.string)}),
    }


def _answers(classifier, logits):
    """The named outputs of every signature, from logits [batch, labels]."""
    values = tf.cast(classifier.probabilities(logits), tf.float32)
    answers = dict(
        zip(output_names(classifier.labels, classifier.problem_type), tf.unstack(values, axis=1), strict=True)
    )
    if classifier.problem_type == REGRESSION:
        return {**answers, _ALL_VALUES: values}
    names = tf.constant(classifier.labels)
    # Read off the logits, as `predict_labels` does: probabilities near 0, 1/2 and 1 may be rounded to the same number.
    answers.update(probabilities=values, label=tf.gather(names, tf.argmax(logits, axis=1)))
    if classifier.problem_type == MULTI_LABEL:
        # One column a label, empty where it does not hold: an answer has as many rows as the request, but no ragged
        # columns.
        answers["labels"] = tf.where(logits >= 0, names[None], "")
    return answers


def warmup_requests(classifier, pairs):
    """Requests that run every signature once for one text and once for several.

    Args:
        classifier: a `BertClassifier` with a preprocessor.
        pairs: bool. Whether it takes `text_a` and `text_b` or `text`.

    Returns:
        list of `(signature name, {input name: array})`.
    """
    requests = []
    for texts in (_WARMUP_TEXTS[:1], _WARMUP_TEXTS):
        inputs = {name: list(texts) for name in (PAIR_COLUMNS if pairs else TEXT_COLUMNS)}
        ids = {name: values.numpy() for name, values in classifier.preprocessor(inputs).items()}
        ids.pop("window_text_ids", None)
        requests += [
            ("serving_default", inputs),
            ("tokens", ids),
            ("examples", {"examples": [_example(inputs, row) for row in range(len(texts))]}),
        ]
    return requests


def _example(inputs, row):
    features = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[texts[row].encode()]))
        for name, texts in inputs.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
