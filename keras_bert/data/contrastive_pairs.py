"""Pairs of few labelled texts, on which SetFit trains a text embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bert.data.columns import PAIR_COLUMNS, text_column

_MAX_TEXTS = 5000  # whose 12.5 million pairs take half a GB


def contrastive_pairs(
    texts: Any, labels: Sequence[Any], max_pairs: int | None = None, seed: int = 0
) -> tuple[dict[str, list[str]], np.ndarray]:
    """Returns pairs of labelled texts, with the score 1 for equal labels and 0 for different ones.

    Training a `BertTextEmbedder` on them with the objective "cosine" is the first step of SetFit (arXiv 2209.11055);
    `BertClassifier.fit_logits` is the second. Of all pairs, each text with itself included, those with equal and those
    with different labels are shuffled, and the rarer kind is repeated until there are as many of it, as in the setfit
    library's "oversampling".

    Args:
        texts: a list of texts, at most 5,000.
        labels: a label per text; at least two different ones.
        max_pairs: maximum number of pairs, half of them with equal labels; None returns all.
        seed: seed of the order, and of the choice where `max_pairs` leaves some out.

    Returns:
        The texts of the pairs, a dict of `text_a` and `text_b`, and their scores, float32 [pairs]. Equal and different
        labels alternate.

    Raises:
        ValueError: if the numbers of texts and labels differ, all labels are equal, there are too many texts, or
            `max_pairs` is below 2.
        TypeError: if some texts are not strings.

    Example:

    >>> pairs, scores = contrastive_pairs(["good", "bad"], ["yes", "no"])
    >>> scores.tolist()
    [1.0, 0.0, 1.0, 0.0]
    >>> [pair for pair, score in zip(zip(pairs["text_a"], pairs["text_b"]), scores) if score == 0]
    [('good', 'bad'), ('good', 'bad')]
    """
    texts = text_column(texts, "texts")
    if len(texts) != len(labels):
        raise ValueError(f"there must be a label per text; got {len(texts)} texts and {len(labels)} labels")
    if len(texts) > _MAX_TEXTS:
        raise ValueError(f"pairs are made of at most {_MAX_TEXTS} texts, got {len(texts)}; draw some of each label")
    if max_pairs is not None and max_pairs < 2:
        raise ValueError(f"max_pairs must be at least 2, one for equal and one for different labels; got {max_pairs}")
    names, numbers = np.unique(np.asarray(labels), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"there must be at least two different labels, got {names.tolist()}")
    first, second = np.triu_indices(len(texts))
    is_equal = numbers[first] == numbers[second]
    num_of_each = int(max(is_equal.sum(), (~is_equal).sum()))
    if max_pairs is not None:
        num_of_each = min(num_of_each, max_pairs // 2)
    generator = np.random.default_rng(seed)
    # np.resize repeats the shuffled pairs from the first one on.
    chosen = [np.resize(generator.permutation(np.flatnonzero(kind)), num_of_each) for kind in (is_equal, ~is_equal)]
    alternating = np.stack(chosen, axis=1).ravel()
    columns = (texts[rows[alternating]].tolist() for rows in (first, second))
    return dict(zip(PAIR_COLUMNS, columns, strict=True)), np.tile([1.0, 0.0], num_of_each).astype("float32")
