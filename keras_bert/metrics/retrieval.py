"""Scores of rankings, defined as in trec_eval: nDCG, mean reciprocal rank, recall and mean average precision.

`ranked` is an int array [queries, ranks] of document numbers, best first; a row with fewer documents ends in -1.
`relevance` has a dict for each query, from document number to gain. Other documents have a gain of 0, and those with a
gain above 0 are relevant. Scores are means over all queries; a query without relevant documents scores 0.

Similarities of pairs of texts (STS) are scored by `keras_bert.metrics.correlation`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

Relevance = Sequence[Mapping[int, float]]


class _Hits(NamedTuple):
    """The relevant documents in the ranking of one query."""

    ranks: np.ndarray  # int [hits], from 1, ascending
    gains: np.ndarray  # float64 [hits]
    all_gains: np.ndarray  # float64 [relevant documents], descending, also of those that the ranking lacks


def rank_documents(scores: ArrayLike, k: int | None = None) -> np.ndarray:
    """Ranks documents by score, highest first; of equal scores the lower document number is first.

    Differs from trec_eval, where of equal scores the document whose name sorts last is first.

    Args:
        scores: numbers [queries, documents]; a document with -inf is left out of the ranking.
        k: length of the rankings; None is the number of documents.

    Returns:
        int64 array [queries, at most k], as `ranked` of the scores in this module.

    Raises:
        ValueError: if the scores are not numbers of that shape, or NaN, or k is not at least 1.

    >>> rank_documents([[0.2, 0.9, 0.2], [0.1, -np.inf, 0.3]]).tolist()
    [[1, 0, 2], [2, 0, -1]]
    """
    scores = np.asarray(scores)
    if scores.ndim != 2 or scores.dtype.kind not in "iuf":
        raise ValueError(f"scores must be numbers [queries, documents]; got {scores.dtype} {scores.shape}")
    if np.isnan(scores).any():
        raise ValueError(f"query {int(np.isnan(scores).any(axis=1).argmax())} has a score that is NaN")
    negated = -scores if scores.dtype.kind == "f" else -scores.astype("float64")
    ranked = np.argsort(negated, axis=1, kind="stable")[:, : None if k is None else _checked_k(k)]
    return np.where(np.isposinf(np.take_along_axis(negated, ranked, axis=1)), -1, ranked)


def ndcg(ranked: ArrayLike, relevance: Relevance, k: int = 10) -> float:
    """Computes the normalized discounted cumulative gain of the first k ranks.

    The gain is linear, as in trec_eval's `ndcg_cut` and scikit-learn's `ndcg_score`, and not 2^gain - 1. It is divided
    by log2(rank + 1), and the sum by that of the best possible ranking.

    Args:
        ranked, relevance: see the module.
        k: number of ranks.

    Returns:
        The mean over queries, from 0 to 1.

    Raises:
        ValueError: if there are no queries, the arguments differ in their number, a ranking has a document twice, or a
            gain is negative or not finite.

    >>> round(ndcg([[7, 3, 5]], [{3: 1, 5: 2}], k=3), 4)
    0.6199
    """
    k = _checked_k(k)

    def score(hits: _Hits) -> float:
        is_within = hits.ranks <= k
        ideal = hits.all_gains[:k]
        gain = np.sum(hits.gains[is_within] / np.log2(hits.ranks[is_within] + 1))
        return gain / np.sum(ideal / np.log2(np.arange(len(ideal)) + 2))

    return _mean([score(hits) if len(hits.all_gains) else 0.0 for hits in _find_hits(ranked, relevance)])


def mean_reciprocal_rank(ranked: ArrayLike, relevance: Relevance, k: int | None = None) -> float:
    """Computes the mean of 1 / rank of the first relevant document, which counts 0 after the first k ranks.

    Args:
        ranked, relevance: see the module, also for errors `ndcg`.
        k: number of ranks; None is all.

    Returns:
        The mean over queries, from 0 to 1.

    >>> mean_reciprocal_rank([[7, 3, 5], [2, 1, 0]], [{3: 1, 5: 2}, {2: 1}])
    0.75
    """
    limit = np.inf if k is None else _checked_k(k)
    firsts = [hits.ranks[0] if len(hits.ranks) else np.inf for hits in _find_hits(ranked, relevance)]
    return _mean([1 / rank if rank <= limit else 0.0 for rank in firsts])


def recall(ranked: ArrayLike, relevance: Relevance, k: int = 10) -> float:
    """Computes the fraction of the relevant documents that are within the first k ranks.

    Args:
        ranked, relevance: see the module, also for errors `ndcg`.
        k: number of ranks.

    Returns:
        The mean over queries, from 0 to 1.

    >>> recall([[7, 3, 5]], [{3: 1, 5: 2}], k=2)
    0.5
    """
    k = _checked_k(k)
    return _mean([np.sum(hits.ranks <= k) / max(len(hits.all_gains), 1) for hits in _find_hits(ranked, relevance)])


def mean_average_precision(ranked: ArrayLike, relevance: Relevance) -> float:
    """Computes the mean over queries of the average precision: that at the rank of each relevant document.

    Rankings should be complete: a relevant document that a ranking lacks counts as a precision of 0.

    Args:
        ranked, relevance: see the module, also for errors `ndcg`.

    Returns:
        The mean over queries, from 0 to 1.

    >>> round(mean_average_precision([[7, 3, 5]], [{3: 1, 5: 2}]), 4)
    0.5833
    """

    def score(hits: _Hits) -> float:
        return np.sum((np.arange(len(hits.ranks)) + 1) / hits.ranks) / max(len(hits.all_gains), 1)

    return _mean([score(hits) for hits in _find_hits(ranked, relevance)])


def _find_hits(ranked: ArrayLike, relevance: Relevance) -> list[_Hits]:
    """Returns the relevant documents of each query, after checking rankings and gains."""
    ranked = np.asarray(ranked)
    if ranked.ndim != 2 or ranked.dtype.kind not in "iu" or not len(ranked):
        raise ValueError(
            "rankings must be document numbers [queries, ranks] of at least one query, where -1 pads shorter rows; "
            f"got {ranked.dtype} {ranked.shape}"
        )
    if len(ranked) != len(relevance):
        raise ValueError(f"there are rankings of {len(ranked)} queries, but relevance of {len(relevance)}")
    in_order = np.sort(ranked, axis=1)
    is_repeated = (in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)
    if is_repeated.any():
        query, column = np.argwhere(is_repeated)[0]
        raise ValueError(f"the ranking of query {query} has document {in_order[query, column]} twice")
    return [_hits_of_query(row, gains, query) for query, (row, gains) in enumerate(zip(ranked, relevance, strict=True))]


def _hits_of_query(row: np.ndarray, relevance: Mapping[int, float], query: int) -> _Hits:
    for number, gain in relevance.items():
        if not isinstance(number, int | np.integer) or number < 0 or not 0 <= gain < np.inf:
            raise ValueError(
                "relevance is a dict from document numbers, from 0, to gains, finite numbers of at least 0; "
                f"that of query {query} has {number!r}: {gain!r}"
            )
    relevant = sorted((number, gain) for number, gain in relevance.items() if gain > 0)
    documents = np.array([number for number, _ in relevant], np.int64)
    gains = np.array([gain for _, gain in relevant], np.float64)
    positions = np.flatnonzero(np.isin(row, documents))
    found = gains[np.searchsorted(documents, row[positions])]
    return _Hits(positions + 1, found, np.sort(gains)[::-1])


def _mean(scores: Sequence[float]) -> float:
    return float(np.mean(scores))


def _checked_k(k: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k must be a whole number of at least 1, got {k!r}")
    return int(k)
