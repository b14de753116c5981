"""Scores of tagged tokens: entities as in seqeval (the measure of CoNLL-2003), or plain tags (parts of speech)."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bert.metrics.classification import classification_report

# The prefixes of tags by scheme; the schemes are those of keras_bert.text.tags, which this package must not import.
_PREFIXES = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES"}
SCHEMES = (*_PREFIXES, "plain")

_SCORES = ("precision", "recall", "f1")


def tagging_metrics(
    true_tags: Sequence[Sequence[str]],
    predicted_tags: Sequence[Sequence[str]],
    scheme: str = "IOB2",
    strict: bool = False,
) -> dict[str, float]:
    """Computes the main scores of tags; `tagging_report` has the arguments and all scores.

    Entities have `precision`, `recall`, `f1`, `macro_f1` (the mean over types) and `token_accuracy`; plain tags have
    `token_accuracy` and `macro_f1`.
    """
    report = tagging_report(true_tags, predicted_tags, scheme, strict)
    metrics = {"macro_f1": report["macro"]["f1"], "token_accuracy": report["token_accuracy"]}
    return metrics if scheme == "plain" else report["micro"] | metrics


def tagging_report(
    true_tags: Sequence[Sequence[str]],
    predicted_tags: Sequence[Sequence[str]],
    scheme: str = "IOB2",
    strict: bool = False,
) -> dict[str, Any]:
    """Computes all scores of the tags of sentences, in a form that JSON can hold (undefined scores are 0).

    An entity is right if one of the same type is predicted for the same tokens. Entities are read in the same way in
    all schemes: an I- that continues nothing starts an entity, as in conlleval, whose scores CoNLL-2003 reports. With
    `strict` (seqeval's mode "strict"), only tags that are valid in the scheme count.

    The result has `sentences`, `tokens` and `token_accuracy`. Entities add `micro` and `macro`, each a dict of
    `precision`, `recall`, `f1`, and `per_type`, such a dict with `support` for each type. Plain tags add what
    `classification_report` returns for the tags that occur, sorted.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"unknown scheme {scheme!r}; allowed are {list(SCHEMES)}")
    if strict and scheme == "plain":
        raise ValueError("strict applies to entities, which plain tags do not encode; leave it out")
    true_tags, predicted_tags = (list(map(_as_list, sentences)) for sentences in (true_tags, predicted_tags))
    _check_lengths(true_tags, predicted_tags)
    true, predicted = ([tag for tags in sentences for tag in tags] for sentences in (true_tags, predicted_tags))
    if scheme == "plain":
        report = _score_tokens(true, predicted)
    else:
        _check_tags({*true, *predicted}, scheme)
        report = {
            "token_accuracy": float(np.mean([a == b for a, b in zip(true, predicted, strict=True)])),
            **_score_entities(true_tags, predicted_tags, scheme if strict else None),
        }
    return {"sentences": len(true_tags), "tokens": len(true), **report}


def _score_tokens(true: list[str], predicted: list[str]) -> dict[str, Any]:
    names = sorted({*true, *predicted})
    numbers = {name: number for number, name in enumerate(names)}
    report = classification_report([numbers[tag] for tag in true], [numbers[tag] for tag in predicted], names)
    del report["examples"]
    return {"token_accuracy": report.pop("accuracy"), **report}


def _score_entities(
    true_tags: list[list[str]], predicted_tags: list[list[str]], strict_scheme: str | None
) -> dict[str, Any]:
    # Not seqeval's classification_report: its averages would replace types of the same names, and it warns.
    arguments: dict[str, Any] = {"zero_division": 0}
    if strict_scheme is None:
        from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

        types = {entity[0] for tags in (true_tags, predicted_tags) for entity in get_entities(tags)}
    else:
        from seqeval import scheme as schemes
        from seqeval.metrics.v1 import precision_recall_fscore_support

        arguments["scheme"] = getattr(schemes, strict_scheme)
        types = set.union(
            *(schemes.Entities(tags, arguments["scheme"]).unique_tags for tags in (true_tags, predicted_tags))
        )
    *scores, supports = precision_recall_fscore_support(true_tags, predicted_tags, average=None, **arguments)
    *micro, _ = precision_recall_fscore_support(true_tags, predicted_tags, average="micro", **arguments)
    return {
        "micro": dict(zip(_SCORES, map(float, micro), strict=True)),
        "macro": {name: float(np.mean(values)) if types else 0.0 for name, values in zip(_SCORES, scores, strict=True)},
        "per_type": {
            name: {**dict(zip(_SCORES, map(float, type_scores), strict=True)), "support": int(support)}
            for name, *type_scores, support in zip(sorted(types), *scores, supports, strict=True)
        },
    }


def _as_list(tags: Sequence[str]) -> list[str]:
    if isinstance(tags, str):
        raise ValueError(f"tags must be a list of lists, one for each sentence; got {tags!r} for a sentence")
    return list(tags)


def _check_lengths(true_tags: list[list[str]], predicted_tags: list[list[str]]) -> None:
    if len(true_tags) != len(predicted_tags):
        raise ValueError(
            f"there are true tags of {len(true_tags)} sentences, but predicted tags of {len(predicted_tags)}; pass "
            "both for each sentence"
        )
    for number, (true, predicted) in enumerate(zip(true_tags, predicted_tags, strict=True)):
        if len(true) != len(predicted):
            raise ValueError(f"sentence {number} has {len(true)} true tags, but {len(predicted)} predicted tags")
    if not any(true_tags):
        raise ValueError("there are no tags to score; pass at least one")


def _check_tags(tags: set[str], scheme: str) -> None:
    pattern = re.compile(f"O|[{_PREFIXES[scheme]}](-.+)?", re.DOTALL)
    wrong = sorted(tag for tag in tags if not pattern.fullmatch(tag))
    if wrong:
        prefixes = ", ".join(f"{prefix}-" for prefix in _PREFIXES[scheme])
        raise ValueError(
            f"{wrong[0]!r} is not an {scheme} tag; allowed are O, and {prefixes} followed by a type. The schemes are "
            f"{list(SCHEMES)}"
        )
