"""Question answering on SQuAD or files like it."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Unpack

from absl import logging

from keras_bert.data.formats.squad_files import SquadQuestion, read_squad
from keras_bert.data.formats.squad_predictions import (
    SquadPredictions,
    answer_questions,
    at_threshold,
    write_squad_predictions,
)
from keras_bert.data.tokenized_examples import TokenizedExamples
from keras_bert.data.tokenized_questions import TokenizedQuestions, tokenize_questions
from keras_bert.export.export_options import ExportArguments
from keras_bert.finetuning.run_models import saved_results
from keras_bert.finetuning.task import DataSettings, FineTuningTask, Metrics, TaskData, by_split, skip_if_read_only
from keras_bert.io.row_errors import BadRows
from keras_bert.metrics.squad_scores import VERSIONS, squad_metrics
from keras_bert.models.span_labeler import BertSpanLabeler
from keras_bert.settings import file_setting, setting
from keras_bert.text.answer_spans import MAX_ANSWER_LENGTH, N_BEST
from keras_bert.training.run_dir import read_json_object

_BEST_THRESHOLD = "best_f1_threshold"


@dataclass(frozen=True, kw_only=True)
class QuestionAnsweringSettings(DataSettings):
    """Settings of question answering: files, windows, answers. The defaults are those of google-research/bert."""

    version: str | None = setting(
        None,
        "Version of SQuAD; 2.0 has impossible questions. Default: the one of the run that is used.",
        choices=VERSIONS,
    )
    train_file: str | None = file_setting("SQuAD's JSON, to train on.", "train")
    eval_file: str | None = file_setting(
        "SQuAD's JSON, to choose the best model by and to evaluate on.", "train", "eval"
    )
    predict_file: str | None = file_setting("SQuAD's JSON; answers are not needed.", "predict")
    doc_stride: int = setting(128, "Tokens from one window of a context to the next.", lower=1)
    max_query_length: int = setting(64, "Maximum length of a question in tokens; longer ones are truncated.", lower=1)
    n_best_size: int = setting(N_BEST, "Number of starts and ends considered per window, and of answers kept.", lower=1)
    max_answer_length: int = setting(MAX_ANSWER_LENGTH, "Maximum length of an answer in tokens.", lower=1)
    null_score_diff_threshold: float | None = setting(
        None,
        "A question is impossible if its null odds are above this. Default: the best threshold on eval_file; for "
        "predictions and exports the best one of the training, or 0.",
        check=(math.isfinite, "must be a finite number"),
        recorded=False,
    )

    def without_effect(self) -> dict[str, str]:
        return {"null_score_diff_threshold": "with version=1.1"} if self.version == "1.1" else {}


class QuestionAnsweringTask(FineTuningTask):
    """SQuAD's task (paper, sections 4.2 and 4.3) on `SquadQuestion`s, version 1.1 or 2.0."""

    head = "spans"
    has_dropout = False  # google-research/bert, run_squad.py
    sources: ClassVar[dict[str, str]] = {"train": "train_file", "eval": "eval_file", "predict": "predict_file"}

    def __init__(self, settings: QuestionAnsweringSettings, data: TaskData) -> None:
        if settings.version is None:
            raise ValueError("unknown version of SQuAD: give version=1.1, or 2.0 where questions may be impossible")
        # The best threshold is only known at the end: models are compared by their scores at their own best one.
        score = "best_f1" if settings.version == "2.0" else "f1"
        super().__init__(f"squad{settings.version}", score, data, ("squad1.1", "squad2.0"))  # models of either version
        self.settings = settings
        self._version = settings.version
        self._windows = {"stride": settings.doc_stride, "max_query_length": settings.max_query_length}
        self._answers = {"n_best": settings.n_best_size, "max_answer_length": settings.max_answer_length}
        self._run_dir: Path | None = None
        self._init_checkpoint: str | None = None

    settings_class = QuestionAnsweringSettings

    @classmethod
    def from_settings(
        cls, settings: QuestionAnsweringSettings, modes: Collection[str], seed: int = 1
    ) -> QuestionAnsweringTask:
        task = cls(settings, TaskData())
        bad_rows = BadRows(skip=settings.skip_bad_rows)

        def read(path: str | None, is_wanted: bool, **purpose: bool) -> Iterable[SquadQuestion] | None:
            if path is None or not is_wanted:
                return None
            return read_squad(path, str(settings.version), bad_rows=bad_rows, **purpose)

        evaluation = read(settings.eval_file, bool({"train", "eval"} & set(modes)), to_evaluate=True)
        prediction = read(settings.predict_file, "predict" in modes)
        data = TaskData(
            read(settings.train_file, "train" in modes, to_train=True),
            {} if evaluation is None else {"eval": evaluation},
            {} if prediction is None else {"predict": prediction},
            bad_rows,
        )
        return cls(task.settings, data)

    def load_model(self, checkpoint: str | Path, arguments: dict[str, Any]) -> BertSpanLabeler:
        return BertSpanLabeler.from_checkpoint(checkpoint, **self._windows, **arguments)

    def describe_head(self, model: BertSpanLabeler) -> str:
        return "layer for spans"

    def tokenize_split(self, split: str, examples: Iterable[Any], model: BertSpanLabeler) -> TokenizedExamples:
        return self._tokenize(split, examples, model).windows

    def split_metrics(self, model: BertSpanLabeler, split: str, batch_size: int | None) -> Metrics:
        tokenized = self._tokenize(split, self.data.evaluation[split], model)
        return self._metrics(tokenized, self._answer(model, tokenized, batch_size))

    def report(self, model: BertSpanLabeler, run_dir: Path, batch_size: int | None) -> tuple[Metrics, dict[str, Any]]:
        """Returns the metrics of all evaluation splits; writes their answers to `evaluation_<split>/`."""
        reports = {}
        for split, questions in self.data.evaluation.items():
            tokenized = self._tokenize(split, questions, model)
            predictions = self._answer(model, tokenized, batch_size)
            reports[split] = self._metrics(tokenized, predictions)
            if self._version == "2.0":
                predictions = at_threshold(predictions, self._threshold_for(reports[split]))
            folder = run_dir / f"evaluation_{split}"
            with skip_if_read_only(folder):
                write_squad_predictions(folder, predictions, overwrite=True)
        return by_split(reports), reports

    def write_predictions(self, model: BertSpanLabeler, folder: Path, batch_size: int | None) -> list[Path]:
        """Writes for each split the files of `write_squad_predictions`."""
        files = []
        for split, questions in self.data.prediction.items():
            tokenized = self._tokenize(split, questions, model)
            predictions = self._answer(model, tokenized, batch_size)
            if self._version == "2.0":
                predictions = at_threshold(predictions, self._tuned_threshold)
            files += write_squad_predictions(folder / split, predictions, overwrite=True)
        return files

    def export(self, model: BertSpanLabeler, folder: Path, **options: Unpack[ExportArguments]) -> Path:
        return model.export(folder, **self._answering(), **options)

    def export_settings(self) -> dict[str, Any]:
        return {**self._windows, **self._answering()}

    def use_model_of(self, run_dir: Path, init_checkpoint: str | None) -> None:
        self._run_dir, self._init_checkpoint = run_dir, init_checkpoint

    def _answering(self) -> dict[str, Any]:
        return {**self._answers, "null_threshold": self._tuned_threshold if self._version == "2.0" else None}

    def _threshold_for(self, metrics: Metrics) -> float:
        """Returns the given threshold, or the best one of the metrics."""
        given = self.settings.null_score_diff_threshold
        return metrics[_BEST_THRESHOLD] if given is None else given

    @functools.cached_property
    def _tuned_threshold(self) -> float:
        """The given threshold, or the best one of the model's training or evaluation, or 0."""
        if self.settings.null_score_diff_threshold is not None:
            return self.settings.null_score_diff_threshold
        threshold, source = _best_threshold_of_run(self._run_dir, self._init_checkpoint)
        logging.info("null_score_diff_threshold %.4f, %s", threshold, source)
        return threshold

    def _metrics(self, tokenized: TokenizedQuestions, predictions: SquadPredictions) -> Metrics:
        right = {question.id: question.answers for question in tokenized.questions}
        if self._version == "1.1":
            return squad_metrics(predictions.answers, right)
        # The answers as if no question were impossible: the threshold decides about that.
        answers = at_threshold(predictions, math.inf).answers
        odds = predictions.null_odds
        threshold = self._threshold_for(squad_metrics(answers, right, self._version, odds))
        return squad_metrics(answers, right, self._version, odds, threshold)

    def _answer(
        self, model: BertSpanLabeler, tokenized: TokenizedQuestions, batch_size: int | None
    ) -> SquadPredictions:
        starts, ends = model.predict_logits(tokenized.windows, batch_size)
        tokenizer = model.preprocessor.tokenizer
        return answer_questions(tokenized, starts, ends, tokenizer, self._version, **self._answers)

    def _tokenize(self, split: str, questions: Iterable[SquadQuestion], model: BertSpanLabeler) -> TokenizedQuestions:
        def tokenize() -> TokenizedQuestions:
            tokenized = tokenize_questions(questions, model.preprocessor, to_train=split == "train")
            logging.info("%s: %d questions in %d windows", split, len(tokenized.questions), len(tokenized.windows))
            return tokenized

        return self.tokenized_once(split, tokenize)


def _best_threshold_of_run(run_dir: Path | None, init_checkpoint: str | None) -> tuple[float, str]:
    """Returns the best threshold on the first evaluation split, and where it comes from."""
    if run_dir is not None:
        metrics = saved_results(run_dir, init_checkpoint).get("best", {}).get("metrics", {})
        for name, value in metrics.items():
            if name.rpartition("/")[2] == _BEST_THRESHOLD and value is not None:
                return value, "the best one when the model was trained"
        evaluation = run_dir / "evaluation.json"
        if evaluation.is_file():
            first = next(iter(read_json_object(evaluation).values()))
            if _BEST_THRESHOLD in first:
                return first[_BEST_THRESHOLD], f"the best one in {evaluation}"
    return 0.0, "because none was tuned"
