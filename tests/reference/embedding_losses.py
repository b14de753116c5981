"""Losses of embeddings by their definitions, one example at a time: weighted means over the examples."""

import numpy as np


def cosine_of(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def multiple_negatives(vectors, numbers, weights, scale=20.0):
    losses = []
    for row in range(len(vectors)):
        anchor, positive = numbers[row, :2]
        scores = []
        for other in range(len(vectors)):
            for column in range(1, vectors.shape[1]):
                is_own = (other, column) == (row, 1)
                is_positive = numbers[other, column] == positive or (column == 1 and numbers[other, 0] == anchor)
                if is_own or (weights[other] > 0 and not is_positive):
                    scores.append(scale * cosine_of(vectors[row, 0], vectors[other, column]))
        own = scale * cosine_of(vectors[row, 0], vectors[row, 1])
        losses.append(np.log(np.sum(np.exp(scores))) - own)
    return np.average(losses, weights=weights)


def triplet(vectors, _, weights, margin=5.0):
    losses = []
    for anchor, positive, negative in vectors:
        distances = [np.linalg.norm(anchor - other) for other in (positive, negative)]
        losses.append(max(distances[0] - distances[1] + margin, 0))
    return np.average(losses, weights=weights)


def cosine(vectors, scores, weights):
    losses = [(cosine_of(a, b) - score) ** 2 for (a, b), score in zip(vectors, scores, strict=True)]
    return np.average(losses, weights=weights)


def cosent(vectors, scores, weights, scale=20.0):
    cosines = [cosine_of(a, b) for a, b in vectors]
    total = 1.0
    for i in range(len(vectors)):
        for j in range(len(vectors)):
            if scores[i] < scores[j] and weights[i] > 0 and weights[j] > 0:
                total += np.exp(scale * (cosines[i] - cosines[j]))
    return np.log(total)
