import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, ndcg_score

from keras_bert.metrics.retrieval import mean_average_precision, mean_reciprocal_rank, ndcg, rank_documents, recall
from tests.tolerances import assert_close

# Two rankings of documents 0 to 5, the second shorter, and a query without relevant documents.
RANKED = [[4, 0, 2, 5, 1], [1, 3, -1, -1, -1], [0, 1, 2, 3, 4]]
RELEVANCE = [{0: 3, 3: 2, 1: 1, 2: 0}, {1: 1}, {5: 0}]


def random_case(seed=0, queries=20, documents=30):
    """Returns distinct scores and gains, both [queries, documents], with a relevant document for every query."""
    generator = np.random.default_rng(seed)
    gains = generator.integers(0, 4, (queries, documents)) * (generator.random((queries, documents)) < 0.3)
    gains[:, 0] = 1
    return generator.permuted(np.tile(np.arange(documents), (queries, 1)), axis=1), gains


def test_scores_of_hand_computed_cases():
    # Query 0 has relevant documents at ranks 2 (gain 3) and 5 (gain 1), and lacks one with gain 2.
    ideal = 3 + 2 / math.log2(3) + 1 / math.log2(4)
    first = (3 / math.log2(3) + 1 / math.log2(6)) / ideal
    assert ndcg(RANKED, RELEVANCE) == pytest.approx((first + 1 + 0) / 3)
    assert ndcg(RANKED, RELEVANCE, k=2) == pytest.approx((3 / math.log2(3) / (3 + 2 / math.log2(3)) + 1) / 3)
    assert mean_reciprocal_rank(RANKED, RELEVANCE) == pytest.approx((1 / 2 + 1) / 3)
    assert mean_reciprocal_rank(RANKED, RELEVANCE, k=1) == pytest.approx(1 / 3)
    assert recall(RANKED, RELEVANCE, k=4) == pytest.approx((1 / 3 + 1) / 3)
    assert recall(RANKED, RELEVANCE, k=10) == pytest.approx((2 / 3 + 1) / 3)
    assert mean_average_precision(RANKED, RELEVANCE) == pytest.approx(((1 / 2 + 2 / 5) / 3 + 1) / 3)


def test_scores_equal_scikit_learn():
    scores, gains = random_case()
    ranked, relevance = rank_documents(scores), [dict(enumerate(row)) for row in gains.tolist()]
    for k in (1, 5, 30, 100):
        assert_close(ndcg(ranked, relevance, k), ndcg_score(gains, scores, k=k), 30, "float64")
    precisions = [average_precision_score(row > 0, values) for row, values in zip(gains, scores, strict=True)]
    assert_close(mean_average_precision(ranked, relevance), np.mean(precisions), 30, "float64")


def test_scores_equal_loops_over_rankings():
    scores, gains = random_case(seed=1)
    ranked = rank_documents(scores, k=10)
    recalls, reciprocals = [], []
    for row, query_gains in zip(ranked.tolist(), gains, strict=True):
        ranks = [rank for rank, document in enumerate(row, 1) if query_gains[document] > 0]
        recalls.append(len([rank for rank in ranks if rank <= 5]) / np.sum(query_gains > 0))
        reciprocals.append(1 / min(ranks) if ranks and min(ranks) <= 5 else 0)
    relevance = [{number: gain for number, gain in enumerate(row) if gain} for row in gains.tolist()]
    assert recall(ranked, relevance, k=5) == pytest.approx(np.mean(recalls))
    assert mean_reciprocal_rank(ranked, relevance, k=5) == pytest.approx(np.mean(reciprocals))
    assert 0 < np.mean(recalls) < np.mean(reciprocals) < 1


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_ties_are_ranked_by_document_number(dtype):
    scores = np.array([[1, 3, 3, 0, 1, 3]], dtype)
    assert rank_documents(scores).tolist() == [[1, 2, 5, 0, 4, 3]]
    assert rank_documents(scores, k=4).tolist() == [[1, 2, 5, 0]]


def test_documents_without_a_score_are_left_out():
    scores = np.array([[1.0, -np.inf, 2.0], [-np.inf] * 3])
    assert rank_documents(scores).tolist() == [[2, 0, -1], [-1, -1, -1]]


@pytest.mark.parametrize(
    ("ranked", "relevance", "message"),
    [
        ([[0.5]], [{}], r"rankings must be document numbers \[queries, ranks\].*float64"),
        ([0, 1], [{}], r"got int64 \(2,\)"),
        (np.zeros([0, 3], int), [], "at least one query"),
        ([[0]], [{}, {}], "rankings of 1 queries, but relevance of 2"),
        ([[0, 1], [4, 4]], [{}, {}], "the ranking of query 1 has document 4 twice"),
        ([[0]], [{0: -1}], "query 0 has 0: -1"),
        ([[0]], [{0: float("nan")}], "query 0 has 0: nan"),
        ([[0]], [{"0": 1}], "query 0 has '0': 1"),
        ([[0, -1]], [{-1: 1}], "query 0 has -1: 1"),
    ],
)
def test_rejects_invalid_rankings(ranked, relevance, message):
    with pytest.raises(ValueError, match=message):
        ndcg(ranked, relevance)


def test_rejects_invalid_scores_and_numbers_of_ranks():
    with pytest.raises(ValueError, match="query 1 has a score that is NaN"):
        rank_documents([[1.0], [np.nan]])
    with pytest.raises(ValueError, match=r"scores must be numbers \[queries, documents\]; got float64 \(1,\)"):
        rank_documents([1.0])
    for k in (0, 2.5, True):
        with pytest.raises(ValueError, match="k must be a whole number of at least 1"):
            recall(RANKED, RELEVANCE, k)
