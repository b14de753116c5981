"""Continuations chosen for texts, as `keras_bert.finetuning.fine_tuner` wants a task."""

from absl import logging

from keras_bert.data.formats.prediction_files import write_predictions
from keras_bert.data.in_memory import log_long_texts
from keras_bert.data.tokenized_examples import tokenize_choices
from keras_bert.finetuning.task import FineTuningTask, by_split, describe_data
from keras_bert.metrics.classification import accuracy
from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.weights.layout import CHOICE_HEAD

_FLAGS = {"train": "--train_file", "eval": "--eval_file", "predict": "--predict_file"}


class MultipleChoice(FineTuningTask):
    """SWAG's task (paper, section 4.4), on any file of questions with equally many choices.

    Args:
        train: `ExampleStream` of `MultipleChoiceQuestion` to train on, or None.
        evaluation: dict of split to `ExampleStream` of questions with labels. The first decides which model is best.
        prediction: dict of split to `ExampleStream` of questions to answer.
        bad_rows: a `BadRows` that the readers report to, or None.
        form: dict fit for JSON: further parts of the run's configuration.
    """

    def __init__(self, train=None, evaluation=None, prediction=None, bad_rows=None, form=None):
        super().__init__("multiple_choice", "accuracy", train, evaluation, prediction, bad_rows, flags=_FLAGS)
        self._form = form or {}

    def configuration(self, model):
        """What identifies the task and its data in a run's configuration.

        Reads all data that the modes need, so that what is wrong with them is known beforehand.

        Args:
            model: a model as `make_model` gives.

        Returns:
            dict fit for JSON.
        """
        data = {"train": self.training_examples(model)}
        for split in self._evaluation:
            data[split] = self._labelled(split, model)[1]
        self.read_predictions_once()
        return {"task": self.name, "data": describe_data(data, "questions"), **self._form}

    def make_model(self, checkpoint, max_seq_length, precision, trained=False, **arguments):
        """A model on the weights of a checkpoint.

        Args:
            checkpoint: Path.
            max_seq_length: int.
            precision: str, the dtype policy.
            trained: bool. Whether the checkpoint must have a layer for choices.
            **arguments: further ones of `BertMultipleChoice.from_checkpoint`.

        Returns:
            `BertMultipleChoice`.

        Raises:
            ValueError: if a trained model is wanted and the checkpoint has none.
        """
        model = BertMultipleChoice.from_checkpoint(
            checkpoint, sequence_length=max_seq_length, dtype=precision, **arguments
        )
        if trained:
            self.require_trained(model, CHOICE_HEAD, checkpoint, "layer for choices")
        return model

    def training_examples(self, model):
        """The questions to train on, as `TokenizedExamples`."""
        return self._tokenize("train", self._train, model)[1]

    def split_metrics(self, model, split, batch_size):
        """The metrics of an evaluation split: dict of name to float."""
        _, tokenized = self._labelled(split, model)
        choices = model.predict(tokenized, batch_size).argmax(axis=1)
        return {"accuracy": accuracy(tokenized.labels, choices)}

    def report(self, model, run_dir, batch_size):
        """The metrics of all evaluation splits, and the accuracy in each category of a file that has some.

        Returns:
            A pair: what `evaluate` gives, and a dict of split to report.
        """
        reports = {}
        for split in self._evaluation:
            questions, tokenized = self._labelled(split, model)
            is_right = model.predict(tokenized, batch_size).argmax(axis=1) == tokenized.labels
            reports[split] = {"accuracy": float(is_right.mean()), "questions": len(questions)}
            by_category = {}
            for question, right in zip(questions, is_right.tolist(), strict=True):
                if question.category:
                    by_category.setdefault(question.category, []).append(right)
            if by_category:
                reports[split]["by_category"] = {
                    category: {"accuracy": sum(rights) / len(rights), "questions": len(rights)}
                    for category, rights in sorted(by_category.items())
                }
        return by_split({split: {"accuracy": report["accuracy"]} for split, report in reports.items()}), reports

    def write_predictions(self, model, folder, batch_size):
        """Answers all prediction splits.

        Returns:
            list of Path, the files written: of each question its line, the number of its best choice, and the
            probabilities of all.
        """
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for split, examples in self._prediction.items():
            questions, tokenized = self._tokenize(split, examples, model, with_labels=False)
            probabilities = model.probabilities(model.predict(tokenized, batch_size)).tolist()
            rows = (
                {"line": question.line, "label": str(row.index(max(row))), "probabilities": _by_number(row)}
                for question, row in zip(questions, probabilities, strict=True)
            )
            files.append(folder / f"{split}.tsv")
            write_predictions(files[-1], rows, overwrite=True)
        return files

    def export(self, model, folder, dtype):
        """Writes the SavedModel, and gives its Path."""
        return model.export(folder, dtype=dtype)

    def _labelled(self, split, model):
        return self._tokenize(split, self._evaluation[split], model)

    def _tokenize(self, split, examples, model, with_labels=True):
        """A pair: the list of the questions, and their `TokenizedExamples`."""

        def tokenize():
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
                [question.label for question in questions] if with_labels else None,
            )
            logging.info("%s: %d questions of %d choices", split, len(tokenized), tokenized.choices)
            log_long_texts(tokenized.token_counts, model.preprocessor.sequence_length, "truncated")
            return questions, tokenized

        return self.tokenized_once(split, tokenize)


def _by_number(probabilities):
    return {str(number): probability for number, probability in enumerate(probabilities)}
