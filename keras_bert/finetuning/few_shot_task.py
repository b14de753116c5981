"""Classification from few examples per class, in SetFit's two steps (arXiv 2209.11055)."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from keras_bert.data.contrastive_pairs import contrastive_pairs
from keras_bert.data.example_stream import Example
from keras_bert.data.tokenized_examples import TokenizedExamples
from keras_bert.finetuning.task import Metrics
from keras_bert.finetuning.text_classification import TextClassification, TextClassificationSettings
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.embedding_objectives import COSINE
from keras_bert.models.labels import SINGLE_LABEL
from keras_bert.models.text_embedder import BertTextEmbedder
from keras_bert.settings import setting
from keras_bert.weights.layout import POOLINGS


@dataclasses.dataclass(frozen=True, kw_only=True)
class FewShotSettings(TextClassificationSettings):
    """Settings of SetFit: the files of a classification, how many examples are drawn, and both steps."""

    problem_type: str = setting(SINGLE_LABEL, "One label per text.", choices=(SINGLE_LABEL,))
    pooling: str | None = setting(None, "Default: that of a sentence-transformers folder, or mean.", choices=POOLINGS)
    examples_per_class: int | None = setting(
        None,
        "Number of training examples of each label, drawn at random by the seed; default: all.",
        lower=1,
        modes=("train",),
    )
    max_pairs: int = setting(
        10_000,
        "Maximum number of pairs of texts in an epoch of the first step, half of them with equal labels.",
        lower=2,
        modes=("train",),
    )
    inverse_regularization: float = setting(
        1.0,
        "C of the logistic regression, the second step: the higher, the closer it fits the training examples.",
        check=(lambda value: value > 0, "must be a positive number"),
        modes=("train",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text_columns is not None:
            raise ValueError("texts are embedded one by one: give text_column, not text_columns")


class FewShotClassification(TextClassification):
    """Training on a user's files in SetFit's two steps; `from_settings` reads them.

    The first step trains a `BertTextEmbedder` on pairs of texts. The second fits a `BertClassifier` on its vectors, for
    every evaluation and at the end: that classifier is saved, and used in all modes but training.
    """

    has_dropout = False
    settings: FewShotSettings
    settings_class = FewShotSettings
    _seed = 1
    _classifier: BertClassifier | None = None

    @classmethod
    def from_settings(
        cls, settings: TextClassificationSettings, modes: Collection[str], seed: int = 1
    ) -> FewShotClassification:
        assert isinstance(settings, FewShotSettings)
        task = super().from_settings(settings, modes, seed)
        assert isinstance(task, cls)
        task._seed = seed
        if settings.examples_per_class is not None and task.data.train is not None:
            drawn = draw_examples(task.data.train, settings.examples_per_class, seed)
            task.data = dataclasses.replace(task.data, train=drawn)
        return task

    def load_initial_model(self, checkpoint: str | Path, arguments: dict[str, Any]) -> BertTextEmbedder:
        if self.settings.pooling is not None:
            arguments = {"pooling": self.settings.pooling, **arguments}
        return BertTextEmbedder.from_checkpoint(checkpoint, objective=COSINE, **arguments)

    def finished_model(self, model: BertTextEmbedder) -> BertClassifier:
        if self._classifier is None or self._classifier.encoder is not model.encoder:
            if model.projection is not None:
                raise ValueError("the checkpoint has a dense layer on its text vectors, which a classifier lacks")
            self._classifier = BertClassifier(
                model.encoder, self.labels, model.preprocessor, pooling=model.pooling, dtype=model.dtype_policy
            )
        self._classifier.fit_logits(*self._training_texts(), self.settings.inverse_regularization)
        return self._classifier

    def configuration(self, model: BertTextEmbedder) -> dict[str, Any]:
        return super().configuration(self.finished_model(model))

    def training_examples(self, model: BertTextEmbedder | BertClassifier) -> TokenizedExamples:
        if isinstance(model, BertClassifier):
            return super().training_examples(model)

        def tokenize() -> TokenizedExamples:
            pairs, scores = contrastive_pairs(*self._training_texts(), self.settings.max_pairs, self._seed)
            logging.info("train: %d pairs of texts", len(scores))
            return model.tokenize_columns(pairs, scores)

        return self.tokenized_once("pairs", tokenize)

    def split_metrics(self, model: BertTextEmbedder | BertClassifier, split: str, batch_size: int | None) -> Metrics:
        if isinstance(model, BertTextEmbedder):
            model = self.finished_model(model)
        return super().split_metrics(model, split, batch_size)

    def _training_texts(self) -> tuple[list[str], list[str]]:
        assert self.data.train is not None
        rows = list(self.data.train)
        return [row["text"] for row in rows], [row["label"] for row in rows]


def draw_examples(examples: Iterable[Example], number: int, seed: int) -> list[Example]:
    """Draws a number of examples of each label, and returns them in their order; ValueError if a label has fewer."""
    rows = list(examples)
    rows_of_labels: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        rows_of_labels[row["label"]].append(index)
    too_few = {label: len(indices) for label, indices in rows_of_labels.items() if len(indices) < number}
    if too_few:
        counts = ", ".join(f"{label!r} has {count}" for label, count in too_few.items())
        raise ValueError(f"examples_per_class={number} is more than some labels have examples to train on: {counts}")
    generator = np.random.default_rng(seed)
    drawn = [generator.choice(rows_of_labels[label], number, replace=False) for label in sorted(rows_of_labels)]
    return [rows[index] for index in np.sort(np.concatenate(drawn))]
