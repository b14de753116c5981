import numpy as np
import pytest

from keras_bert.models.distilled_classifier import DistilledClassifier
from tests.reference import distillation as reference
from tests.toys import toy_encoder


def test_loss_mixes_labels_and_logits():
    model = DistilledClassifier(toy_encoder(num_hidden_layers=1), ["no", "yes", "maybe"], class_weights=[1.0, 2.0, 1.0])
    model.temperature, model.teacher_weight = 3.0, 0.25
    generator = np.random.default_rng(0)
    outputs, teacher = generator.normal(size=[2, 4, 3]).astype("float32")
    numbers, weights = np.array([2, 0, 1, 1]), np.array([1.0, 2.0, 0.0, 1.0])
    total, weight = model.loss_terms(np.column_stack([numbers, teacher]), outputs, weights)["loss"]
    expected = 0.0
    for number, own, other, factor in zip(numbers, outputs, teacher, weights * [1, 1, 2, 2], strict=True):
        cross_entropy = np.log(np.exp(own).sum()) - own[number]
        expected += factor * (0.75 * cross_entropy + 0.25 * reference.logit_loss(own, other, 3.0))
    assert (float(total), float(weight)) == (pytest.approx(expected, rel=1e-5), 5.0)
    weights_alone = model.loss_weights(np.column_stack([numbers, teacher]), weights)
    assert float(weights_alone["loss"]) == 5.0
