"""Questions answered from contexts, as `keras_bert.finetuning.fine_tuner` wants a task."""

import functools
import json
import math
from pathlib import Path

from absl import logging

from keras_bert.data.formats.squad_predictions import answer_questions, at_threshold, write_squad_predictions
from keras_bert.data.tokenized_questions import tokenize_questions
from keras_bert.finetuning.run_models import saved_results
from keras_bert.finetuning.task import FineTuningTask, by_split, describe_data
from keras_bert.metrics.squad_scores import squad_metrics
from keras_bert.models.span_labeler import BertSpanLabeler

_BEST_THRESHOLD = "best_f1_threshold"
_FLAGS = {"train": "--train_file", "eval": "--eval_file", "predict": "--predict_file"}


class QuestionAnswering(FineTuningTask):
    """SQuAD's task, version 1.1 or 2.0.

    Args:
        version: str. "1.1", or "2.0", under which a question may be impossible.
        stride: int. Tokens from one window's beginning to the next one's.
        max_query_length: int. Most tokens of a question.
        n_best: int. How many starts and ends of a window are looked at, and answers kept.
        max_answer_length: int. Most tokens of an answer.
        null_threshold: float or None. Under version 2.0 a question is impossible where its null odds are above it. None
            takes the one that is best on the split that is evaluated (paper, section 4.3); to predict and to export the
            one that was best when the model was trained, or else when it was evaluated in `run_dir`, or 0.
        run_dir, init_checkpoint: as for `keras_bert.finetuning.fine_tuner.fine_tune`: where that threshold is looked
        for.
        train: `ExampleStream` of `SquadQuestion` to train on, or None.
        evaluation: dict of split to `ExampleStream` of questions with answers. The first decides which model is best.
        prediction: dict of split to `ExampleStream` of questions to answer.
        bad_rows: a `BadRows` that the readers report to, or None.
    """

    def __init__(
        self,
        version,
        stride,
        max_query_length,
        n_best,
        max_answer_length,
        null_threshold=None,
        run_dir=None,
        init_checkpoint=None,
        train=None,
        evaluation=None,
        prediction=None,
        bad_rows=None,
    ):
        # Which threshold is best is only known at the end: models are compared by what they would score with theirs.
        super().__init__(
            f"squad{version}",
            "best_f1" if version == "2.0" else "f1",
            train,
            evaluation,
            prediction,
            bad_rows,
            models_of=("squad1.1", "squad2.0"),  # of either version
            flags=_FLAGS,
        )
        self._version = version
        self._windows = {"stride": stride, "max_query_length": max_query_length}
        self._answers = {"n_best": n_best, "max_answer_length": max_answer_length}
        self._null_threshold = null_threshold
        self._run_dir, self._init_checkpoint = run_dir, init_checkpoint

    def configuration(self, model):
        """What identifies the task and its data in a run's configuration.

        Reads all data that the modes need, so that what is wrong with them is known beforehand.

        Args:
            model: a model as `make_model` gives.

        Returns:
            dict fit for JSON.
        """
        data = {"train": self.training_examples(model)}
        for split, questions in self._evaluation.items():
            tokenized = self._tokenize(split, questions, model)
            data[split] = tokenized.windows
        self.read_predictions_once()
        return {
            "task": self.name,
            **self._windows,
            **self._answers,
            "data": describe_data(data, "windows"),
        }

    def make_model(self, checkpoint, max_seq_length, precision, trained=False, dropout=None, **arguments):
        """A span labeler on the weights of a checkpoint.

        Args:
            checkpoint: Path.
            max_seq_length: int.
            precision: str, the dtype policy.
            trained: bool. Whether the checkpoint must have a layer for spans.
            dropout: must be None: there is none before this layer (google-research/bert, run_squad.py).
            **arguments: further ones of `BertSpanLabeler.from_checkpoint`.

        Returns:
            `BertSpanLabeler`.

        Raises:
            ValueError: if a trained model is wanted and the checkpoint has none, or there is to be a dropout.
        """
        if dropout is not None:
            raise ValueError(f"the layer that finds spans has no dropout before it; got dropout={dropout}")
        model = BertSpanLabeler.from_checkpoint(
            checkpoint, sequence_length=max_seq_length, dtype=precision, **self._windows, **arguments
        )
        if trained:
            self.require_trained(model, "spans", checkpoint, "layer for spans")
        return model

    def training_examples(self, model):
        """The windows to train on, as `TokenizedExamples`."""
        return self._tokenize("train", self._train, model, to_train=True).windows

    def split_metrics(self, model, split, batch_size):
        """The metrics of an evaluation split: dict of name to float."""
        tokenized = self._tokenize(split, self._evaluation[split], model)
        return self._metrics(tokenized, self._answer(model, tokenized, batch_size))

    def report(self, model, run_dir, batch_size):
        """The metrics of all evaluation splits; writes their answers beside them.

        Returns:
            A pair: what `evaluate` gives, and the same by split.
        """
        reports = {}
        for split, questions in self._evaluation.items():
            tokenized = self._tokenize(split, questions, model)
            predictions = self._answer(model, tokenized, batch_size)
            reports[split] = self._metrics(tokenized, predictions)
            if self._version == "2.0":
                predictions = at_threshold(predictions, self._threshold_of(reports[split]))
            write_squad_predictions(run_dir / f"evaluation_{split}", predictions, overwrite=True)
        return by_split(reports), reports

    def write_predictions(self, model, folder, batch_size):
        """Answers all prediction splits.

        Returns:
            list of Path, the files written: for each split those of `write_squad_predictions`.
        """
        files = []
        for split, questions in self._prediction.items():
            tokenized = self._tokenize(split, questions, model)
            predictions = self._answer(model, tokenized, batch_size)
            if self._version == "2.0":
                predictions = at_threshold(predictions, self._tuned_threshold)
            files += write_squad_predictions(folder / split, predictions, overwrite=True)
        return files

    def export(self, model, folder, dtype):
        """Writes the SavedModel, and gives its Path."""
        return model.export(folder, dtype=dtype, **self._answering())

    def export_settings(self):
        """What an export depends on beside the model: dict fit for JSON."""
        return {**self._windows, **self._answering()}

    def _answering(self):
        return {**self._answers, "null_threshold": self._tuned_threshold if self._version == "2.0" else None}

    def _threshold_of(self, metrics):
        """The threshold given, or the one that the metrics found best."""
        return metrics[_BEST_THRESHOLD] if self._null_threshold is None else self._null_threshold

    @functools.cached_property
    def _tuned_threshold(self):
        """The threshold given, or the one that was found when the model was trained or evaluated, or 0."""
        if self._null_threshold is not None:
            return self._null_threshold
        tuned, source = _best_threshold_of_run(self._run_dir, self._init_checkpoint)
        logging.info("null_score_diff_threshold %.4f, %s", tuned, source)
        return tuned

    def _metrics(self, tokenized, predictions):
        right = _right_answers(tokenized)
        if self._version == "1.1":
            return squad_metrics(predictions.answers, right)
        # What each question would be answered if none were impossible: the threshold decides about that.
        answers = at_threshold(predictions, math.inf).answers
        odds = predictions.null_odds
        threshold = self._threshold_of(squad_metrics(answers, right, self._version, odds))
        return squad_metrics(answers, right, self._version, odds, threshold)

    def _answer(self, model, tokenized, batch_size):
        logits = model.predict_logits(tokenized.windows, batch_size)
        return answer_questions(tokenized, *logits, model.preprocessor.tokenizer, self._version, **self._answers)

    def _tokenize(self, split, questions, model, to_train=False):
        def tokenize():
            tokenized = tokenize_questions(questions, model.preprocessor, to_train)
            logging.info("%s: %d questions in %d windows", split, len(tokenized.questions), len(tokenized.windows))
            return tokenized

        return self.tokenized_once(split, tokenize)


def _right_answers(tokenized):
    return {question.id: question.answers for question in tokenized.questions}


def _best_threshold_of_run(run_dir, init_checkpoint):
    """A pair: the threshold that was best on the first evaluation split, and where it was found, in words."""
    if run_dir is not None:
        metrics = saved_results(run_dir, init_checkpoint).get("best", {}).get("metrics", {})
        for name, value in metrics.items():
            if name.rpartition("/")[2] == _BEST_THRESHOLD:
                return value, "which was best when the model was trained"
        evaluation = Path(run_dir) / "evaluation.json"
        if evaluation.is_file():
            first = next(iter(json.loads(evaluation.read_text(encoding="utf-8")).values()))
            if _BEST_THRESHOLD in first:
                return first[_BEST_THRESHOLD], f"which was best in {evaluation}"
    return 0.0, "as none was tuned"
