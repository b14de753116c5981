"""What text embedders are trained for: losses over the vectors of a whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops

from keras_bert.layers.text_pooling import scale_to_unit_length
from keras_bert.settings import Settings, setting
from keras_bert.typing import Tensor

MULTIPLE_NEGATIVES, TRIPLET, COSINE, COSENT = "multiple_negatives", "triplet", "cosine", "cosent"
OBJECTIVES = (MULTIPLE_NEGATIVES, TRIPLET, COSINE, COSENT)
# Objectives that compare the two texts of a pair with a score.
SCORED = (COSINE, COSENT)
_MASKED = -1e9
_DISTANCE_EPSILON = 1e-6  # torch.nn.functional.pairwise_distance


@dataclass(frozen=True, kw_only=True)
class EmbeddingObjective(Settings):
    """The loss that a `BertTextEmbedder` is trained with.

    - "multiple_negatives": the cross-entropy of each text's positive among all positives and negatives of the batch, by
      their cosines times `scale` (arXiv 1705.00652; sentence-transformers, MultipleNegativesRankingLoss). Differs from
      it: a candidate that is equal to the positive, or that belongs to an equal text, is left out.
    - "triplet": `max(d(anchor, positive) - d(anchor, negative) + margin, 0)` with Euclidean distances (TripletLoss).
    - "cosine": the squared difference of cosine and score (CosineSimilarityLoss).
    - "cosent": over all pairs of pairs whose scores differ, the logarithm of 1 + the sum of
      `exp(scale * (cosine of the lower-scored - cosine of the higher-scored))` (CoSENTLoss).

    With `matryoshka`, the loss is the sum of the losses of vectors truncated to each of these sizes (arXiv 2205.13147).

    Raises:
        TypeError, ValueError: if a setting has a value that is not allowed, or has no effect on the objective.

    Example:

    >>> EmbeddingObjective(objective="cosent").scale
    20.0
    >>> EmbeddingObjective(objective="cosine", margin=1.0)
    Traceback (most recent call last):
    ValueError: margin has no effect with objective=cosine; leave it out
    """

    objective: str = setting(MULTIPLE_NEGATIVES, "Loss that the embedder is trained with.", choices=OBJECTIVES)
    scale: float = setting(
        20.0,
        "Factor of cosines, an inverse temperature; for multiple_negatives and cosent.",
        check=(lambda value: value > 0, "must be a positive number"),
    )
    margin: float = setting(
        5.0,
        "By how much the distance of a negative should exceed that of the positive; for triplet.",
        check=(lambda value: value > 0, "must be a positive number"),
    )
    matryoshka: tuple[int, ...] = setting(
        (), "Sizes that vectors are truncated to, whose losses are added; none: whole vectors only.", lower=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, reason in self.without_effect().items():
            if not self.is_default(name):
                raise ValueError(f"{name} has no effect {reason}; leave it out")
        if len(set(self.matryoshka)) < len(self.matryoshka):
            raise ValueError(f"matryoshka must be different sizes, got {self.matryoshka}")

    def without_effect(self) -> dict[str, str]:
        """Returns the settings that the objective does not use."""
        users = {"scale": (MULTIPLE_NEGATIVES, COSENT), "margin": (TRIPLET,)}
        return {name: f"with objective={self.objective}" for name, uses in users.items() if self.objective not in uses}

    def loss(self, vectors: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Computes the loss of a batch: the weighted mean over its examples, times the sum of the weights.

        Args:
            vectors: float32 [examples, texts, size]; two texts per example, or three for triplets.
            labels: float32 [examples], scores, for the objectives of `SCORED`; otherwise [examples, texts], a
                number per text that is the same for equal texts.
            weights: float32 [examples].

        Returns:
            float32 scalar.
        """
        if not self.matryoshka:
            return self._loss(vectors, labels, weights)
        return sum(self._loss(scale_to_unit_length(vectors[..., :size]), labels, weights) for size in self.matryoshka)

    def _loss(self, vectors: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        if self.objective == TRIPLET:
            positive, negative = (_distances(vectors[:, 0], vectors[:, column]) for column in (1, 2))
            return ops.sum(weights * ops.relu(positive - negative + self.margin))
        vectors = scale_to_unit_length(vectors)
        if self.objective == MULTIPLE_NEGATIVES:
            return ops.sum(weights * _cross_entropies(vectors, labels, weights, self.scale))
        labels = ops.reshape(ops.cast(labels, "float32"), (-1,))
        cosines = ops.sum(vectors[:, 0] * vectors[:, 1], axis=-1)
        if self.objective == COSINE:
            return ops.sum(weights * ops.square(cosines - labels))
        differences = self.scale * (cosines[:, None] - cosines[None, :])
        counts = (labels[:, None] < labels[None, :]) & (weights[:, None] * weights[None, :] > 0)
        differences = ops.where(counts, differences, _MASKED)
        flat = ops.concatenate([ops.zeros((1,)), ops.reshape(differences, (-1,))])
        return ops.sum(weights) * ops.logsumexp(flat)


def _cross_entropies(vectors: Tensor, numbers: Tensor, weights: Tensor, scale: float) -> Tensor:
    """Returns the cross-entropy [examples] of each positive among the candidates of the batch."""
    own = ops.eye(ops.shape(vectors)[0], dtype="bool")
    has_own_anchor = ops.equal(numbers[:, 0][:, None], numbers[:, 0][None, :])
    scores, allowed = [], []
    for column in range(1, vectors.shape[1]):
        scores.append(scale * ops.matmul(vectors[:, 0], ops.transpose(vectors[:, column])))
        is_left_out = ops.equal(numbers[:, 1][:, None], numbers[:, column][None, :]) | (weights <= 0)[None, :]
        allowed.append(own | ~(is_left_out | has_own_anchor) if column == 1 else ~is_left_out)
    logits = ops.where(ops.concatenate(allowed, axis=1), ops.concatenate(scores, axis=1), _MASKED)
    return ops.logsumexp(logits, axis=1) - ops.diagonal(scores[0])


def _distances(first: Tensor, second: Tensor) -> Tensor:
    """Returns the Euclidean distances [examples] of vectors."""
    return ops.sqrt(ops.sum(ops.square(first - second + _DISTANCE_EPSILON), axis=-1))


def number_texts(*columns: Any) -> np.ndarray:
    """Returns int32 [examples, texts]: a number per text, the same for equal texts.

    >>> number_texts(["a", "b"], ["b", "c"]).tolist()
    [[0, 1], [1, 2]]
    """
    numbers: dict[Any, int] = {}
    rows = zip(*columns, strict=True)
    return np.array([[numbers.setdefault(text, len(numbers)) for text in row] for row in rows], "int32")
