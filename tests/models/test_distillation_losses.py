import numpy as np
import pytest

from keras_bert.layers.text_pooling import pool_tokens
from keras_bert.models.distillation_losses import (
    hidden_state_loss,
    logit_loss,
    relation_loss,
    text_vector_loss,
)
from tests.reference import distillation as reference

LENGTHS = (5, 1, 3)
MASK = np.array([[1] * length + [0] * (5 - length) for length in LENGTHS])


def states(width, seed):
    return np.random.default_rng(seed).normal(size=[3, 5, width]).astype("float32")


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_logits(temperature):
    student, teacher = (np.random.default_rng(seed).normal(scale=3, size=[4, 3]) for seed in (0, 1))
    expected = [reference.logit_loss(*rows, temperature) for rows in zip(student, teacher, strict=True)]
    np.testing.assert_allclose(logit_loss(student, teacher, temperature), expected, rtol=1e-5)


def test_hidden_states():
    student, teacher = states(8, 0), states(8, 1)
    expected = [reference.hidden_state_loss(student[row, :n], teacher[row, :n]) for row, n in enumerate(LENGTHS)]
    np.testing.assert_allclose(hidden_state_loss(student, teacher, MASK), expected, rtol=1e-5)


@pytest.mark.parametrize(("student_width", "heads"), [(8, 2), (12, 4), (8, 1)])
def test_relations_of_models_of_any_width(student_width, heads):
    student, teacher = states(3 * student_width, 0), states(3 * 8, 1)
    expected = [
        reference.relation_loss(np.split(student[row, :n], 3, axis=1), np.split(teacher[row, :n], 3, axis=1), heads)
        for row, n in enumerate(LENGTHS)
    ]
    np.testing.assert_allclose(relation_loss(student, teacher, MASK, heads), expected, rtol=1e-4, atol=1e-6)
    assert expected[0] > 0.1


def test_text_vectors():
    student, teacher = states(8, 0), states(8, 1)
    pooled = [np.asarray(pool_tokens(part, MASK, "mean")) for part in (student, teacher)]
    np.testing.assert_allclose(pooled[0][2], student[2, :3].mean(axis=0), rtol=1e-5)
    expected = [reference.text_vector_loss(*rows) for rows in zip(*pooled, strict=True)]
    np.testing.assert_allclose(text_vector_loss(*pooled), expected, rtol=1e-5)


def test_a_row_of_padding_only_has_no_loss():
    mask = np.zeros([3, 5], "int32")
    for losses in (
        hidden_state_loss(states(8, 0), states(8, 1), mask),
        relation_loss(states(6, 0), states(6, 1), mask, 2),
    ):
        np.testing.assert_array_equal(losses, np.zeros(3))
