"""SQuAD's scores, by the rules of the official evaluation scripts (arXiv 1606.05250, section 6.1; arXiv 1806.03822)."""

import collections
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

VERSIONS = ("1.1", "2.0")

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


class QuestionScore(NamedTuple):
    """Score of one answer."""

    exact_match: float  # 1 if the answer equals one of the correct answers, else 0
    f1: float  # word overlap with the most similar correct answer, from 0 to 1


def normalize_answer(text: str) -> str:
    """Normalizes an answer as the official scripts do: lower case, no ASCII punctuation, no English articles."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def score_answer(prediction: str, answers: Sequence[str], version: str = "1.1") -> QuestionScore:
    """Scores an answer, "" for none, against each correct answer, and returns the best score.

    Under version 2.0, correct answers of only articles and punctuation are ignored, and a question without correct
    answers is unanswerable.
    """
    _check_version(version)
    right = [normalize_answer(answer) for answer in answers]
    if version == "2.0":
        right = [answer for answer in right if answer] or [""]
    if not right:
        raise ValueError("a question of SQuAD 1.1 has at least one answer; this one has none: use version 2.0")
    predicted = normalize_answer(prediction)
    return QuestionScore(
        exact_match=float(predicted in right),
        f1=max(_f1(predicted.split(), answer.split(), version) for answer in right),
    )


def _f1(predicted: list[str], right: list[str], version: str) -> float:
    if not predicted or not right:
        return float(version == "2.0" and predicted == right)
    common = (collections.Counter(predicted) & collections.Counter(right)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(right)
    return 2 * precision * recall / (precision + recall)


def score_answers(
    predictions: Mapping[str, str], answers: Mapping[str, Sequence[str]], version: str = "1.1"
) -> dict[str, QuestionScore]:
    """Scores the question ids of `answers`, in their order; a question without a prediction gets 0."""
    return {
        identifier: score_answer(predictions[identifier], right, version)
        if identifier in predictions
        else QuestionScore(0.0, 0.0)
        for identifier, right in answers.items()
    }


def squad_metrics(
    predictions: Mapping[str, str],
    answers: Mapping[str, Sequence[str]],
    version: str = "1.1",
    null_odds: Mapping[str, float] | None = None,
    null_threshold: float | None = None,
) -> dict[str, float]:
    """Computes the scores of a file of answers, by question id.

    `null_odds`, under version 2.0, is how much better "no answer" scores than the prediction; with it, the result has
    the best scores that a threshold on it can reach. With `null_threshold`, questions whose odds exceed it count as
    answered by "".

    The result has `exact_match`, `f1`, `total` and `missing` (numbers of questions, and of those without a prediction);
    under version 2.0 the first three also with the prefixes `has_answer_` and `no_answer_`, if there are such
    questions; with `null_odds` also `best_exact_match`, `best_exact_match_threshold`, `best_f1`, `best_f1_threshold`.

    Differs from evaluate-v1.1.py and evaluate-v2.0.py of rajpurkar/SQuAD-explorer in names (`exact_match` under both
    versions, `has_answer_f1` for `HasAns_f1`), in fractions instead of percentages, and in a question without a
    prediction, which scores 0 under version 2.0 as it does under 1.1.
    """
    _check_version(version)
    _check_null_odds(answers, version, null_odds, null_threshold)
    scores = score_answers(predictions, answers, version)
    unanswerable = {
        identifier
        for identifier, right in answers.items()
        if version == "2.0" and not any(map(normalize_answer, right))
    }
    best = {} if null_odds is None else _best_thresholds(scores, predictions, unanswerable, null_odds)
    if null_odds is not None and null_threshold is not None:
        for identifier in scores:
            if null_odds[identifier] > null_threshold:
                right = float(identifier in unanswerable)
                scores[identifier] = QuestionScore(right, right)

    metrics = {**_mean_scores(scores.values()), "missing": sum(identifier not in predictions for identifier in answers)}
    if version == "2.0":
        for prefix, part in {"has_answer": scores.keys() - unanswerable, "no_answer": unanswerable}.items():
            if part:
                # In the order of the file, so that sums are rounded in the same way on every run.
                means = _mean_scores(score for identifier, score in scores.items() if identifier in part)
                metrics.update({f"{prefix}_{name}": value for name, value in means.items()})
    return metrics | best


def _check_version(version: str) -> None:
    if version not in VERSIONS:
        raise ValueError(f"version must be one of {list(VERSIONS)}, got {version!r}")


def _check_null_odds(
    answers: Mapping[str, Sequence[str]],
    version: str,
    null_odds: Mapping[str, float] | None,
    null_threshold: float | None,
) -> None:
    if not answers:
        raise ValueError("there are no questions to score")
    if null_odds is None:
        if null_threshold is not None:
            raise ValueError(f"null_threshold={null_threshold} needs null_odds; pass them, or leave it out")
        return
    if version != "2.0":
        raise ValueError(f"null_odds apply to version 2.0, whose questions may have no answer; got version {version!r}")
    missing = [identifier for identifier in answers if identifier not in null_odds]
    if missing:
        raise ValueError(f"null_odds must have every question; {len(missing)} are missing, the first is {missing[0]!r}")


def _mean_scores(scores: Iterable[QuestionScore]) -> dict[str, float]:
    scores = list(scores)
    return {
        "exact_match": sum(score.exact_match for score in scores) / len(scores),
        "f1": sum(score.f1 for score in scores) / len(scores),
        "total": len(scores),
    }


def _best_thresholds(
    scores: Mapping[str, QuestionScore],
    predictions: Mapping[str, str],
    unanswerable: set[str],
    null_odds: Mapping[str, float],
) -> dict[str, float]:
    best = {}
    by_odds = sorted(scores, key=null_odds.__getitem__)
    for name in QuestionScore._fields:
        # With a threshold below all odds, every question has the answer "".
        total = highest = float(len(unanswerable))
        threshold = 0.0
        for identifier in by_odds:
            if identifier not in unanswerable:
                total += getattr(scores[identifier], name)
            elif predictions.get(identifier):
                total -= 1
            if total > highest:
                highest, threshold = total, null_odds[identifier]
        best[f"best_{name}"] = highest / len(scores)
        best[f"best_{name}_threshold"] = threshold
    return best
