import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models.embedding_objectives import EmbeddingObjective, number_texts
from tests.reference import embedding_losses

VECTORS = np.random.default_rng(0).normal(size=(5, 3, 8)).astype("float32")
SCORES = np.array([0.1, 0.9, 0.4, 0.4, 0.7], "float32")
DIFFERENT = np.arange(15, dtype="int32").reshape([5, 3])
# Losses of these vectors, the norms of their gradients and the first number of each, by sentence-transformers 6.2.0.
PUBLISHED = {
    "pairs": (2, {}, None, 9.138338, 5.578027, 0.160333),
    "hard negatives": (3, {}, None, 9.379881, 5.491220, 0.137313),
    "triplet": (3, {"objective": "triplet"}, None, 4.410778, 0.760956, -0.010380),
    "cosine": (2, {"objective": "cosine"}, SCORES, 0.516886, 0.402899, 0.015390),
    "cosent": (2, {"objective": "cosent"}, SCORES, 20.744431, 15.655322, -3.374e-08),
    "matryoshka": (2, {"matryoshka": (8, 3)}, None, 16.525562, 20.543128, 0.803864),
}


def mean_loss(objective, vectors, labels, weights=None):
    weights = np.ones(len(vectors), "float32") if weights is None else weights
    return objective.loss(tf.constant(vectors), tf.constant(labels), tf.constant(weights)) / np.sum(weights)


@pytest.mark.parametrize("name", PUBLISHED)
def test_losses_and_gradients_equal_sentence_transformers(name):
    texts, settings, scores, loss, norm, first = PUBLISHED[name]
    vectors = tf.constant(VECTORS[:, :texts])
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        found = mean_loss(EmbeddingObjective(**settings), vectors, DIFFERENT[:, :texts] if scores is None else scores)
    gradient = tape.gradient(found, vectors).numpy()
    assert (float(found), np.linalg.norm(gradient)) == pytest.approx((loss, norm), abs=1e-5)
    assert gradient.flat[0] == pytest.approx(first, abs=1e-5)


@pytest.mark.parametrize("objective", ["multiple_negatives", "triplet", "cosine", "cosent"])
def test_losses_equal_the_definition(objective):
    numbers, weights = DIFFERENT.copy(), np.array([1, 2, 0, 0.5, 1], "float32")
    numbers[3, 1] = numbers[0, 1]  # the positive of row 0 is that of row 3
    numbers[4, 0] = numbers[1, 0]  # rows 1 and 4 have the same anchor
    numbers[1, 2] = numbers[4, 1]  # the negative of row 1 is the positive of row 4
    vectors, labels = VECTORS, numbers
    if objective in ("cosine", "cosent"):
        vectors, labels = VECTORS[:, :2], SCORES
    found = mean_loss(EmbeddingObjective(objective=objective), vectors, labels, weights)
    expected = getattr(embedding_losses, objective)(vectors.astype("float64"), labels, weights)
    assert float(found) == pytest.approx(expected, abs=1e-5)


def test_equal_texts_have_one_number():
    assert number_texts(["a", "b", "a"], ["c", "a", "d"]).tolist() == [[0, 1], [2, 0], [0, 3]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"objective": "softmax"},
            "objective must be one of multiple_negatives, triplet, cosine, cosent; got 'softmax'",
        ),
        ({"scale": 0}, "scale must be a positive number, got 0"),
        ({"objective": "triplet", "scale": 3.0}, "scale has no effect with objective=triplet; leave it out"),
        ({"margin": 1.0}, "margin has no effect with objective=multiple_negatives"),
        ({"matryoshka": (8, 8)}, "matryoshka must be different sizes"),
        ({"matryoshka": (0,)}, "matryoshka must be at least 1, got 0"),
    ],
)
def test_rejects_invalid_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        EmbeddingObjective(**settings)
