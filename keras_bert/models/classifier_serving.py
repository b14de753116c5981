"""What an exported classifier answers to: its serving signatures."""

import re

import tensorflow as tf

from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS
from keras_bert.models.labels import MULTI_LABEL, REGRESSION
from keras_bert.models.serving import text_signatures

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
    """The functions that an exported classifier offers, as `text_signatures` says.

    Args:
        classifier: a `BertClassifier` with a preprocessor.
        pairs: bool. Whether it takes `text_a` and `text_b` or `text`.

    Returns:
        dict of signature name to `(function, {input name: tf.TensorSpec})`.
    """
    return text_signatures(
        classifier, text_names(pairs), lambda ids: _answers(classifier, classifier(ids, training=False))
    )


def text_names(pairs):
    """The names of the text inputs.

    Args:
        pairs: bool.

    Returns:
        tuple of str: `text_a` and `text_b` for pairs, else `text`.
    """
    return PAIR_COLUMNS if pairs else TEXT_COLUMNS


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
