"""Answers to the questions of a SQuAD file, and the files from which the official scripts read them."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from keras_bert.data.formats.squad_files import word_spans
from keras_bert.data.tokenized_questions import TokenizedQuestions
from keras_bert.io.atomic_write import atomic_text_file
from keras_bert.text.answer_spans import MAX_ANSWER_LENGTH, N_BEST, find_answer_spans
from keras_bert.text.final_text import final_text
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.typing import PathLike

PREDICTIONS_NAME = "predictions.json"
N_BEST_NAME = "nbest_predictions.json"
NULL_ODDS_NAME = "null_odds.json"

# The original's answer if no span of a context can be an answer.
_NO_ANSWER_FOUND = "empty"


# A text with its start and end logits.
_Candidate = tuple[str, float, float]


class Answer(NamedTuple):
    """One of a model's answers to a question; the text "" means that the question is impossible."""

    text: str
    probability: float
    start_logit: float
    end_logit: float


class SquadPredictions(NamedTuple):
    """The answers to all questions of a file, by their ids."""

    answers: dict[str, str]
    n_best: dict[str, list[Answer]]  # in descending order
    null_odds: dict[str, float]  # the logits of no answer minus those of the best answer; empty in version 1.1


def answer_questions(
    tokenized: TokenizedQuestions,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    tokenizer: BertTokenizer,
    version: str = "1.1",
    n_best: int = N_BEST,
    max_answer_length: int = MAX_ANSWER_LENGTH,
    null_threshold: float = 0.0,
) -> SquadPredictions:
    """Answers questions from the logits of their windows.

    Source: `write_predictions` in google-research/bert run_squad.py. Differs from BERT: where version 2.0 finds no
    answer at all, on which the original fails, the question counts as impossible, with the odds it has against an
    answer whose logits are 0.

    Logits are [windows, length], at least as long as the longest window; those of padding are ignored. In version 2.0,
    a question is impossible if its null odds exceed `null_threshold`. `n_best` is the number of starts and ends to
    consider per window, and of answers to keep.
    """
    spans = _find_spans(tokenized, start_logits, end_logits, n_best, max_answer_length)
    texts = _AnswerTexts(tokenized, tokenizer)
    first_spans = np.searchsorted(spans.rows, np.arange(len(tokenized.questions) + 1))
    predictions = SquadPredictions({}, {}, {})
    for row, question in enumerate(tokenized.questions):
        candidates = (
            (texts.text(*position), start, end)
            for *position, start, end in zip(
                *(values[first_spans[row] : first_spans[row + 1]].tolist() for values in spans[1:]), strict=True
            )
        )
        null = _null_logits(tokenized, row, start_logits, end_logits) if version == "2.0" else None
        found = _with_probabilities(_distinct(candidates, null, n_best))
        predictions.n_best[question.id] = found
        if null is None:
            predictions.answers[question.id] = found[0].text
            continue
        answer = next((answer for answer in found if answer.text), None)
        if answer is None:
            logging.warning("question %s: no span of its context can be an answer", question.id)
        best_score = 0.0 if answer is None else answer.start_logit + answer.end_logit
        predictions.null_odds[question.id] = sum(null) - best_score
    return at_threshold(predictions, null_threshold) if version == "2.0" else predictions


def at_threshold(predictions: SquadPredictions, null_threshold: float) -> SquadPredictions:
    """Decides again which questions of version 2.0 are impossible: those whose null odds exceed the threshold.

    Source: `null_score_diff_threshold` in google-research/bert run_squad.py.
    """
    answers = {}
    for identifier, found in predictions.n_best.items():
        best = next((answer.text for answer in found if answer.text), "")
        answers[identifier] = "" if predictions.null_odds[identifier] > null_threshold else best
    return predictions._replace(answers=answers)


