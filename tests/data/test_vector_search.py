import numpy as np
import pytest

from keras_bert.data import vector_search
from keras_bert.data.vector_search import calibration_ranges, quantize_vectors, search
from tests.tolerances import assert_close


@pytest.fixture
def small_blocks(monkeypatch):
    """Makes searches of small corpora take several blocks of queries and of vectors."""
    for name, size in (("_BLOCK_QUERIES", 4), ("_BLOCK_VECTORS", 64), ("_FIRST_BLOCK", 8)):
        monkeypatch.setattr(vector_search, name, size)


def random_vectors(kind, number, size, seed):
    """Returns random vectors: int8, bits, or small whole numbers, whose dot products are exact and have ties."""
    generator = np.random.default_rng(seed)
    if kind == "int8":
        return generator.integers(-128, 128, (number, size), dtype="int8")
    vectors = generator.integers(-2, 3, (number, size)).astype("float32")
    return quantize_vectors(vectors, "binary") if kind == "binary" else vectors


def slow_search(queries, corpus, top_k):
    """Sorts all vectors by score, then by index, query by query."""
    results = []
    for query in queries:
        if corpus.dtype == np.uint8:
            scores = [-sum(int(byte).bit_count() for byte in query ^ vector) for vector in corpus]
        else:
            scores = [float(np.dot(query.astype("float64"), vector.astype("float64"))) for vector in corpus]
        results.append(sorted((-score, index) for index, score in enumerate(scores))[:top_k])
    return results


@pytest.mark.parametrize("kind", ["float32", "int8", "binary"])
@pytest.mark.parametrize(("number", "top_k"), [(300, 1), (300, 20), (5, 20), (64, 64)])
def test_results_equal_a_slow_search(kind, number, top_k, small_blocks):
    queries, corpus = random_vectors(kind, 9, 12, seed=1), random_vectors(kind, number, 12, seed=2)
    scores, indices = search(queries, corpus, top_k)
    expected = np.array(slow_search(queries, corpus, top_k))
    np.testing.assert_array_equal(indices, expected[..., 1])
    np.testing.assert_array_equal(scores, -expected[..., 0])
    assert (scores.dtype, indices.dtype) == (np.float32, np.int64)


def test_scores_in_any_order_of_the_corpus(small_blocks):
    corpus = np.arange(200, dtype="float32")[:, None]
    for order in (slice(None), slice(None, None, -1)):
        scores, _ = search(np.array([[1.0], [-1.0]], "float32"), corpus[order], 3)
        assert scores.tolist() == [[199, 198, 197], [0, -1, -2]]


def test_equal_vectors_are_found_in_the_order_of_the_corpus(small_blocks):
    assert search(np.ones((1, 3), "float32"), np.ones((200, 3), "float32"), 20)[1].tolist() == [list(range(20))]


def test_reads_a_file_and_other_floating_point_types(tmp_path, small_blocks):
    generator = np.random.default_rng(0)
    queries, corpus = generator.normal(size=(3, 5)), generator.normal(size=(200, 5)).astype("float32")
    file = np.memmap(tmp_path / "vectors", "float32", "w+", shape=corpus.shape)
    file[:] = corpus
    scores, indices = search(queries, file, 7)
    exact = queries @ corpus.astype("float64").T
    np.testing.assert_array_equal(indices, np.argsort(-exact, axis=1)[:, :7])
    assert_close(scores, -np.sort(-exact, axis=1)[:, :7], num_terms=5)


def test_mixed_queries_search_int8_vectors():
    corpus = random_vectors("int8", 50, 6, seed=0)
    queries = np.random.default_rng(1).normal(size=(2, 6)).astype("float32")
    np.testing.assert_array_equal(search(queries, corpus, 5)[1], search(queries, corpus.astype("float32"), 5)[1])


@pytest.mark.parametrize(("num_queries", "number"), [(0, 3), (3, 0), (0, 0)])
def test_empty_inputs_have_empty_results(num_queries, number):
    scores, indices = search(np.zeros((num_queries, 2), "float32"), np.zeros((number, 2), "float32"), 2)
    assert scores.shape == indices.shape == (num_queries, min(number, 2))


