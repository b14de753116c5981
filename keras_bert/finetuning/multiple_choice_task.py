"""Multiple choice: SWAG, CODAH or files like them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from absl import logging

from keras_bert.data.example_stream import cross_validation_fold
from keras_bert.data.formats.prediction_files import write_predictions
from keras_bert.data.formats.swag_files import MultipleChoiceQuestion, read_codah, read_swag
from keras_bert.data.tokenized_examples import TokenizedExamples, log_long_texts, tokenize_choices
from keras_bert.finetuning.task import DataSettings, FineTuningTask, Metrics, TaskData, by_split
from keras_bert.io.row_errors import BadRows
from keras_bert.metrics.classification import accuracy
from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.settings import file_setting, setting
from keras_bert.weights.layout import CHOICE_HEAD

_READERS = {"swag": read_swag, "codah": read_codah}
_FORMATS = {".csv": "swag", ".tsv": "codah"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceSettings(DataSettings):
    """Settings of multiple choice: files of questions, and the fold of a cross-validation."""

    train_file: str | None = file_setting("SWAG's CSV, or CODAH's TSV, to train on.", "train", "eval")
    eval_file: str | None = file_setting("File to choose the best model by and to evaluate on.", "train", "eval")
    predict_file: str | None = file_setting("File to answer; its labels are ignored.", "predict")
    file_format: str | None = setting(
        None,
        "Default: codah for .tsv, swag for .csv.",
        choices=tuple(_READERS),
        modes=("train", "eval", "predict"),
        recorded=False,
    )
    fold: int | None = setting(
        None,
        "Without eval_file: which part of train_file to test on, from 0; the next one is dev.",
        lower=0,
        modes=("train", "eval"),
    )
    folds: int = setting(5, "Parts of the cross-validation.", lower=3, modes=("train", "eval"))
    fold_seed: int = setting(1, "Seed of the random parts; the same for all folds.", lower=0, modes=("train", "eval"))

    fixed_by_run = ("fold", "folds", "fold_seed")

    def without_effect(self) -> dict[str, str]:
        if self.eval_file is not None:
            return dict.fromkeys(self.fixed_by_run, "with eval_file")
        if self.train_file is None:
            return dict.fromkeys(self.fixed_by_run, "without train_file, which they split")
        return dict.fromkeys(("folds", "fold_seed"), "without fold") if self.fold is None else {}


class MultipleChoiceTask(FineTuningTask):
    """SWAG's task (paper, section 4.4) on `MultipleChoiceQuestion`s with the same number of choices."""

    head = CHOICE_HEAD
    unit = "questions"
    sources: ClassVar[dict[str, str]] = {"train": "train_file", "eval": "eval_file", "predict": "predict_file"}

    def __init__(self, settings: MultipleChoiceSettings, data: TaskData) -> None:
        super().__init__("multiple_choice", "accuracy", data)
        self.settings = settings

    settings_class = MultipleChoiceSettings

    @classmethod
    def from_settings(
        cls, settings: MultipleChoiceSettings, modes: Collection[str], seed: int = 1
    ) -> MultipleChoiceTask:
        bad_rows = BadRows(skip=settings.skip_bad_rows)

        def read(path: str, with_labels: bool = True) -> Iterable[MultipleChoiceQuestion]:
            suffix = path.removesuffix(".gz").lower()[-4:]
            if settings.file_format is None and suffix not in _FORMATS:
                raise ValueError(f"the name of {path} does not tell its format; give file_format=swag or codah")
            return _READERS[settings.file_format or _FORMATS[suffix]](path, bad_rows, with_labels)

        is_labelled = bool({"train", "eval"} & set(modes))
        train = read(settings.train_file) if settings.train_file is not None and is_labelled else None
        evaluation: dict[str, Iterable[MultipleChoiceQuestion]] = {}
        if settings.fold is not None and settings.eval_file is None and train is not None:
            parts = cross_validation_fold(train, settings.fold, settings.fold_seed, settings.folds)
            train, evaluation = parts[0], {"dev": parts[1], "test": parts[2]}
        elif settings.eval_file is not None and is_labelled:
            evaluation = {"eval": read(settings.eval_file)}
        prediction = {}
        if settings.predict_file is not None and "predict" in modes:
            prediction = {"predict": read(settings.predict_file, with_labels=False)}
        return cls(settings, TaskData(train if "train" in modes else None, evaluation, prediction, bad_rows))

    def load_model(self, checkpoint: str | Path, arguments: dict[str, Any]) -> BertMultipleChoice:
        return BertMultipleChoice.from_checkpoint(checkpoint, **arguments)

    def describe_head(self, model: BertMultipleChoice) -> str:
        return "layer for choices"

    def tokenize_split(self, split: str, examples: Iterable[Any], model: BertMultipleChoice) -> TokenizedExamples:
        return self._tokenize(split, examples, model)[1]

    def split_metrics(self, model: BertMultipleChoice, split: str, batch_size: int | None) -> Metrics:
        tokenized = self.tokenize_split(split, self.data.evaluation[split], model)
        choices = model.predict(tokenized, batch_size).argmax(axis=1)
        assert tokenized.labels is not None
        return {"accuracy": accuracy(tokenized.labels, choices)}

    def report(
        self, model: BertMultipleChoice, run_dir: Path, batch_size: int | None
    ) -> tuple[Metrics, dict[str, Any]]:
        """Returns the accuracy of all evaluation splits, and in each category of a file that has some."""
        reports: dict[str, dict[str, Any]] = {}
        for split, examples in self.data.evaluation.items():
            questions, tokenized = self._tokenize(split, examples, model)
            is_right = model.predict(tokenized, batch_size).argmax(axis=1) == tokenized.labels
            reports[split] = {"accuracy": float(is_right.mean()), "questions": len(questions)}
            by_category: dict[str, list[bool]] = {}
            for question, right in zip(questions, is_right.tolist(), strict=True):
                if question.category:
                    by_category.setdefault(question.category, []).append(right)
            if by_category:
                reports[split]["by_category"] = {
                    category: {"accuracy": sum(right) / len(right), "questions": len(right)}
                    for category, right in sorted(by_category.items())
                }
        return by_split({split: {"accuracy": report["accuracy"]} for split, report in reports.items()}), reports

    def write_predictions(self, model: BertMultipleChoice, folder: Path, batch_size: int | None) -> list[Path]:
        """Writes each question's line, the number of its best choice, and the probabilities of all."""
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for split, examples in self.data.prediction.items():
            questions, tokenized = self._tokenize(split, examples, model, with_labels=False)
            probabilities = model.probabilities(model.predict(tokenized, batch_size)).tolist()
            rows: Iterable[Mapping[str, Any]] = (
                {
                    "line": question.line,
                    "label": str(row.index(max(row))),
                    "probabilities": {str(number): probability for number, probability in enumerate(row)},
                }
                for question, row in zip(questions, probabilities, strict=True)
            )
            files.append(folder / f"{split}.tsv")
            write_predictions(files[-1], rows, overwrite=True)
        return files

    def _tokenize(
        self,
        split: str,
        examples: Iterable[MultipleChoiceQuestion],
        model: BertMultipleChoice,
        with_labels: bool = True,
    ) -> tuple[list[MultipleChoiceQuestion], TokenizedExamples]:
        def tokenize() -> tuple[list[MultipleChoiceQuestion], TokenizedExamples]:
            questions = list(examples)
            if with_labels and (unlabelled := [question.line for question in questions if question.label is None]):
                raise ValueError(
                    f"{split}: the question of line {unlabelled[0]} has no label; a file to train or evaluate on needs "
                    "a column label"
                )
            tokenized = tokenize_choices(
                [question.prompt for question in questions],
                [question.choices for question in questions],
                model.preprocessor,
                [question.label for question in questions if question.label is not None] if with_labels else None,
            )
            logging.info("%s: %d questions of %d choices", split, len(tokenized), tokenized.num_choices)
            log_long_texts(tokenized.token_counts, model.preprocessor)
            return questions, tokenized

        return self.tokenized_once(split, tokenize)
