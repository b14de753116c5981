"""Answers to the questions of a SQuAD file, and the files that the official scripts read them from."""

import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from keras_bert.data.formats.squad_files import word_spans
from keras_bert.io.atomic_write import atomic_text_file
from keras_bert.text.answer_spans import MAX_ANSWER_LENGTH, N_BEST, find_answer_spans
from keras_bert.text.final_text import final_text

PREDICTIONS_NAME = "predictions.json"
N_BEST_NAME = "nbest_predictions.json"
NULL_ODDS_NAME = "null_odds.json"

# What the original answers where no span of a context can be an answer.
_NO_ANSWER_FOUND = "empty"


class Answer(NamedTuple):
    """One of the answers that a model finds to a question.

    Args:
        text: str; "" says that the question is impossible.
        probability: float, among the answers found.
        start_logit: float.
        end_logit: float.

    Example:

    >>> Answer("Paris", 1.0, 3.5, 2.0).text
    'Paris'
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float


class SquadPredictions(NamedTuple):
    """The answers to all questions of a file.

    Args:
        answers: dict of question id to str, the answer.
        n_best: dict of question id to list of `Answer`, the best first.
        null_odds: dict of question id to float, by how much the logits say that there is no answer rather than the best
            one; empty under version 1.1.

    Example:

    >>> SquadPredictions({"q1": "Paris"}, {"q1": [Answer("Paris", 1.0, 3.5, 2.0)]}, {}).answers
    {'q1': 'Paris'}
    """

    answers: dict[str, str]
    n_best: dict[str, list[Answer]]
    null_odds: dict[str, float]


def answer_questions(
    tokenized,
    start_logits,
    end_logits,
    tokenizer,
    version="1.1",
    n_best=N_BEST,
    max_answer_length=MAX_ANSWER_LENGTH,
    null_threshold=0.0,
):
    """Answers questions from the logits of their windows.

    Source: `write_predictions` in google-research/bert run_squad.py. Differs from BERT: where version 2.0 finds no
    answer at all, at which the original fails, the question counts as impossible, with the odds that it has against an
    answer whose logits are 0.

    Args:
        tokenized: `TokenizedQuestions`.
        start_logits: float array [windows, length], at least as long as the longest window; what stands behind a
            window's own tokens can be no answer.
        end_logits: float array [windows, length].
        tokenizer: the `BertTokenizer` that the questions were tokenized with.
        version: str. "1.1", or "2.0", under which a question may be impossible.
        n_best: int. How many starts and ends of a window are looked at, and how many answers are kept.
        max_answer_length: int, tokens.
        null_threshold: float. Under version 2.0 the question is impossible where its null odds are above it.

    Returns:
        `SquadPredictions`.

    Example:

    >>> from keras_bert.data.formats.squad_files import SquadQuestion
    >>> from keras_bert.data.tokenized_questions import tokenize_questions
    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "in", "paris"], True)
    >>> question = SquadQuestion("q1", "Where", "In Paris", (), False, None, None)
    >>> preprocessor = keras_bert.BertQuestionPreprocessor(tokenizer, sequence_length=12, stride=4, max_query_length=4)
    >>> tokenized = tokenize_questions([question], preprocessor)
    >>> logits = np.array([[0.0, 0, 0, 0, 5, 0]])
    >>> answer_questions(tokenized, logits, logits, tokenizer).answers
    {'q1': 'Paris'}
    """
    spans = _spans(tokenized, start_logits, end_logits, n_best, max_answer_length)
    texts = _AnswerTexts(tokenized, tokenizer)
    has_null = version == "2.0"
    first_spans = np.searchsorted(spans.rows, np.arange(len(tokenized.questions) + 1))
    predictions = SquadPredictions({}, {}, {})
    for row, question in enumerate(tokenized.questions):
        candidates = (
            (texts.text(*place), start, end)
            for *place, start, end in zip(
                *(values[first_spans[row] : first_spans[row + 1]].tolist() for values in spans[1:]), strict=True
            )
        )
        null = _null_logits(tokenized, row, start_logits, end_logits) if has_null else None
        found = _with_probabilities(_distinct(candidates, null, n_best))
        answer = next((answer for answer in found if answer.text), None)
        predictions.n_best[question.id] = found
        if has_null:
            odds = sum(null) - (sum((answer.start_logit, answer.end_logit)) if answer else 0.0)
            predictions.null_odds[question.id] = odds
            if answer is None:
                logging.warning("question %s: no span of its context can be an answer", question.id)
        else:
            predictions.answers[question.id] = found[0].text
    return at_threshold(predictions, null_threshold) if has_null else predictions


def at_threshold(predictions, null_threshold):
    """The same predictions, with another answer to which questions are impossible.

    Source: `null_score_diff_threshold` in google-research/bert run_squad.py.

    Args:
        predictions: `SquadPredictions` of version 2.0.
        null_threshold: float. A question is impossible where its null odds are above it.

    Returns:
        `SquadPredictions`.

    Example:

    >>> found = [Answer("", 0.6, 2.0, 2.0), Answer("Paris", 0.4, 2.0, 1.5)]
    >>> predictions = SquadPredictions({}, {"q1": found}, {"q1": 0.5})
    >>> at_threshold(predictions, 0.0).answers, at_threshold(predictions, 1.0).answers
    ({'q1': ''}, {'q1': 'Paris'})
    """
    answers = {}
    for identifier, found in predictions.n_best.items():
        best = next((answer.text for answer in found if answer.text), "")
        answers[identifier] = "" if predictions.null_odds[identifier] > null_threshold else best
    return predictions._replace(answers=answers)


def write_squad_predictions(folder, predictions, overwrite=False):
    """Writes answers in the files that the official scripts read.

    Source: `write_predictions` in google-research/bert run_squad.py.

    Args:
        folder: str or Path, made where it is not there.
        predictions: `SquadPredictions`.
        overwrite: bool. Whether files of these names may be replaced.

    Returns:
        list of Path: `predictions.json`, `nbest_predictions.json`, and, where there are null odds, `null_odds.json`.

    Raises:
        FileExistsError: if a file is there and may not be replaced.

    Example:

    >>> files = write_squad_predictions(tempfile.mkdtemp(), SquadPredictions({"q1": "Paris"}, {"q1": []}, {}))
    >>> files[0].read_text()
    '{\\n    "q1": "Paris"\\n}\\n'
    """
    contents = {
        PREDICTIONS_NAME: predictions.answers,
        N_BEST_NAME: {key: [answer._asdict() for answer in answers] for key, answers in predictions.n_best.items()},
    }
    if predictions.null_odds:
        contents[NULL_ODDS_NAME] = predictions.null_odds
    files = []
    for name, content in contents.items():
        files.append(Path(folder) / name)
        with atomic_text_file(files[-1], overwrite) as file:
            file.write(json.dumps(content, indent=4) + "\n")
    return files


def _spans(tokenized, start_logits, end_logits, n_best, max_answer_length):
    """`AnswerSpans` as arrays."""
    places = np.arange(np.shape(start_logits)[1]) - tokenized.context_starts[:, None]
    is_context = (places >= 0) & (places < tokenized.context_lengths[:, None])
    may_start = np.zeros_like(is_context)
    may_start[is_context] = tokenized.is_max_context
    spans = find_answer_spans(
        tf.constant(start_logits),
        tf.constant(end_logits),
        tf.constant(may_start),
        tf.constant(is_context),
        tokenized.rows,
        n_best,
        max_answer_length,
    )
    return type(spans)(*(values.numpy() for values in spans))


def _null_logits(tokenized, row, start_logits, end_logits):
    """The logits of [CLS], which stands for no answer, in the window where their sum is least."""
    windows = slice(*np.searchsorted(tokenized.rows, (row, row + 1)))
    null = np.stack([start_logits[windows, 0], end_logits[windows, 0]], axis=1).astype("float64")
    return null[null.sum(axis=1).argmin()].tolist()


def _distinct(candidates, null, n_best):
    """The best candidates of different texts, and the null answer, as tuples of text and logits."""
    found = {}
    # The null answer stands behind equals, and is there even where it is not among the best.
    for text, start, end in candidates:
        if null is not None and "" not in found and sum(null) > start + end:
            found[""] = ("", *null)
        if len(found) >= n_best:
            break
        found.setdefault(text, (text, start, end))
    if null is not None:
        found.setdefault("", ("", *null))
    return list(found.values()) or [(_NO_ANSWER_FOUND, 0.0, 0.0)]


def _with_probabilities(found):
    scores = [start + end for _, start, end in found]
    shares = [math.exp(score - max(scores)) for score in scores]
    return [Answer(text, share / sum(shares), *logits) for (text, *logits), share in zip(found, shares, strict=True)]


class _AnswerTexts:
    """The wording of spans: their tokens, looked for in their words."""

    def __init__(self, tokenized, tokenizer):
        self._tokenized = tokenized
        self._tokenizer = tokenizer
        self._ids = tokenized.windows.token_ids
        lengths, context_lengths = tokenized.windows.lengths, tokenized.context_lengths
        self._first_ids = np.cumsum(lengths) - lengths
        self._first_words = np.cumsum(context_lengths) - context_lengths - tokenized.context_starts
        self._words_of_context = {}

    def text(self, window, start, end):
        """The text of the span from place `start` to place `end` of a window's row."""
        ids = self._ids[self._first_ids[window] + start : self._first_ids[window] + end + 1]
        answer = " ".join(self._tokenizer.id_to_token(int(number)) for number in ids)
        answer = " ".join(answer.replace(" ##", "").replace("##", "").split())
        first, last = (int(self._tokenized.words[self._first_words[window] + place]) for place in (start, end))
        words = self._words(self._tokenized.questions[self._tokenized.rows[window]].context)
        return final_text(answer, " ".join(words[first : last + 1]), self._tokenizer.lower_case)

    def _words(self, context):
        if context not in self._words_of_context:
            self._words_of_context[context] = [context[first:end] for first, end in word_spans(context)]
        return self._words_of_context[context]
