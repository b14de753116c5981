"""Search for the best answers to questions, from the logits of windows to texts and offsets in the contexts."""

from typing import NamedTuple

import tensorflow as tf

from keras_bert.text.question_preprocessor import QuestionInputs
from keras_bert.text.substrings import Substrings
from keras_bert.text.words import WORD_SEPARATORS

# Defaults of `write_predictions` in google-research/bert run_squad.py.
N_BEST = 20
MAX_ANSWER_LENGTH = 30  # tokens


class AnswerSpans(NamedTuple):
    """Candidate answers as spans of windows, sorted by question and score, from `find_answer_spans`."""

    rows: tf.Tensor  # int32 [spans], ascending: the question
    windows: tf.Tensor  # int32 [spans]: the window
    starts: tf.Tensor  # int32 [spans]: position of the first token in the window's row
    ends: tf.Tensor  # int32 [spans]: position of the last token
    start_logits: tf.Tensor  # float64 [spans]
    end_logits: tf.Tensor  # float64 [spans]; a span's score is the sum of both logits


def find_answer_spans(
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    may_start: tf.Tensor,
    may_end: tf.Tensor,
    rows: tf.Tensor,
    n_best: int = N_BEST,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> AnswerSpans:
    """Combines the `n_best` starts and ends of each window into spans, and sorts the spans of each question.

    Logits and bool masks are `[windows, length]`; `rows` `[windows]`, ascending, are the questions of the windows.
    Source: `write_predictions` and `_get_best_indexes` in google-research/bert `run_squad.py`.
    """
    num_best = tf.minimum(n_best, tf.shape(start_logits)[1])
    best_starts, starts = tf.math.top_k(start_logits, num_best)  # [windows, best]; ties in the order of positions
    best_ends, ends = tf.math.top_k(end_logits, num_best)
    start_is_allowed = tf.gather(may_start, starts, batch_dims=1)[:, :, tf.newaxis]
    end_is_allowed = tf.gather(may_end, ends, batch_dims=1)[:, tf.newaxis, :]
    lengths = ends[:, tf.newaxis, :] - starts[:, :, tf.newaxis] + 1  # [windows, starts, ends]
    fits = tf.logical_and(lengths >= 1, lengths <= max_answer_length)
    indices = tf.where(start_is_allowed & end_is_allowed & fits)  # [spans, 3]
    start_indices, end_indices = indices[:, :2], tf.gather(indices, [0, 2], axis=1)

    # In float64 as in the original, because the last bit decides between equally good spans.
    start_logits = tf.cast(tf.gather_nd(best_starts, start_indices), tf.float64)
    end_logits = tf.cast(tf.gather_nd(best_ends, end_indices), tf.float64)
    windows = tf.cast(indices[:, 0], tf.int32)
    spans = AnswerSpans(
        tf.gather(tf.cast(rows, tf.int32), windows),
        windows,
        tf.gather_nd(starts, start_indices),
        tf.gather_nd(ends, end_indices),
        start_logits,
        end_logits,
    )
    by_score = tf.argsort(start_logits + end_logits, direction="DESCENDING", stable=True)
    order = tf.gather(by_score, tf.argsort(tf.gather(spans.rows, by_score), stable=True))
    return AnswerSpans(*(tf.gather(values, order) for values in spans))


class AnswersInContexts(NamedTuple):
    """The best answers in the contexts, [questions, n_best], best first; missing ones are "" and 0."""

    texts: tf.Tensor  # string
    scores: tf.Tensor  # float32: sum of the start and end logits
    start_bytes: tf.Tensor  # int32
    end_bytes: tf.Tensor  # int32: one past the last byte
    start_characters: tf.Tensor  # int32
    end_characters: tf.Tensor  # int32: one past the last character
    null_scores: tf.Tensor  # float32 [questions]: score of "no answer", the minimum over windows of [CLS]'s logit sum


def find_answers(
    prepared: QuestionInputs,
    contexts: tf.Tensor,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    n_best: int = N_BEST,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> AnswersInContexts:
    """Finds the `n_best` answers with distinct texts in contexts `[questions]`, from logits `[windows, length]`.

    Source: `write_predictions` in google-research/bert `run_squad.py`. Differs from BERT: an answer reaches from the
    first to the last character of its tokens; `keras_bert.text.final_text` has the original's rule.
    """
    spans = find_answer_spans(
        start_logits, end_logits, prepared.may_start, prepared.may_end, prepared.rows, n_best, max_answer_length
    )
    # From positions in a row to indices of the flat context tokens.
    offsets = tf.cast(prepared.start_bytes.row_starts(), tf.int32) - prepared.context_starts
    offset = tf.gather(offsets, spans.windows)
    starts = tf.gather(prepared.start_bytes.values, offset + spans.starts)
    ends = tf.gather(prepared.end_bytes.values, offset + spans.ends)
    substrings = Substrings(contexts)
    texts = substrings.between(spans.rows, starts, ends)
    # As in the original, which joins the words of an answer by spaces.
    texts = tf.strings.regex_replace(texts, f"[{WORD_SEPARATORS}]+", " ")

    num_questions = tf.size(contexts)
    kept = _select_distinct(spans.rows, texts, num_questions, n_best)
    rows, starts, ends = (tf.gather(values, kept) for values in (spans.rows, starts, ends))
    start_characters, end_characters = substrings.characters_before(rows, starts, ends)

    def by_question(values: tf.Tensor) -> tf.Tensor:
        ragged = tf.RaggedTensor.from_value_rowids(values, tf.cast(rows, tf.int64), tf.cast(num_questions, tf.int64))
        return ragged.to_tensor(shape=[None, n_best])

    null_scores = tf.cast(start_logits[:, 0] + end_logits[:, 0], tf.float32)
    return AnswersInContexts(
        by_question(tf.gather(texts, kept)),
        by_question(tf.cast(tf.gather(spans.start_logits + spans.end_logits, kept), tf.float32)),
        by_question(starts),
        by_question(ends),
        by_question(start_characters),
        by_question(end_characters),
        tf.math.unsorted_segment_min(null_scores, prepared.rows, num_questions),
    )


def _select_distinct(rows: tf.Tensor, texts: tf.Tensor, num_questions: tf.Tensor, n_best: int) -> tf.Tensor:
    """Selects the best span of each distinct text, at most `n_best` per question: indices [kept]."""
    _, text_ids = tf.unique(tf.strings.join([tf.strings.as_string(rows), texts], separator=":"))
    index = tf.range(tf.size(rows))
    first = tf.math.unsorted_segment_min(index, text_ids, tf.size(rows))
    is_first = tf.equal(tf.gather(first, text_ids), index)
    counted = tf.cumsum(tf.cast(is_first, tf.int32))
    before = tf.math.unsorted_segment_min(counted, rows, num_questions)  # the count at a question's first span
    return tf.where(is_first & (counted - tf.gather(before, rows) < n_best))[:, 0]
