"""Scores of tagged tokens: entities as seqeval counts them (CoNLL-2003's measure), or plain tags such as POS."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bert.metrics.classification import classification_report

# The letters that stand before the types, by scheme.
_PREFIXES = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES"}
SCHEMES = (*_PREFIXES, "plain")

_SCORES = ("precision", "recall", "f1")


def tagging_metrics(
    true_tags: Sequence[Sequence[str]],
    predicted_tags: Sequence[Sequence[str]],
    scheme: str = "IOB2",
    strict: bool = False,
) -> dict[str, float]:
    """The scores of tags that a table of results has; `tagging_report` has all of them.

    Args:
        true_tags, predicted_tags, scheme, strict: as for `tagging_report`.

    Returns:
        A dict of name to float. Of entities: `precision`, `recall` and `f1` of all of them, `macro_f1`, the mean of
        their types' F1, and `token_accuracy`. Of plain tags: `token_accuracy` and `macro_f1`.

    Raises:
        ValueError: as for `tagging_report`.

    Example:

    >>> scores = tagging_metrics([["B-person", "I-person", "O", "B-place"]], [["B-person", "I-person", "O", "O"]])
    >>> scores["precision"], scores["recall"], scores["macro_f1"], scores["token_accuracy"]
    (1.0, 0.5, 0.5, 0.75)
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
    """All scores of tags, by name, fit for JSON (undefined ones 0).

    An entity is right if one of the same type has been predicted for the same tokens.

    Args:
        true_tags: list of lists of str, the tags of sentences.
        predicted_tags: list of lists of str, the tags predicted for them.
        scheme: str. "IOB1", "IOB2" or "IOBES", which spell entities with B-, I-, E- and S-, or "plain": every token has
            a tag of its own. Entities are read in the same way in all schemes unless `strict`.
        strict: bool. Whether tags count only where they are what the scheme demands (seqeval's mode "strict").
            Otherwise an I- that goes on with nothing begins an entity, as conlleval has it; CoNLL-2003's scores are of
            this kind.

    Returns:
        A dict: `sentences` and `tokens` ints; `token_accuracy` float, the share of tokens with the right tag. Of
        entities: `micro` and `macro`, each a dict of `precision`, `recall`, `f1`; `per_type`, a dict of type to such a
        dict with `support`, the number of true entities. Of plain tags the rest of what `classification_report` gives,
        for the tags that occur, sorted.

    Raises:
        ValueError: if the numbers of sentences or of their tags differ, there are no tags, one is not of the scheme, a
            sentence is a str, the scheme is unknown, or `strict` is asked for plain tags.

    Example:

    >>> report = tagging_report([["B-person", "I-person"]], [["I-person", "I-person"]])
    >>> report["per_type"]
    {'person': {'precision': 1.0, 'recall': 1.0, 'f1': 1.0, 'support': 1}}
    >>> tagging_report([["B-person", "I-person"]], [["I-person", "I-person"]], strict=True)["micro"]["f1"]
    0.0
    """
    if scheme not in SCHEMES:
        raise ValueError(f"unknown scheme {scheme!r}; allowed are {list(SCHEMES)}")
    if strict and scheme == "plain":
        raise ValueError("strict is about how tags spell entities, and plain tags spell none; leave it out")
    true_tags, predicted_tags = (list(map(_as_list, sentences)) for sentences in (true_tags, predicted_tags))
    _check_lengths(true_tags, predicted_tags)
    true, predicted = ([tag for tags in sentences for tag in tags] for sentences in (true_tags, predicted_tags))
    if scheme == "plain":
        report = _of_tokens(true, predicted)
    else:
        _check_tags({*true, *predicted}, scheme)
        report = {
            "token_accuracy": float(np.mean([a == b for a, b in zip(true, predicted, strict=True)])),
            **_of_entities(true_tags, predicted_tags, scheme if strict else None),
        }
    return {"sentences": len(true_tags), "tokens": len(true), **report}


def _of_tokens(true, predicted):
    names = sorted({*true, *predicted})
    numbers = {name: number for number, name in enumerate(names)}
    report = classification_report([numbers[tag] for tag in true], [numbers[tag] for tag in predicted], names)
    del report["examples"]
    return {"token_accuracy": report.pop("accuracy"), **report}


def _of_entities(true_tags, predicted_tags, strict_scheme):
    # Not seqeval's classification_report: its averages would take the place of types of their names, and it warns.
    if strict_scheme is None:
        from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

        arguments = {"zero_division": 0}
        types = {entity[0] for tags in (true_tags, predicted_tags) for entity in get_entities(tags)}
    else:
        from seqeval import scheme as schemes
        from seqeval.metrics.v1 import precision_recall_fscore_support

        arguments = {"zero_division": 0, "scheme": getattr(schemes, strict_scheme)}
        types = set.union(
            *(schemes.Entities(tags, arguments["scheme"]).unique_tags for tags in (true_tags, predicted_tags))
        )
    *scores, supports = precision_recall_fscore_support(true_tags, predicted_tags, average=None, **arguments)
    *micro, _ = precision_recall_fscore_support(true_tags, predicted_tags, average="micro", **arguments)
    return {
        "micro": dict(zip(_SCORES, map(float, micro), strict=True)),
        "macro": {name: float(np.mean(values)) if types else 0.0 for name, values in zip(_SCORES, scores, strict=True)},
        "per_type": {
            name: {**dict(zip(_SCORES, map(float, of_type), strict=True)), "support": int(support)}
            for name, *of_type, support in zip(sorted(types), *scores, supports, strict=True)
        },
    }


def _as_list(tags):
    if isinstance(tags, str):
        raise ValueError(f"tags must be a list of lists, one for each sentence; got {tags!r} for a sentence")
    return list(tags)


def _check_lengths(true_tags, predicted_tags):
    if len(true_tags) != len(predicted_tags):
        raise ValueError(
            f"there are true tags of {len(true_tags)} sentences, but predicted ones of {len(predicted_tags)}; pass "
            "both for each sentence"
        )
    for number, (true, predicted) in enumerate(zip(true_tags, predicted_tags, strict=True)):
        if len(true) != len(predicted):
            raise ValueError(f"sentence {number} has {len(true)} true tags, but {len(predicted)} predicted ones")
    if not any(true_tags):
        raise ValueError("there are no tags, so there is no score; pass at least one")


def _check_tags(tags, scheme):
    spelling = re.compile(f"O|[{_PREFIXES[scheme]}](-.+)?", re.DOTALL)
    wrong = sorted(tag for tag in tags if not spelling.fullmatch(tag))
    if wrong:
        raise ValueError(
            f"{wrong[0]!r} is no tag of {scheme}, which has O and, with a hyphen and a type behind, the letters "
            f"{', '.join(_PREFIXES[scheme])}; the schemes are {list(SCHEMES)}"
        )
