"""Classification and regression of texts and pairs, as `keras_bert.finetuning.fine_tuner` wants a task."""

import numpy as np
from absl import logging

from keras_bert.data.in_memory import log_long_texts
from keras_bert.data.tokenized_examples import tokenize_examples
from keras_bert.finetuning.plots import draw_confusion_matrix
from keras_bert.finetuning.task import FineTuningTask, by_split, describe_data
from keras_bert.metrics.classification import classification_report, multi_label_report
from keras_bert.metrics.correlation import regression_report
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.labels import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from keras_bert.weights.layout import CLASSIFIER_HEAD


class Classification(FineTuningTask):
    """A classification task on given examples.

    Args:
        name: str, for the results.
        labels: list of str, or None for regression.
        problem_type: str, as for `BertClassifier`.
        is_pair: bool. Whether an example has two texts.
        metrics: function of true values, predictions and the number of labels that gives a dict of name to float. The
            values are ints [examples] for single labels, 0/1 rows [examples, labels] for several, floats [examples]
            for regression.
        score: str. The metric that says which model is best, of which more is better.
        train: examples to train on (an `ExampleStream`, or any iterable that can be read again), or None.
        evaluation: dict of split to labelled examples. The first decides which model is best.
        prediction: dict of split to examples to predict.
        write: function of folder, split, list of examples' `index` or `line`, predictions (label names, lists of them,
            or floats), probabilities [examples, labels] (None for regression) and label names, that writes them and
            gives the file; None if nothing is to be predicted.
        bad_rows: a `BadRows` that the readers report to, or None.
        form: dict fit for JSON: further parts of the run's configuration.
        models_of: tuple of str. Names of other tasks whose trained models this task takes as its own.
    """

    def __init__(
        self,
        name,
        labels,
        problem_type,
        is_pair,
        metrics,
        score,
        train=None,
        evaluation=None,
        prediction=None,
        write=None,
        bad_rows=None,
        form=None,
        models_of=(),
    ):
        super().__init__(name, score, train, evaluation, prediction, bad_rows, models_of)
        self.labels = labels
        self.problem_type = problem_type
        self.is_pair = is_pair
        self._metrics = metrics
        self._write = write
        self._form = form or {}

    def configuration(self, model):
        """What identifies the task and its data in a run's configuration.

        Reads all data that training and evaluation need, so that what is wrong with them is known beforehand.

        Args:
            model: a model as `make_model` gives.

        Returns:
            dict fit for JSON.
        """
        data = {"train": self.training_examples(model)}
        for split, examples in self._evaluation.items():
            data[split] = self._tokenize(split, examples, model)
            self._metrics(self._true_values(data[split]), self._true_values(data[split]), len(model.labels))
        self.read_predictions_once()
        return {
            "task": self.name,
            "labels": self.labels,
            "problem_type": self.problem_type,
            "data": describe_data(data, "examples"),
            **self._form,
        }

    def make_model(self, checkpoint, max_seq_length, precision, trained=False, **arguments):
        """A classifier on the weights of a checkpoint.

        Args:
            checkpoint: Path.
            max_seq_length: int.
            precision: str, the dtype policy.
            trained: bool. Whether the checkpoint must have a classification layer for these labels.
            **arguments: further ones of `BertClassifier.from_checkpoint`.

        Returns:
            `BertClassifier`.

        Raises:
            ValueError: if a trained model is wanted and the checkpoint has none for these labels.
        """
        model = BertClassifier.from_checkpoint(
            checkpoint,
            labels=self.labels,
            problem_type=self.problem_type,
            sequence_length=max_seq_length,
            dtype=precision,
            **arguments,
        )
        if trained:
            what = f"classification layer for the labels {model.labels} ({self.problem_type})"
            self.require_trained(model, CLASSIFIER_HEAD, checkpoint, what)
        return model

    def training_examples(self, model):
        """The examples to train on, as `TokenizedExamples`."""
        return self._tokenize("train", self._train, model)

    def split_metrics(self, model, split, batch_size):
        """The metrics of an evaluation split: dict of name to float."""
        tokenized = self._tokenize(split, self._evaluation[split], model)
        return self._metrics_of(model, split, tokenized, self._predict(model, tokenized, batch_size)[1])

    def _metrics_of(self, model, split, tokenized, predictions):
        self._warn_of_one_class(model, split, tokenized.labels, predictions)
        return self._metrics(self._true_values(tokenized), predictions, len(model.labels))

    def report(self, model, run_dir, batch_size):
        """All figures of the evaluation splits, by class where there are classes; draws their confusion matrices.

        Returns:
            A pair: what `evaluate` gives, and a dict of split to report.
        """
        metrics, reports = {}, {}
        for split, examples in self._evaluation.items():
            tokenized = self._tokenize(split, examples, model)
            _, predictions = self._predict(model, tokenized, batch_size)
            metrics[split] = self._metrics_of(model, split, tokenized, predictions)
            truth = self._true_values(tokenized)
            if self.problem_type == REGRESSION:
                reports[split] = regression_report(truth, predictions)
            elif self.problem_type == MULTI_LABEL:
                reports[split] = multi_label_report(truth, predictions, model.labels)
            else:
                reports[split] = classification_report(truth, predictions, model.labels)
                file = run_dir / f"confusion_matrix_{split}.png"
                draw_confusion_matrix(file, reports[split]["confusion_matrix"], model.labels)
        return by_split(metrics), reports

    def write_predictions(self, model, folder, batch_size):
        """Predicts all prediction splits.

        Returns:
            list of Path, the files written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for split, examples in self._prediction.items():
            indices = []
            tokenized = tokenize_examples(_noting_indices(examples, indices), model.preprocessor)
            probabilities, predictions = self._predict(model, tokenized, batch_size)
            if self.problem_type == REGRESSION:
                probabilities = None
            named = self._named(model, predictions)
            files.append(self._write(folder, split, indices, named, probabilities, model.labels))
        return files

    def export(self, model, folder, dtype):
        """Writes the SavedModel, and gives its Path."""
        return model.export(folder, dtype=dtype, pairs=self.is_pair)

    def _tokenize(self, split, examples, model):
        def tokenize():
            tokenized = tokenize_examples(examples, model.preprocessor, model.encode_labels)
            logging.info("%s: %d examples", split, len(tokenized))
            log_long_texts(tokenized.token_counts, model.preprocessor.sequence_length, "truncated")
            return tokenized

        return self.tokenized_once(split, tokenize)

    def _predict(self, model, tokenized, batch_size):
        """Probabilities or values [examples, labels], and the predictions in the form that metrics take."""
        logits = model.predict(tokenized, batch_size, verbose=0)
        probabilities = np.asarray(model.probabilities(logits))
        if self.problem_type == SINGLE_LABEL:
            return probabilities, logits.argmax(axis=-1)
        if self.problem_type == MULTI_LABEL:
            return probabilities, (logits >= 0).astype("int32")
        return probabilities, logits[:, 0]

    def _true_values(self, tokenized):
        labels = tokenized.labels
        if self.problem_type == MULTI_LABEL:
            return labels.astype("int32")
        return labels[:, 0] if self.problem_type == REGRESSION else labels

    def _named(self, model, predictions):
        if self.problem_type == SINGLE_LABEL:
            return [model.labels[number] for number in predictions]
        if self.problem_type == MULTI_LABEL:
            return [[name for name, holds in zip(model.labels, row, strict=True) if holds] for row in predictions]
        return [float(value) for value in predictions]

    def _warn_of_one_class(self, model, split, labels, predictions):
        # Fine-tuning on small sets sometimes ends there (arXiv 2006.04884).
        if self.problem_type == SINGLE_LABEL and len(set(predictions.tolist())) == 1 < len(set(labels.tolist())):
            logging.warning(
                "%s: every prediction is the label %r. If that stays, try another seed, a lower learning rate, more "
                "epochs, or --bias_correction.",
                split,
                model.labels[predictions[0]],
            )


def _noting_indices(examples, indices):
    for number, example in enumerate(examples):
        indices.append(example.get("index", example.get("line", number)))
        yield example
