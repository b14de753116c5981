"""From the logits of windows to the spans of their contexts that answer best."""

from typing import NamedTuple

import tensorflow as tf

# Defaults of `write_predictions` in google-research/bert run_squad.py.
N_BEST = 20
MAX_ANSWER_LENGTH = 30  # tokens


class AnswerSpans(NamedTuple):
    """Spans of windows, those of one question behind another, the best first.

    Source: the preliminary predictions of `write_predictions` in google-research/bert `run_squad.py`.

    Args:
        rows: int32 tensor [spans], ascending, the question.
        windows: int32 tensor [spans], the window.
        starts: int32 tensor [spans], the place of the first token in the window's row.
        ends: int32 tensor [spans], that of the last token.
        start_logits: float64 tensor [spans], the logit of the start.
        end_logits: float64 tensor [spans], that of the end. A span is as good as the sum of both.

    Example:
        >>> masks = tf.constant([[False, True, True]])
        >>> find_answer_spans(tf.constant([[9.0, 1, 2]]), tf.constant([[9.0, 3, 1]]), masks, masks, [0]).ends.numpy()
        array([1, 2, 2], dtype=int32)
    """

    rows: tf.Tensor
    windows: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    start_logits: tf.Tensor
    end_logits: tf.Tensor


def find_answer_spans(
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    may_start: tf.Tensor,
    may_end: tf.Tensor,
    rows: tf.Tensor,
    n_best: int = N_BEST,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> AnswerSpans:
    """Joins the likeliest starts and ends of each window to spans, and sorts those of each question.

    Equal sums keep the order of windows, then of starts, then of ends by their logits, where equals keep that of their
    places.

    Source: `write_predictions` and `_get_best_indexes` in google-research/bert `run_squad.py`.

    Args:
        start_logits: float tensor [windows, length].
        end_logits: float tensor [windows, length].
        may_start: bool tensor [windows, length], whether an answer may begin with the token: one of the context that
            has most context in this window.
        may_end: bool tensor [windows, length], whether one may end with it: a token of the context.
        rows: int tensor [windows], ascending, the question that each window is of.
        n_best: int, how many starts and ends of each window are looked at, before `may_start` and `may_end` sort out
            what cannot be an answer.
        max_answer_length: int, most tokens of an answer.

    Returns:
        `AnswerSpans`.

    Example: as for `AnswerSpans`.
    """
    number = tf.minimum(n_best, tf.shape(start_logits)[1])
    best_starts, starts = tf.math.top_k(start_logits, number)  # [windows, number]; of equals the first one first
    best_ends, ends = tf.math.top_k(end_logits, number)
    start_is_allowed = tf.gather(may_start, starts, batch_dims=1)[:, :, tf.newaxis]
    end_is_allowed = tf.gather(may_end, ends, batch_dims=1)[:, tf.newaxis, :]
    lengths = ends[:, tf.newaxis, :] - starts[:, :, tf.newaxis] + 1  # [windows, starts, ends]
    fits = tf.logical_and(lengths >= 1, lengths <= max_answer_length)
    places = tf.where(start_is_allowed & end_is_allowed & fits)  # [spans, 3]
    of_start, of_end = places[:, :2], tf.gather(places, [0, 2], axis=1)

    # In float64, as the original adds them: which of two spans is better can hang on the last bit.
    start_logits = tf.cast(tf.gather_nd(best_starts, of_start), tf.float64)
    end_logits = tf.cast(tf.gather_nd(best_ends, of_end), tf.float64)
    windows = tf.cast(places[:, 0], tf.int32)
    spans = AnswerSpans(
        tf.gather(tf.cast(rows, tf.int32), windows),
        windows,
        tf.gather_nd(starts, of_start),
        tf.gather_nd(ends, of_end),
        start_logits,
        end_logits,
    )
    by_score = tf.argsort(start_logits + end_logits, direction="DESCENDING", stable=True)
    order = tf.gather(by_score, tf.argsort(tf.gather(spans.rows, by_score), stable=True))
    return AnswerSpans(*(tf.gather(values, order) for values in spans))
