"""Classification and regression of texts in a user's own files."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from keras_bert.data.example_files import FILE_FORMATS, find_files, read_examples
from keras_bert.data.example_stream import hold_out
from keras_bert.data.formats.prediction_files import write_predictions
from keras_bert.data.label_values import PROBLEM_TYPES, discover_labels
from keras_bert.finetuning.classification_task import ClassificationTask, Predictions
from keras_bert.finetuning.task import DataSettings, Metrics, TaskData
from keras_bert.io.row_errors import BadRows
from keras_bert.metrics.classification import accuracy, macro_f1, matthews_correlation, multi_label_report
from keras_bert.metrics.correlation import pearson_correlation, spearman_correlation
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.labels import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from keras_bert.settings import files_setting, setting
from keras_bert.weights.layout import POOLER, POOLINGS

_SCORES = {SINGLE_LABEL: "accuracy", MULTI_LABEL: "micro_f1", REGRESSION: "pearson_correlation"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextClassificationSettings(DataSettings):
    """Settings of a user's files: paths, columns and labels."""

    train_file: tuple[str, ...] = files_setting(
        "File to train on, or a pattern; repeat the flag for several. TSV, CSV or JSON Lines.", "train", "eval"
    )
    dev_file: tuple[str, ...] = files_setting("File to evaluate on and to choose the best model by.", "train", "eval")
    predict_file: tuple[str, ...] = files_setting(
        "File to predict, or a pattern; each gets a file in predictions/.", "predict"
    )
    validation_split: float = setting(
        0.1,
        "Without dev_file: the fraction of the training rows that is held out.",
        check=(lambda fraction: 0 < fraction < 1, "must be between 0 and 1"),
        modes=("train",),
    )
    text_column: str = setting("text", "Column of the texts.")
    text_columns: tuple[str, ...] | None = setting(None, "For pairs: the columns of both texts, comma-separated.")
    label_column: str = setting("label", "Column of the labels.")
    labels: tuple[str, ...] | None = setting(
        None, "The labels in order, comma-separated; default: those in the training file."
    )
    problem_type: str = setting(SINGLE_LABEL, "One label, several at once, or a number.", choices=PROBLEM_TYPES)
    pooling: str | None = setting(
        None, "Default: the pooler, or what a checkpoint without one states.", choices=(POOLER, *POOLINGS)
    )
    label_separator: str = setting(",", "Separator between labels in a multi-label column.")
    file_format: str | None = setting(None, "Default: inferred from the file names.", choices=FILE_FORMATS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text_columns is not None and len(self.text_columns) != 2:
            raise ValueError(f"text_columns must name two columns, got {self.text_columns}")
        if self.text_columns is not None and not self.is_default("text_column"):
            raise ValueError("text_column is for single texts and text_columns for pairs; give one of the two")

    def without_effect(self) -> dict[str, str]:
        reasons = {"validation_split": "with dev_file"} if self.dev_file else {}
        if self.problem_type != MULTI_LABEL:
            reasons["label_separator"] = f"with problem_type={self.problem_type}"
        return reasons

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the texts: one, or two for pairs."""
        return self.text_columns or (self.text_column,)


class TextClassification(ClassificationTask):
    """Classification or regression of a user's files; `from_settings` reads them."""

    def __init__(self, settings: TextClassificationSettings, data: TaskData) -> None:
        super().__init__(
            "classify",
            _SCORES[settings.problem_type],
            data,
            None if settings.labels is None else list(settings.labels),
            settings.problem_type,
            is_pair=len(settings.columns) == 2,
        )
        self.settings = settings

    settings_class = TextClassificationSettings

    @classmethod
    def from_settings(
        cls, settings: TextClassificationSettings, modes: Collection[str], seed: int = 1
    ) -> TextClassification:
        bad_rows = BadRows(skip=settings.skip_bad_rows)
        problem_type, labels = settings.problem_type, settings.labels

        def read(paths: Collection[str | Path], label_column: str | None = settings.label_column) -> Any:
            known = None if problem_type == REGRESSION or labels is None else list(labels)
            columns = list(settings.columns)
            separator = settings.label_separator
            return read_examples(
                list(paths), columns, label_column, problem_type, separator, settings.file_format, bad_rows, known
            )

        train = read(settings.train_file) if settings.train_file else None
        if labels is None and train is not None and problem_type != REGRESSION:
            labels = tuple(discover_labels(train))
            logging.info("%d labels: %s", len(labels), ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else ""))
        evaluation = {"dev": read(settings.dev_file)} if settings.dev_file else {}  # now that the labels are known
        if train is not None and not evaluation:
            train, evaluation["dev"] = hold_out(train, settings.validation_split, seed)
        files = _find_distinct_files(settings.predict_file)
        data = TaskData(
            train=train if "train" in modes else None,
            evaluation=evaluation,
            prediction={file.name: read([file], label_column=None) for file in files} if "predict" in modes else {},
            bad_rows=bad_rows,
        )
        return cls(dataclasses.replace(settings, labels=labels), data)

    def load_model(self, checkpoint: str | Path, arguments: dict[str, Any]) -> BertClassifier:
        return super().load_model(checkpoint, {"pooling": self.settings.pooling, **arguments})

    def metrics(self, labels: np.ndarray, predictions: np.ndarray, num_labels: int) -> Metrics:
        if self.problem_type == SINGLE_LABEL:
            return {
                "accuracy": accuracy(labels, predictions),
                "macro_f1": macro_f1(labels, predictions, num_labels),
                "matthews_correlation": matthews_correlation(labels, predictions),
            }
        if self.problem_type == MULTI_LABEL:
            report = multi_label_report(labels, predictions, [str(number) for number in range(num_labels)])
            return {
                "micro_f1": report["micro"]["f1"],
                "macro_f1": report["macro"]["f1"],
                "subset_accuracy": report["subset_accuracy"],
            }
        return {
            "pearson_correlation": pearson_correlation(labels, predictions),
            "spearman_correlation": spearman_correlation(labels, predictions),
            "mean_squared_error": float(((labels - predictions) ** 2).mean()),
        }

    def write_split(self, folder: Path, split: str, predictions: Predictions) -> Path:
        separator = self.settings.label_separator
        labels, probabilities = predictions.labels, predictions.probabilities
        is_plain = not any(character in label for label in labels for character in ("\t", "\n", "\r", separator))
        file = folder / f"{split}.{'tsv' if is_plain else 'jsonl'}"
        rows: list[dict[str, Any]] = [
            {"line": line, "label": label} for line, label in zip(predictions.indices, predictions.values, strict=True)
        ]
        if probabilities is not None:
            for row, values in zip(rows, probabilities.tolist(), strict=True):
                row["probabilities"] = dict(zip(labels, values, strict=True))
        write_predictions(file, iter(rows), label_separator=separator, overwrite=True)
        return file


def _find_distinct_files(patterns: Collection[str]) -> list[Path]:
    """Finds the files to predict, of which no two may have the same name: predictions/ has a file for each name."""
    files = [Path(file) for pattern in patterns for file in find_files(pattern)]
    if len({file.name for file in files}) < len(files):
        raise ValueError(f"two of the files to predict have the same name: {sorted(map(str, files))}; rename one")
    return files
