"""A classifier that learns from a teacher's logits besides the labels."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.distillation_losses import logit_loss
from keras_bert.models.head import LossTerms
from keras_bert.typing import Tensor


class DistilledClassifier(BertClassifier):
    """A `BertClassifier` of single labels whose loss is a mean of two: on labels and on a teacher's logits.

    Its labels are rows of a label's number and the teacher's logits, float32 [batch, 1 + labels]. The loss is
    `(1 - teacher_weight) * cross-entropy + teacher_weight * logit_loss`; see
    `keras_bert.models.distillation_losses.logit_loss`. Its checkpoints are those of a `BertClassifier`.

    Example:

    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> classifier = DistilledClassifier(encoder, labels=2)
    >>> classifier.teacher_weight = 1.0
    >>> total, weight = classifier.loss_terms(np.array([[1, 0.5, 2.0]]), np.float32([[0.5, 2.0]]))["loss"]
    >>> float(total), float(weight)
    (0.0, 1.0)
    """

    temperature = 2.0
    teacher_weight = 0.5

    def loss_terms(self, labels: Any, outputs: Any, sample_weight: Tensor | None = None) -> LossTerms:
        """Computes the loss of a batch of labels with the teacher's logits; see the class."""
        own, total = super().loss_terms(_numbers(labels), outputs, sample_weight)["loss"]
        weights = self._weights(labels, sample_weight)[:, 0]
        distilled = ops.sum(logit_loss(outputs, labels[:, 1:], self.temperature) * weights)
        return {"loss": ((1.0 - self.teacher_weight) * own + self.teacher_weight * distilled, total)}

    def _weights(self, labels: Any, sample_weight: Tensor | None) -> Tensor:
        return super()._weights(_numbers(labels), sample_weight)


def _numbers(labels: Any) -> Tensor:
    """Returns the numbers of the labels, of which rows have the logits too."""
    return ops.cast(labels[:, 0] if len(labels.shape) == 2 else labels, "int32")
