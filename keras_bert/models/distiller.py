"""Task-agnostic distillation: a student that learns a teacher's hidden states, attention relations and text vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from keras import ops

from keras_bert.layers.dense import Dense
from keras_bert.layers.seeds import derive_seed
from keras_bert.layers.text_pooling import pool_tokens
from keras_bert.models.distillation_losses import hidden_state_loss, relation_loss, text_vector_loss
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.text_model import TextModel
from keras_bert.settings import Settings, setting
from keras_bert.typing import Inputs, PathLike, Tensor
from keras_bert.weights.sentence_transformers import EmbeddingSettings

_PAIR = re.compile(r"([0-9]+):([0-9]+)")
_HIDDEN_STATES, _RELATIONS, _TEXT_VECTORS = "hidden_states", "relations", "text_vectors"


@dataclass(frozen=True, kw_only=True)
class StateObjective(Settings):
    """What a student learns from a teacher's states; a weight of 0 leaves a part out.

    Raises:
        TypeError, ValueError: if a setting has a value that is not allowed.

    Example:

    >>> keras_bert.models.distiller.StateObjective(hidden_states=("1:2", "3:6")).layer_pairs(3, 6)
    [(1, 2), (3, 6)]
    """

    hidden_weight: float = setting(1.0, "Weight of the squared difference of hidden states.", lower=0.0)
    hidden_states: tuple[str, ...] = setting(
        (),
        "Hidden states to compare, as STUDENT:TEACHER layers, comma-separated; 0 is the output of the embeddings. "
        "Default: those of the last layers.",
        check=(lambda text: bool(_PAIR.fullmatch(text)), "must be STUDENT:TEACHER, such as 3:6"),
    )
    relation_weight: float = setting(
        0.0, "Weight of the attention relations of the student's last layer (MiniLMv2).", lower=0.0
    )
    relation_layer: int | None = setting(
        None, "The teacher's layer whose relations are learned, from 1; default: the last.", lower=1
    )
    relation_heads: int | None = setting(
        None, "Number of relation heads; default: the teacher's number of attention heads.", lower=1
    )
    vector_weight: float = setting(
        0.0, "Weight of the text vectors, the mean of the last hidden states, so that cosines are kept.", lower=0.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden_weight + self.relation_weight + self.vector_weight:
            raise ValueError("hidden_weight, relation_weight and vector_weight are all 0: there is nothing to learn")

    def layer_pairs(self, student_layers: int, teacher_layers: int) -> list[tuple[int, int]]:
        """Returns the layers to compare, for models with these numbers of layers; ValueError if one lacks a layer."""
        pairs = [(int(a), int(b)) for a, b in (pair.split(":") for pair in self.hidden_states)]
        for student, teacher in pairs:
            if student > student_layers or teacher > teacher_layers:
                raise ValueError(
                    f"hidden_states={student}:{teacher}: the student has {student_layers} layers, the teacher "
                    f"{teacher_layers}"
                )
        return pairs or [(student_layers, teacher_layers)]


class BertDistiller(TextModel):
    """A student encoder with a frozen teacher, trained on texts without labels by `keras_bert.Trainer`.

    The teacher's hidden states are computed in the step, without dropout, on the student's wordpieces; so the student's
    vocabulary must be part of the teacher's. Its text vectors are computed beforehand, from its own wordpieces, and are
    the labels. Where widths differ, a learned projection maps the student's hidden states to the teacher's; it is not
    saved. Every text counts the same in the loss.

    Args:
        encoder: the student; its pooler is frozen.
        teacher: a frozen `BertEncoder`; it is not part of the model's weights.
        preprocessor: the student's.
        teacher_vocabulary: the teacher's wordpieces, in the order of their ids; None if both have the same.
        objective: what is learned; None means the defaults of `StateObjective`.
        encoder_arguments: encoder arguments that `save_checkpoint` states instead of the encoder's own, such as the
            dropout for fine-tuning.
        seed: seed of the projections.

    Inputs: the encoder's dict of ids.

    Outputs: a dict of
        hidden_states, relations: float32 [batch], each text's loss, if it has a weight.
        text_vectors: float32 [batch, hidden], the student's.

    Raises:
        ValueError: if the student has other wordpieces than the teacher, or a layer, a number of relation heads or a
            width does not fit.

    Example:

    >>> sizes = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2}
    >>> teacher = keras_bert.BertEncoder(num_hidden_layers=2, **sizes)
    >>> distiller = BertDistiller(keras_bert.BertEncoder(num_hidden_layers=1, **sizes), teacher)
    >>> losses = distiller({"token_ids": np.array([[2, 7, 3], [2, 8, 3]])})
    >>> sorted(losses), losses["hidden_states"].shape[0]
    (['hidden_states', 'text_vectors'], 2)
    """

    def __init__(
        self,
        encoder: BertEncoder,
        teacher: BertEncoder,
        preprocessor: Any = None,
        teacher_vocabulary: Sequence[str] | None = None,
        objective: StateObjective | None = None,
        encoder_arguments: dict[str, Any] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(encoder, preprocessor)
        self.objective = objective or StateObjective()
        self._encoder_arguments = encoder_arguments or {}
        ids = (
            None if teacher_vocabulary is None else _teacher_ids(preprocessor.tokenizer.vocabulary, teacher_vocabulary)
        )
        if ids is None and encoder.vocab_size != teacher.vocab_size:
            raise ValueError(
                f"the student has {encoder.vocab_size} wordpieces and the teacher {teacher.vocab_size}; pass the "
                "teacher's as teacher_vocabulary"
            )
        # An object that Keras does not look into: the teacher is no part of the model, of its weights or checkpoints.
        self._teacher = SimpleNamespace(encoder=teacher, ids=ids)
        self._pairs = self.objective.layer_pairs(encoder.num_hidden_layers, teacher.num_hidden_layers)
        self._check_relations(encoder, teacher)
        if self.objective.vector_weight and encoder.hidden_size != teacher.hidden_size:
            raise ValueError(
                f"text vectors are learned by students of the teacher's width, {teacher.hidden_size}; the student has "
                f"hidden_size={encoder.hidden_size}. Leave vector_weight out"
            )
        if encoder.with_pooler:
            encoder.pooler.trainable = False  # nothing here depends on it
        self._projections: dict[int, str] = {}
        if self.objective.hidden_weight and encoder.hidden_size != teacher.hidden_size:
            for student, _ in self._pairs:
                name = f"projection_{student}"
                projection = Dense(
                    teacher.hidden_size,
                    initializer_range=encoder.initializer_range,
                    seed=derive_seed(seed, name),
                    dtype=self.dtype_policy,
                    name=name,
                )
                setattr(self, name, projection)
                self._projections[student] = name
        self.build()

    def _check_relations(self, encoder: BertEncoder, teacher: BertEncoder) -> None:
        layer, heads = self.objective.relation_layer, self.objective.relation_heads
        self._relation_layer = teacher.num_hidden_layers if layer is None else layer
        self._relation_heads = teacher.num_attention_heads if heads is None else heads
        if not self.objective.relation_weight:
            return
        if self._relation_layer > teacher.num_hidden_layers:
            raise ValueError(f"relation_layer={layer}: the teacher has {teacher.num_hidden_layers} layers")
        sizes = encoder.hidden_size, teacher.hidden_size
        if any(size % self._relation_heads for size in sizes):
            raise ValueError(
                f"relation_heads={self._relation_heads} must divide the hidden sizes of student and teacher, "
                f"{sizes[0]} and {sizes[1]}"
            )

    def call(self, inputs: Inputs, training: bool = False) -> dict[str, Tensor]:
        """Computes losses and text vectors of a batch of ids."""
        objective, padding_mask = self.objective, inputs.get("padding_mask")
        if padding_mask is None:
            padding_mask = ops.ones_like(inputs["token_ids"])
        student = self.encoder(inputs, training=training, return_hidden_states=True)["hidden_states"]
        outputs = {_TEXT_VECTORS: pool_tokens(ops.cast(student[-1], "float32"), padding_mask, "mean")}
        if not objective.hidden_weight and not objective.relation_weight:
            return outputs
        teacher = self._teacher_states(inputs)
        if objective.hidden_weight:
            losses = [
                hidden_state_loss(self._projected(student[own], own), teacher[other], padding_mask)
                for own, other in self._pairs
            ]
            outputs[_HIDDEN_STATES] = sum(losses) / len(losses)
        if objective.relation_weight:
            # A second time: a product of one layer, and nothing where relations are not learned.
            own = self.encoder.transformer_blocks[-1].self_attention.project(student[-2], training)
            index = self._relation_layer - 1
            block = self._teacher.encoder.transformer_blocks[index]
            other = block.self_attention.project(teacher[index])
            outputs[_RELATIONS] = relation_loss(own, other, padding_mask, self._relation_heads)
        return outputs

    def _teacher_states(self, inputs: Inputs) -> list[Tensor]:
        """Returns the teacher's hidden states, as constants."""
        if self._teacher.ids is not None:
            inputs = {**inputs, "token_ids": ops.take(ops.convert_to_tensor(self._teacher.ids), inputs["token_ids"])}
        states = self._teacher.encoder(inputs, training=False, return_hidden_states=True)["hidden_states"]
        return [ops.stop_gradient(state) for state in states]

    def _projected(self, hidden_states: Tensor, layer: int) -> Tensor:
        name = self._projections.get(layer)
        return hidden_states if name is None else getattr(self, name)(hidden_states)

    def loss_terms(
        self, labels: Any, outputs: dict[str, Tensor], sample_weight: Tensor | None = None
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Computes the losses of a batch by name, times their weights in the objective: `(sum, weight)`.

        Args:
            labels: the teacher's text vectors [batch, hidden]; any array [batch, ...] if they are not learned.
            outputs: those of `call`.
            sample_weight: float [batch] or None.
        """
        losses = {
            name: text_vector_loss(outputs[name], labels) if name == _TEXT_VECTORS else outputs[name]
            for name in self.factors
        }
        weights, factors = self._weights(labels, sample_weight), self.factors
        return {name: (factors[name] * ops.sum(losses[name] * weights), ops.sum(weights)) for name in factors}

    def loss_weights(self, labels: Any, sample_weight: Tensor | None = None) -> dict[str, Tensor]:
        """Computes the weights of `loss_terms`: the number of texts."""
        return dict.fromkeys(self.factors, ops.sum(self._weights(labels, sample_weight)))

    @property
    def factors(self) -> dict[str, float]:
        """Returns the weight of each loss in the objective."""
        objective = self.objective
        weights = {
            _HIDDEN_STATES: objective.hidden_weight,
            _RELATIONS: objective.relation_weight,
            _TEXT_VECTORS: objective.vector_weight,
        }
        return {name: weight for name, weight in weights.items() if weight}

    def _weights(self, labels: Any, sample_weight: Tensor | None) -> Tensor:
        if sample_weight is None:
            return ops.ones((ops.shape(labels)[0],), "float32")
        return ops.cast(sample_weight, "float32")

    def mean_losses(self, outputs: dict[str, np.ndarray], labels: np.ndarray) -> dict[str, float]:
        """Returns the mean of each loss over examples, from the outputs of `predict`, without the weights."""
        terms = self.loss_terms(labels, outputs)
        return {name: float(terms[name][0] / terms[name][1]) / factor for name, factor in self.factors.items()}

    def variables_by_path(self) -> dict[str, Any]:
        """Returns the student's weights by path, without the projections."""
        return self.encoder.variables_by_path("encoder/")

    def save_checkpoint(self, path: PathLike, *arguments: Any, **encoder_arguments: Any) -> Path:
        """Writes the student as a folder; see `BertClassifier.save_checkpoint`."""
        return super().save_checkpoint(path, *arguments, **{**self._encoder_arguments, **encoder_arguments})

    def classifier_arguments(self) -> EmbeddingSettings | None:
        """Returns settings of a model of embeddings, if text vectors are learned."""
        if not self.objective.vector_weight or self.preprocessor is None:
            return None
        return EmbeddingSettings("mean", normalize=True, max_length=self.preprocessor.sequence_length)


def _teacher_ids(vocabulary: Sequence[str], teacher_vocabulary: Sequence[str]) -> np.ndarray:
    """Returns the teacher's ids of the student's wordpieces; ValueError if it lacks one."""
    ids = {wordpiece: index for index, wordpiece in enumerate(teacher_vocabulary)}
    missing = [wordpiece for wordpiece in vocabulary if wordpiece not in ids]
    if missing:
        raise ValueError(
            f"the student's vocabulary must be part of the teacher's, which lacks {len(missing)} of its wordpieces, "
            f"such as {missing[0]!r}. Make the student by keras_bert.make_student"
        )
    return np.array([ids[wordpiece] for wordpiece in vocabulary], "int32")
