"""SQuAD's scores, by the rules of the official evaluation scripts (arXiv 1606.05250, section 6.1; arXiv 1806.03822)."""

import collections
import re
import string
from collections.abc import Mapping, Sequence
from typing import NamedTuple

VERSIONS = ("1.1", "2.0")

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


class QuestionScore(NamedTuple):
    """How well one question is answered.

    Args:
        exact_match: float, 1 where the answer is one of the right ones, else 0.
        f1: float from 0 to 1, the overlap of words with the right answer that is nearest.

    Example:

    >>> QuestionScore(exact_match=0.0, f1=0.5)
    QuestionScore(exact_match=0.0, f1=0.5)
    """

    exact_match: float
    f1: float


def normalize_answer(text: str) -> str:
    """An answer as the official scripts compare it: lower-cased, without ASCII punctuation and English articles.

    Args:
        text: str.

    Returns:
        str, its words with one space between them.

    Example:

    >>> normalize_answer(" The Battle of  Hastings. ")
    'battle of hastings'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def score_answer(prediction: str, answers: Sequence[str], version: str = "1.1") -> QuestionScore:
    """Scores the answer to one question against each of the right ones, and takes the best.

    Args:
        prediction: str. The answer given; `""` says that there is none.
        answers: list of str. The right answers. Under version 2.0 one that is nothing but articles and punctuation
            does not count, and none at all means that the question cannot be answered.
        version: str. "1.1" or "2.0": whether nothing equals nothing.

    Returns:
        `QuestionScore`.

    Raises:
        ValueError: if the version is unknown, or there is no right answer under version 1.1.

    Example:

    >>> score_answer("in the year 1066", ["1066", "year 1066"])
    QuestionScore(exact_match=0.0, f1=0.8)
    >>> score_answer("", [], version="2.0")
    QuestionScore(exact_match=1.0, f1=1.0)
    """
    _check_version(version)
    right = [normalize_answer(answer) for answer in answers]
    if version == "2.0":
        right = [answer for answer in right if answer] or [""]
    if not right:
        raise ValueError("a question of SQuAD 1.1 has at least one answer; this one has none: use version 2.0")
    given = normalize_answer(prediction)
    return QuestionScore(
        exact_match=float(given in right),
        f1=max(_overlap(given.split(), answer.split(), version) for answer in right),
    )


def _overlap(given, right, version):
    if not given or not right:
        return float(version == "2.0" and given == right)
    common = (collections.Counter(given) & collections.Counter(right)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(given), common / len(right)
    return 2 * precision * recall / (precision + recall)


def score_answers(
    predictions: Mapping[str, str], answers: Mapping[str, Sequence[str]], version: str = "1.1"
) -> dict[str, QuestionScore]:
    """Scores every question; one without a prediction gets 0.

    Args:
        predictions: dict of question id to str, the answers given. Other questions than those of `answers` are not
            looked at.
        answers: dict of question id to list of str, the right answers.
        version: str. "1.1" or "2.0", as for `score_answer`.

    Returns:
        dict of question id to `QuestionScore`, in the order of `answers`.

    Raises:
        ValueError: as `score_answer` says.

    Example:

    >>> score_answers({"q1": "Paris"}, {"q1": ["Paris"], "q2": ["London"]})["q2"]
    QuestionScore(exact_match=0.0, f1=0.0)
    """
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
    """The scores of a whole file of answers.

    Source: evaluate-v1.1.py and evaluate-v2.0.py of rajpurkar/SQuAD-explorer. Differs from them in names (`exact_match`
    under both versions, `has_answer_f1` for `HasAns_f1`), in being shares rather than per cent, and in a question
    without prediction, which is 0 under version 2.0 as it is under 1.1.

    Args:
        predictions, answers, version: as for `score_answers`.
        null_odds: dict of question id to float, under version 2.0: how much rather than `predictions` says there is no
            answer. Adds the best scores that a threshold on it would give.
        null_threshold: float. With it, questions whose `null_odds` are greater count as answered by `""`.

    Returns:
        dict of str to float: `exact_match`, `f1`, `total` and `missing` (questions; those without a prediction). Under
        version 2.0 `has_answer_` and `no_answer_` with `exact_match`, `f1` and `total`, where there are such
        questions. With `null_odds`, `best_exact_match`, `best_exact_match_threshold`, `best_f1`, `best_f1_threshold`.

    Raises:
        ValueError: if there are no questions, the version is unknown, `null_odds` comes with version 1.1 or lacks a
            question, a threshold comes without them, or as `score_answer` says.

    Example:

    >>> scores = squad_metrics({"q1": "Paris", "q2": "Rome"}, {"q1": ["Paris"], "q2": ["in London"]})
    >>> scores["exact_match"], scores["total"]
    (0.5, 2)
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
    if null_threshold is not None:
        for identifier in scores:
            if null_odds[identifier] > null_threshold:
                right = float(identifier in unanswerable)
                scores[identifier] = QuestionScore(right, right)

    metrics = {**_means(scores.values()), "missing": sum(identifier not in predictions for identifier in answers)}
    if version == "2.0":
        parts = {"has_answer": scores.keys() - unanswerable, "no_answer": unanswerable}
        for prefix, part in parts.items():
            if part:
                # In the order of the file, so that sums are rounded in the same way on every run.
                means = _means([score for identifier, score in scores.items() if identifier in part])
                metrics.update({f"{prefix}_{name}": value for name, value in means.items()})
    return metrics | best


def _check_version(version):
    if version not in VERSIONS:
        raise ValueError(f"version must be one of {list(VERSIONS)}, got {version!r}")


def _check_null_odds(answers, version, null_odds, null_threshold):
    if not answers:
        raise ValueError("there are no questions to score")
    if null_odds is None:
        if null_threshold is not None:
            raise ValueError(f"null_threshold={null_threshold} needs null_odds, and there are none")
        return
    if version != "2.0":
        raise ValueError(f"null_odds are for version 2.0, whose questions may have no answer; got version {version!r}")
    without = [identifier for identifier in answers if identifier not in null_odds]
    if without:
        raise ValueError(f"null_odds must be there for every question; {len(without)} have none, {without[0]!r} first")


def _means(scores):
    scores = list(scores)
    return {
        "exact_match": sum(score.exact_match for score in scores) / len(scores),
        "f1": sum(score.f1 for score in scores) / len(scores),
        "total": len(scores),
    }


def _best_thresholds(scores, predictions, unanswerable, null_odds):
    best = {}
    by_odds = sorted(scores, key=null_odds.__getitem__)
    for name in QuestionScore._fields:
        # Where the threshold is below all odds, every question has the answer "".
        total = highest = len(unanswerable)
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
