"""Exact search among vectors, in bounded memory, and vectors in one byte or one bit per dimension."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

PRECISIONS = ("int8", "binary")

# 1,024 x 16,384 scores take 64 MB. Larger blocks are not faster.
_BLOCK_QUERIES = 1024
_BLOCK_VECTORS = 16384
_FIRST_BLOCK = 256  # small, because all its vectors are candidates
# The bits of each byte as -1 and 1: their dot product is the number of equal bits minus that of unequal ones.
_SIGNS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) * np.float32(2) - 1  # [256, 8]


def search(queries: np.ndarray, corpus: np.ndarray, top_k: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Finds the vectors of a corpus that are most similar to each query.

    Every vector is compared. The corpus is read once, in blocks, and may be an `np.memmap`. Memory is needed for one
    block of scores and for the results.

    Args:
        queries, corpus: vectors [queries, size] and [vectors, size]. Floating-point and int8 vectors (computed in
            float32, which is exact for int8 vectors of up to 1,024 dimensions) are compared by dot product: normalize
            them for cosines. uint8 vectors hold packed bits (see `quantize_vectors`), and are compared by Hamming
            distance.
        top_k: number of results for each query; at most all vectors of the corpus are returned.

    Returns:
        scores: float32 [queries, results], descending: dot products, or negated Hamming distances.
        indices: int64 [queries, results], row numbers in the corpus. Of equal scores, the lower index is first.

    Raises:
        ValueError: if the vectors do not have these types and shapes, `top_k` is not at least 1, or a score is not
            finite.

    >>> corpus = np.array([[1, 0], [0, 1], [1, 1]], "float32")
    >>> scores, indices = search(np.array([[2, 1]], "float32"), corpus, top_k=2)
    >>> scores.tolist(), indices.tolist()
    ([[3.0, 2.0]], [[2, 0]])
    """
    for name, vectors in (("queries", queries), ("corpus", corpus)):
        if not _is_matrix(vectors) or (vectors.dtype.kind != "f" and vectors.dtype not in (np.int8, np.uint8)):
            raise ValueError(
                f"{name} must be vectors [number, size] of a floating-point type, int8 or uint8 (packed bits); got "
                f"{_described(vectors)}"
            )
    if queries.shape[1] != corpus.shape[1] or (queries.dtype == np.uint8) != (corpus.dtype == np.uint8):
        raise ValueError(
            f"queries and corpus must have vectors of one size, both packed bits or neither; got {_described(queries)} "
            f"and {_described(corpus)}"
        )
    if isinstance(top_k, bool) or not isinstance(top_k, int | np.integer) or top_k < 1:
        raise ValueError(f"top_k must be a whole number of at least 1, got {top_k!r}")
    top_k = min(int(top_k), len(corpus))
    best = np.full((len(queries), top_k), -np.inf, np.float32), np.full((len(queries), top_k), -1)
    start = 0
    while start < len(corpus):
        # Blocks that double leave few candidates in each: the vectors before it have as many of the best results.
        stop = start + min(max(start, _FIRST_BLOCK), _BLOCK_VECTORS)
        block = _as_float32(corpus[start:stop]).T
        for first in range(0, len(queries), _BLOCK_QUERIES):
            rows = slice(first, first + _BLOCK_QUERIES)
            scores = _as_float32(queries[rows]) @ block
            if queries.dtype == np.uint8:
                scores = (scores - len(block)) / 2
            if not np.isfinite(scores).all():
                query, vector = np.argwhere(~np.isfinite(scores))[0]
                raise ValueError(f"the score of query {first + query} and vector {start + vector} is not finite")
            _merge(best[0][rows], best[1][rows], scores, start)
        start = stop
    return best


def _merge(best_scores: np.ndarray, best_indices: np.ndarray, scores: np.ndarray, start: int) -> None:
    """Updates the best results [queries, top_k] in place with the scores of the vectors from `start` on."""
    # A score equal to the lowest has a higher index, so it is no candidate.
    rows, columns = np.nonzero(scores > best_scores[:, -1:])
    if not len(rows):
        return
    num_queries, top_k = best_scores.shape
    rows_of_all = np.concatenate([np.repeat(np.arange(num_queries), top_k), rows])
    scores_of_all = np.concatenate([best_scores.ravel(), scores[rows, columns]])
    indices_of_all = np.concatenate([best_indices.ravel(), columns + start])
    order = np.lexsort((indices_of_all, -scores_of_all, rows_of_all))
    firsts = np.searchsorted(rows_of_all[order], np.arange(num_queries))
    chosen = order[firsts[:, None] + np.arange(top_k)]
    best_scores[:], best_indices[:] = scores_of_all[chosen], indices_of_all[chosen]


