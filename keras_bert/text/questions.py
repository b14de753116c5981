"""Questions and the contexts that answer them, as windows that fit the model."""

from typing import NamedTuple

import tensorflow as tf

from keras_bert.text.pack import ADDED_TO_TWO_SEGMENTS
from keras_bert.text.windows import first_tokens_of_windows, has_max_context, split_into_windows


class QuestionWindows(NamedTuple):
    """Questions, each with a window of its context.

    Source: the document spans of `convert_examples_to_features` in google-research/bert `run_squad.py`.

    Args:
        questions: integer `RaggedTensor` [windows, (tokens)], the question that each window is read for, trimmed.
        contexts: integer `RaggedTensor` [windows, (tokens)], the window.
        rows: int32 tensor [windows], ascending: the question and context that a window is of.
        first_tokens: int32 tensor [windows], the number of a window's first token in its context.
        is_max_context: bool `RaggedTensor` [windows, (tokens)], whether no other window of the context has more around
            this token. That is so in exactly one window for each token.

    Example:
        >>> windows = split_questions(tf.ragged.constant([[7]]), tf.ragged.constant([[1, 2, 3]]), 6, 1, 1)
        >>> windows.contexts.to_list(), windows.first_tokens.numpy().tolist()
        ([[1, 2], [2, 3]], [0, 1])
    """

    questions: tf.RaggedTensor
    contexts: tf.RaggedTensor
    rows: tf.Tensor
    first_tokens: tf.Tensor
    is_max_context: tf.RaggedTensor


def split_questions(
    questions: tf.RaggedTensor,
    contexts: tf.RaggedTensor,
    sequence_length: int,
    stride: int,
    max_query_length: int,
) -> QuestionWindows:
    """Cuts contexts into overlapping windows, so that each fits into a row beside its question.

    Source: `convert_examples_to_features` in google-research/bert `run_squad.py`. Differs from BERT: an empty context
    is one empty window, where the original has none and then no answer to the question.

    Args:
        questions: ragged integer ids [rows, (tokens)]. What is longer than `max_query_length` is cut off at the end.
        contexts: ragged integer ids [rows, (tokens)].
        sequence_length: int, most ids of question, window and the three special tokens; at least `max_query_length`
            + 4.
        stride: int, tokens from one window's beginning to the next one's, or a whole window where that is less.
        max_query_length: int, most tokens of a question.

    Returns:
        `QuestionWindows`.

    Example:
        >>> windows = split_questions(tf.ragged.constant([[7, 8]]), tf.ragged.constant([[1, 2, 3, 4]]), 8, 2, 2)
        >>> windows.is_max_context.to_list()
        [[True, True, True], [False, True]]
    """
    questions = questions[:, :max_query_length]
    room = sequence_length - ADDED_TO_TWO_SEGMENTS - tf.cast(questions.row_lengths(), tf.int32)
    stride = tf.minimum(stride, room)
    windows, rows = split_into_windows(contexts, room, stride)
    first_tokens = first_tokens_of_windows(rows, stride)
    is_max_context = has_max_context(windows, first_tokens + tf.cast(tf.gather(contexts.row_starts(), rows), tf.int32))
    return QuestionWindows(tf.gather(questions, rows), windows, rows, first_tokens, is_max_context)
