"""GLUE's tasks (paper, section 4.1) from their files or from tensorflow_datasets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from keras_bert.data.formats.glue_files import GLUE_TASKS, glue_task, read_glue, write_submission
from keras_bert.data.formats.tfds import read_glue_tfds
from keras_bert.finetuning.classification_task import ClassificationTask, Predictions
from keras_bert.finetuning.task import DataSettings, Metrics, TaskData
from keras_bert.io.row_errors import BadRows
from keras_bert.metrics.glue_scores import glue_metrics
from keras_bert.models.labels import REGRESSION, SINGLE_LABEL
from keras_bert.settings import REQUIRED, setting

DATA_MODES = ("train", "eval", "predict")


@dataclass(frozen=True, kw_only=True)
class GlueSettings(DataSettings):
    """Settings of a GLUE task: its name, and where its data are."""

    task: str = setting(REQUIRED, "The task.", choices=tuple(GLUE_TASKS))
    data_dir: str | None = setting(
        None,
        "GLUE's folder or the task's; with data_source=tfds, where the data sets are (default: the usual folder).",
        modes=DATA_MODES,
        recorded=False,
    )
    data_source: str = setting(
        "files",
        "GLUE's TSV files, or tensorflow_datasets.",
        choices=("files", "tfds"),
        modes=DATA_MODES,
        recorded=False,
    )


class GlueClassification(ClassificationTask):
    """A task of GLUE; `from_settings` reads its data."""

    sources: ClassVar[dict[str, str]] = {}
    hub_datasets = ("nyu-mll/glue",)

    settings_class = GlueSettings

    @classmethod
    def from_settings(cls, settings: GlueSettings, modes: Collection[str], seed: int = 1) -> GlueClassification:
        glue = glue_task(settings.task)
        bad_rows = BadRows(skip=settings.skip_bad_rows)

        def read(splits: Collection[str]) -> dict[str, Any]:
            if settings.data_source == "tfds":
                return {split: read_glue_tfds(glue, split, settings.data_dir) for split in splits}
            if settings.data_dir is None:
                raise ValueError("data_dir is needed: GLUE's folder, or the task's")
            return {split: read_glue(glue, settings.data_dir, split, bad_rows) for split in splits}

        return cls(
            name=settings.task,
            score=glue.metrics[0],
            data=TaskData(
                train=read(["train"])["train"] if "train" in modes and glue.train_split else None,
                evaluation=read(glue.dev_splits) if {"train", "eval"} & set(modes) else {},
                prediction=read(glue.test_splits) if "predict" in modes else {},
                bad_rows=bad_rows,
            ),
            labels=None if glue.labels is None else list(glue.labels),
            problem_type=REGRESSION if glue.is_regression else SINGLE_LABEL,
            is_pair=glue.is_pair,
            models_of=("ax", "mnli") if settings.task == "ax" else (),
        )

    def metrics(self, labels: np.ndarray, predictions: np.ndarray, num_labels: int) -> Metrics:
        return glue_metrics(glue_task(self.name).metrics, labels, predictions)

    def write_split(self, folder: Path, split: str, predictions: Predictions) -> Path:
        file = folder / glue_task(self.name).submission_files[split]
        write_submission(file, self.name, predictions.indices, predictions.values, overwrite=True)
        return file