def calibration_ranges(vectors: np.ndarray) -> np.ndarray:
    """Returns the lowest and the highest value of each dimension, for `quantize_vectors`.

    Args:
        vectors: typical vectors, numbers [vectors, size], for example the corpus or a part of it.

    Returns:
        Array [2, size].

    Raises:
        ValueError: if there are no vectors, or their values are not finite.

    >>> calibration_ranges(np.array([[0.0, -1.0], [0.5, 2.0]])).tolist()
    [[0.0, -1.0], [0.5, 2.0]]
    """
    if not _is_matrix(vectors) or not len(vectors):
        raise ValueError(f"calibration needs at least one vector [vectors, size], got {_described(vectors)}")
    ranges = np.stack([vectors.min(axis=0), vectors.max(axis=0)])
    if not np.isfinite(ranges).all():
        raise ValueError("calibration needs finite vectors; some have values that are NaN or infinite")
    return ranges


def quantize_vectors(vectors: np.ndarray, precision: str, ranges: ArrayLike | None = None) -> np.ndarray:
    """Converts vectors to one byte or one bit per dimension, as `quantize_embeddings` of sentence-transformers 6.2.

    Its name for "binary" is "ubinary"; its "binary" is the same bytes minus 128.

    Args:
        vectors: floating-point numbers [vectors, size].
        precision: "int8", where each dimension's range is divided into 255 steps, from -128 to 127, the values of
            everything below and above the range; or "binary", where the bit of a value above 0 is 1, in packed bytes
            (`np.packbits`).
        ranges: for "int8", the lowest and highest value of each dimension [2, size], from `calibration_ranges`. Use the
            same for corpus and queries.

    Returns:
        int8 array [vectors, size], or uint8 array [vectors, size / 8, rounded up].

    Raises:
        ValueError: on another precision, vectors that are not finite floating-point numbers, or ranges that are
            missing, not needed or not of that shape.

    >>> quantize_vectors(np.array([[-1.0, 0.2, 0.7]]), "binary").tolist()
    [[96]]
    >>> quantize_vectors(np.array([[-1.0, 0.0, 9.0]]), "int8", [[-1, -1, -1], [1, 1, 1]]).tolist()
    [[-128, -1, 127]]
    """
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision!r}; allowed are {PRECISIONS}")
    if not _is_matrix(vectors) or vectors.dtype.kind != "f":
        raise ValueError(f"vectors must be floating-point numbers [vectors, size], got {_described(vectors)}")
    if (precision == "int8") != (ranges is not None):
        raise ValueError(
            "ranges, from `calibration_ranges`, are needed for precision='int8' and have no effect otherwise; got "
            f"precision={precision!r} and {'no' if ranges is None else 'some'} ranges"
        )
    size = vectors.shape[1]
    if ranges is None:
        quantized = np.empty((len(vectors), -(-size // 8)), np.uint8)
    else:
        quantized, ranges = np.empty(vectors.shape, np.int8), np.asarray(ranges, np.float32)
        if ranges.shape != (2, size):
            raise ValueError(f"ranges must have the shape [2, {size}], got {ranges.shape}")
        steps = (ranges[1] - ranges[0]) / 255
        steps = np.where(steps > 0, steps, 1)  # of a dimension that is constant
    for start in range(0, len(vectors), _BLOCK_VECTORS):
        rows = slice(start, start + _BLOCK_VECTORS)
        block = vectors[rows]
        if not np.isfinite(block).all():
            raise ValueError(f"vector {start + int(np.isfinite(block).all(axis=1).argmin())} is not finite")
        if ranges is None:
            quantized[rows] = np.packbits(block > 0, axis=1)
        else:
            quantized[rows] = np.clip(np.floor((block - ranges[0]) / steps), 0, 255) - 128
    return quantized


def _as_float32(vectors: np.ndarray) -> np.ndarray:
    if vectors.dtype == np.uint8:
        return _SIGNS[vectors].reshape(len(vectors), 8 * vectors.shape[1])
    return vectors.astype(np.float32, copy=False)


def _is_matrix(vectors: Any) -> bool:
    return isinstance(vectors, np.ndarray) and vectors.ndim == 2


def _described(vectors: Any) -> str:
    return f"{vectors.dtype} {vectors.shape}" if isinstance(vectors, np.ndarray) else type(vectors).__name__
