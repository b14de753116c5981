"""Classification and regression of texts and pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
from absl import logging

from keras_bert.data.tokenized_examples import TokenizedExamples, log_long_texts, tokenize_examples
from keras_bert.export.export_options import ExportArguments
from keras_bert.finetuning.plots import draw_confusion_matrix
from keras_bert.finetuning.task import FineTuningTask, Metrics, TaskData, by_split, skip_if_read_only
from keras_bert.metrics.classification import classification_report, multi_label_report
from keras_bert.metrics.correlation import regression_report
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.labels import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from keras_bert.weights.layout import CLASSIFIER_HEAD


class Predictions(NamedTuple):
    """Predictions for a split: the examples' numbers or lines, and label names, lists of them, or floats.

    `probabilities` are [examples, labels], or None for regression.
    """

    indices: list[Any]
    values: list[Any]
    probabilities: np.ndarray | None
    labels: list[str]


class ClassificationTask(FineTuningTask):
    """Base class of the tasks with one output per text or pair; a subclass defines `metrics` and `write_split`."""

    head = CLASSIFIER_HEAD
    unit = "examples"

    def __init__(
        self,
        name: str,
        score: str,
        data: TaskData,
        labels: list[str] | None,
        problem_type: str = SINGLE_LABEL,
        is_pair: bool = False,
        models_of: tuple[str, ...] = (),
    ) -> None:
        super().__init__(name, score, data, models_of)
        self.labels = labels
        self.problem_type = problem_type
        self.is_pair = is_pair

    def metrics(self, labels: np.ndarray, predictions: np.ndarray, num_labels: int) -> Metrics:
        """Computes the metrics of int labels [examples], 0/1 rows [examples, labels] or floats [examples]."""
        raise NotImplementedError

    def write_split(self, folder: Path, split: str, predictions: Predictions) -> Path:
        """Writes the predictions of a split, and returns the file."""
        raise NotImplementedError

    def configuration(self, model: BertClassifier) -> dict[str, Any]:
        for split, examples in self.data.evaluation.items():
            true_values = self._true_values(self.tokenize_split(split, examples, model))
            self.metrics(true_values, true_values, len(model.labels))
        return {**super().configuration(model), "labels": self.labels, "problem_type": self.problem_type}

    def load_model(self, checkpoint: str | Path, arguments: dict[str, Any]) -> BertClassifier:
        return BertClassifier.from_checkpoint(
            checkpoint, labels=self.labels, problem_type=self.problem_type, **arguments
        )

    def describe_head(self, model: BertClassifier) -> str:
        return f"classification layer for the labels {model.labels} ({self.problem_type})"

    def split_metrics(self, model: BertClassifier, split: str, batch_size: int | None) -> Metrics:
        return self._evaluate(model, split, batch_size)[2]

    def report(self, model: BertClassifier, run_dir: Path, batch_size: int | None) -> tuple[Metrics, dict[str, Any]]:
        metrics: dict[str, Metrics] = {}
        reports: dict[str, dict[str, Any]] = {}
        for split in self.data.evaluation:
            true_values, predictions, metrics[split] = self._evaluate(model, split, batch_size)
            if self.problem_type == REGRESSION:
                reports[split] = regression_report(true_values, predictions)
            elif self.problem_type == MULTI_LABEL:
                reports[split] = multi_label_report(true_values, predictions, model.labels)
            else:
                reports[split] = classification_report(true_values, predictions, model.labels)
                file = run_dir / f"confusion_matrix_{split}.png"
                with skip_if_read_only(file):
                    draw_confusion_matrix(file, reports[split]["confusion_matrix"], model.labels)
        return by_split(metrics), reports

    def write_predictions(self, model: BertClassifier, folder: Path, batch_size: int | None) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for split, examples in self.data.prediction.items():
            indices: list[Any] = []
            tokenized = tokenize_examples(_record_indices(examples, indices), model.preprocessor)
            probabilities, predictions = self._predict(model, tokenized, batch_size)
            shown = None if self.problem_type == REGRESSION else probabilities
            values = self._label_names(model, predictions)
            files.append(self.write_split(folder, split, Predictions(indices, values, shown, model.labels)))
        return files

    def export(self, model: BertClassifier, folder: Path, **options: Unpack[ExportArguments]) -> Path:
        return model.export(folder, pairs=self.is_pair, **options)

    def tokenize_split(self, split: str, examples: Iterable[Any], model: BertClassifier) -> TokenizedExamples:
        def tokenize() -> TokenizedExamples:
            tokenized = tokenize_examples(examples, model.preprocessor, model.encode_labels)
            logging.info("%s: %d examples", split, len(tokenized))
            log_long_texts(tokenized.token_counts, model.preprocessor)
            return tokenized

        return self.tokenized_once(split, tokenize)

    def _evaluate(
        self, model: BertClassifier, split: str, batch_size: int | None
    ) -> tuple[np.ndarray, np.ndarray, Metrics]:
        """Returns true values, predictions and metrics of an evaluation split."""
        tokenized = self.tokenize_split(split, self.data.evaluation[split], model)
        predictions = self._predict(model, tokenized, batch_size)[1]
        true_values = self._true_values(tokenized)
        self._warn_of_one_class(model, split, true_values, predictions)
        return true_values, predictions, self.metrics(true_values, predictions, len(model.labels))

    def _predict(
        self, model: BertClassifier, tokenized: TokenizedExamples, batch_size: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities or values [examples, labels], and predictions in the form that `metrics` takes."""
        logits = model.predict(tokenized, batch_size, verbose=0)
        probabilities = np.asarray(model.probabilities(logits))
        if self.problem_type == SINGLE_LABEL:
            return probabilities, logits.argmax(axis=-1)
        if self.problem_type == MULTI_LABEL:
            return probabilities, (logits >= 0).astype("int32")
        return probabilities, logits[:, 0]

    def _true_values(self, tokenized: TokenizedExamples) -> np.ndarray:
        assert tokenized.labels is not None
        if self.problem_type == MULTI_LABEL:
            return tokenized.labels.astype("int32")
        return tokenized.labels[:, 0] if self.problem_type == REGRESSION else tokenized.labels

    def _label_names(self, model: BertClassifier, predictions: np.ndarray) -> list[Any]:
        if self.problem_type == SINGLE_LABEL:
            return [model.labels[number] for number in predictions]
        if self.problem_type == MULTI_LABEL:
            return [[name for name, holds in zip(model.labels, row, strict=True) if holds] for row in predictions]
        return [float(value) for value in predictions]

    def _warn_of_one_class(
        self, model: BertClassifier, split: str, labels: np.ndarray, predictions: np.ndarray
    ) -> None:
        # Fine-tuning on small sets sometimes ends there (arXiv 2006.04884).
        if self.problem_type == SINGLE_LABEL and len(set(predictions.tolist())) == 1 < len(set(labels.tolist())):
            logging.warning(
                "%s: all predictions are the label %r. If that does not change, try another seed, a lower learning "
                "rate, more epochs, or bias_correction.",
                split,
                model.labels[predictions[0]],
            )


def _record_indices(examples: Iterable[Any], indices: list[Any]) -> Iterator[Any]:
    for number, example in enumerate(examples):
        indices.append(example.get("index", example.get("line", number)))
        yield example