def write_squad_predictions(folder: PathLike, predictions: SquadPredictions, overwrite: bool = False) -> list[Path]:
    """Writes `predictions.json`, `nbest_predictions.json`, and, if there are null odds, `null_odds.json`.

    Source: `write_predictions` in google-research/bert run_squad.py. Raises FileExistsError if a file exists and
    `overwrite` is False. Returns the paths of the files.
    """
    contents: dict[str, Any] = {
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


def _find_spans(
    tokenized: TokenizedQuestions, start_logits: np.ndarray, end_logits: np.ndarray, n_best: int, max_answer_length: int
) -> Any:
    """Returns the best spans as `AnswerSpans` of arrays."""
    positions = np.arange(np.shape(start_logits)[1]) - tokenized.context_starts[:, None]
    is_context = (positions >= 0) & (positions < tokenized.context_lengths[:, None])
    can_start = np.zeros_like(is_context)
    can_start[is_context] = tokenized.is_max_context
    spans = find_answer_spans(
        tf.constant(start_logits),
        tf.constant(end_logits),
        tf.constant(can_start),
        tf.constant(is_context),
        tokenized.rows,
        n_best,
        max_answer_length,
    )
    return type(spans)(*(values.numpy() for values in spans))


def _null_logits(
    tokenized: TokenizedQuestions, row: int, start_logits: np.ndarray, end_logits: np.ndarray
) -> tuple[float, float]:
    """Returns the logits of [CLS], which means no answer, in the window in which their sum is smallest."""
    windows = slice(*np.searchsorted(tokenized.rows, (row, row + 1)))
    null = np.stack([start_logits[windows, 0], end_logits[windows, 0]], axis=1).astype("float64")
    start, end = null[null.sum(axis=1).argmin()].tolist()
    return start, end


def _distinct(candidates: Iterable[_Candidate], null: tuple[float, float] | None, n_best: int) -> list[_Candidate]:
    """Returns the best candidates with distinct texts, and the null answer if there is one."""
    found: dict[str, _Candidate] = {}
    # The null answer comes after equal candidates, and is added even if it is not among the best.
    for text, start, end in candidates:
        if null is not None and "" not in found and sum(null) > start + end:
            found[""] = ("", *null)
        if len(found) >= n_best:
            break
        found.setdefault(text, (text, start, end))
    if null is not None:
        found.setdefault("", ("", *null))
    return list(found.values()) or [(_NO_ANSWER_FOUND, 0.0, 0.0)]


def _with_probabilities(found: Sequence[_Candidate]) -> list[Answer]:
    scores = [start + end for _, start, end in found]
    best = max(scores)
    weights = [math.exp(score - best) for score in scores]
    total = sum(weights)
    return [Answer(text, weight / total, start, end) for (text, start, end), weight in zip(found, weights, strict=True)]


class _AnswerTexts:
    """Finds the text of spans of tokens in the words of their context."""

    def __init__(self, tokenized: TokenizedQuestions, tokenizer: BertTokenizer) -> None:
        self._tokenized = tokenized
        self._tokenizer = tokenizer
        self._ids = tokenized.windows.token_ids
        lengths, context_lengths = tokenized.windows.lengths, tokenized.context_lengths
        self._first_ids = np.cumsum(lengths) - lengths
        self._first_words = np.cumsum(context_lengths) - context_lengths - tokenized.context_starts
        self._words_of_context: dict[str, list[str]] = {}

    def text(self, window: int, start: int, end: int) -> str:
        """Returns the text of the span from position `start` to `end` of a window's row."""
        ids = self._ids[self._first_ids[window] + start : self._first_ids[window] + end + 1]
        answer = " ".join(self._tokenizer.id_to_token(int(number)) for number in ids)
        answer = " ".join(answer.replace(" ##", "").replace("##", "").split())
        first, last = (int(self._tokenized.words[self._first_words[window] + position]) for position in (start, end))
        context = self._tokenized.questions[self._tokenized.rows[window]].context
        if context not in self._words_of_context:
            self._words_of_context[context] = [context[first:end] for first, end in word_spans(context)]
        words = self._words_of_context[context]
        return final_text(answer, " ".join(words[first : last + 1]), self._tokenizer.lower_case)