def test_int8_vectors_divide_each_dimension_into_255_steps():
    vectors = np.random.default_rng(0).normal(size=(50, 7)).astype("float32")
    vectors[:, 3] = 0.25  # a constant dimension
    low, high = ranges = calibration_ranges(vectors[:40])
    np.testing.assert_array_equal(ranges, [vectors[:40].min(axis=0), vectors[:40].max(axis=0)])
    quantized = quantize_vectors(vectors, "int8", ranges)
    for row in range(50):
        for column in (0, 1, 2, 4, 5, 6):
            level = (vectors[row, column] - low[column]) / (high[column] - low[column]) * 255
            # Near a whole number, a rounding error decides which.
            allowed = {min(max(int(np.floor(level + error)), 0), 255) - 128 for error in (-1e-3, 0, 1e-3)}
            assert quantized[row, column] in allowed
    assert (quantized[:, 3] == -128).all()
    assert quantized[:40, [0, 1, 2, 4, 5, 6]].min() == -128


def test_binary_vectors_have_a_bit_per_dimension():
    vectors = np.random.default_rng(0).integers(-1, 2, (20, 11)).astype("float32")
    bits = quantize_vectors(vectors, "binary")
    assert (bits.dtype, bits.shape) == (np.uint8, (20, 2))
    np.testing.assert_array_equal(np.unpackbits(bits, axis=1)[:, :11], vectors > 0)


@pytest.mark.parametrize(
    ("queries", "corpus", "top_k", "message"),
    [
        (np.zeros(2, "float32"), np.zeros((3, 2), "float32"), 1, r"queries must be vectors.*got float32 \(2,\)"),
        (np.zeros((1, 2), "float32"), [[0.0, 1.0]], 1, "corpus must be vectors.*got list"),
        (np.zeros((1, 2), "int64"), np.zeros((3, 2), "float32"), 1, r"got int64 \(1, 2\)"),
        (np.zeros((1, 2), "float32"), np.zeros((3, 4), "float32"), 1, "of one size"),
        (np.zeros((1, 2), "float32"), np.zeros((3, 2), "uint8"), 1, "both packed bits or neither"),
        (np.zeros((1, 2), "float32"), np.zeros((3, 2), "float32"), 0, "top_k must be .* at least 1, got 0"),
        (np.ones((2, 1), "float32"), np.array([[0], [np.nan]], "float32"), 1, "query 0 and vector 1 is not finite"),
    ],
)
def test_rejects_invalid_searches(queries, corpus, top_k, message):
    with pytest.raises(ValueError, match=message):
        search(queries, corpus, top_k)


@pytest.mark.parametrize(
    ("vectors", "precision", "ranges", "message"),
    [
        (np.zeros((1, 2)), "uint8", None, r"unknown precision 'uint8'; allowed are \('int8', 'binary'\)"),
        (np.zeros((1, 2), "int8"), "binary", None, r"must be floating-point numbers.*got int8 \(1, 2\)"),
        (np.zeros((1, 2)), "int8", None, "precision='int8' and no ranges"),
        (np.zeros((1, 2)), "binary", np.zeros((2, 2)), "precision='binary' and some ranges"),
        (np.zeros((1, 2)), "int8", np.zeros((2, 3)), r"must have the shape \[2, 2\], got \(2, 3\)"),
        (np.array([[0.0], [np.inf]]), "binary", None, "vector 1 is not finite"),
    ],
)
def test_rejects_invalid_quantization(vectors, precision, ranges, message):
    with pytest.raises(ValueError, match=message):
        quantize_vectors(vectors, precision, ranges)


@pytest.mark.parametrize("vectors", [np.zeros((0, 2)), np.array([[0.0], [np.nan]])])
def test_rejects_invalid_calibration(vectors):
    with pytest.raises(ValueError, match="calibration needs"):
        calibration_ranges(vectors)
