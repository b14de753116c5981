"""What an exported model of multiple choice answers to: prompts and choices in, the best choice out."""

import numpy as np
import tensorflow as tf

from keras_bert.models.serving import text_signatures

TEXT_NAMES = ("prompt", "choices")
WARMUP_QUESTIONS = (
    {"prompt": "Warm", "choices": ["up.", "down."]},
    {
        "prompt": "A second prompt, which is somewhat longer,",
        "choices": ["is chosen for.", "has a choice that is long."],
    },
)
_NEVER = -1e9  # in the place of the logit of what is no choice


def serving_signatures(model):
    """The functions that an exported model of multiple choice offers.

    Args:
        model: a `BertMultipleChoice` with a preprocessor.

    Returns:
        dict of signature name to `(function, {input name: tf.TensorSpec})`, as `text_signatures` says.
    """

    def from_ids(ids):
        return _answers(model({**ids, "token_ids": _checked(ids["token_ids"])}, training=False))

    def from_texts(texts):
        prompts, choices = texts["prompt"], _checked(texts["choices"])
        logits = model(ids_of_choices(model.preprocessor, prompts, choices), training=False)
        is_empty = tf.equal(choices, "")
        is_none = tf.logical_and(is_empty, tf.logical_not(tf.reduce_all(is_empty, axis=1, keepdims=True)))
        answers = _answers(tf.where(is_none, _NEVER, logits))
        return {**answers, "text": tf.gather(choices, answers["choice"], batch_dims=1)}

    return text_signatures(model, TEXT_NAMES, from_ids, from_texts, several=("choices",))


def ids_of_choices(preprocessor, prompts, choices):
    """The ids of prompts with each of their choices, in the graph.

    Args:
        preprocessor: a `BertPreprocessor`.
        prompts: string tensor or list [batch].
        choices: string tensor or list [batch, choices].

    Returns:
        dict of int32 tensors [batch, choices, length].
    """
    choices = tf.convert_to_tensor(choices, tf.string)
    number = tf.shape(choices)[1]
    pairs = {"text_a": tf.repeat(tf.convert_to_tensor(prompts, tf.string), number), "text_b": tf.reshape(choices, [-1])}
    ids = preprocessor(pairs)
    length = tf.shape(ids["token_ids"])[1]  # a request may be empty, so that no size can be left to be inferred
    shape = tf.concat([tf.shape(choices), [length]], axis=0)
    return {name: tf.reshape(values, shape) for name, values in ids.items()}


def _checked(choices):
    """The choices [questions, choices, ...] as they are; an error if there are questions, and none of them has any."""
    questions, number = tf.unstack(tf.shape(choices)[:2])
    message = "each question needs a choice, and there is none; the shape is"
    with tf.control_dependencies([tf.debugging.Assert((questions == 0) | (number > 0), [message, tf.shape(choices)])]):
        return tf.identity(choices)


def _answers(logits):
    # With one choice more, that is never the best: serialized examples of no questions have no choices, and argmax of
    # nothing is an error.
    best = tf.argmax(tf.pad(logits, [[0, 0], [0, 1]], constant_values=-np.inf), axis=1, output_type=tf.int32)
    return {"choice": best, "probabilities": tf.nn.softmax(logits)}
