"""Words tagged, with entities or parts of speech, as `keras_bert.finetuning.fine_tuner` wants a task."""

from absl import logging

from keras_bert.data.formats.conll import write_conll
from keras_bert.finetuning.task import FineTuningTask, by_split, describe_data
from keras_bert.metrics.entity_scores import tagging_metrics, tagging_report
from keras_bert.models.token_classifier import BertTokenClassifier
from keras_bert.text.tags import PLAIN
from keras_bert.weights.layout import TOKEN_HEAD

_FLAGS = {"train": "--train_file", "eval": "--dev_file", "predict": "--predict_file"}


class TokenClassification(FineTuningTask):
    """CoNLL-2003's task (paper, section 5.3), and any other in which every word has a tag.

    Args:
        labels: list of str, the tags; None takes those of the model.
        scheme: str, one of `keras_bert.text.tags.SCHEMES`: how the tags spell entities.
        document_context: bool. Whether a sentence is read with the text around it in its document.
        train: `ExampleStream` of `TaggedSentence` to train on, or None.
        evaluation: dict of split to `ExampleStream` of tagged sentences. The first decides which model is best.
        prediction: dict of split to `ExampleStream` of sentences to tag.
        bad_rows: a `BadRows` that the readers report to, or None.
        form: dict fit for JSON: further parts of the run's configuration.
    """

    def __init__(
        self,
        labels,
        scheme,
        document_context=False,
        train=None,
        evaluation=None,
        prediction=None,
        bad_rows=None,
        form=None,
    ):
        score = "token_accuracy" if scheme == PLAIN else "f1"
        super().__init__("tagging", score, train, evaluation, prediction, bad_rows, flags=_FLAGS)
        self.labels = labels
        self._scheme = scheme
        self._document_context = document_context
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
            data[split] = self._tokenize(split, self._evaluation[split], model)[1].windows
        self.read_predictions_once()
        return {
            "task": self.name,
            "labels": self.labels,
            "scheme": self._scheme,
            "document_context": self._document_context,
            "data": describe_data(data, "windows"),
            **self._form,
        }

    def make_model(self, checkpoint, max_seq_length, precision, trained=False, **arguments):
        """A token classifier on the weights of a checkpoint.

        Args:
            checkpoint: Path.
            max_seq_length: int.
            precision: str, the dtype policy.
            trained: bool. Whether the checkpoint must have a layer for these tags.
            **arguments: further ones of `BertTokenClassifier.from_checkpoint`.

        Returns:
            `BertTokenClassifier`.

        Raises:
            ValueError: if a trained model is wanted and the checkpoint has none for these tags.
        """
        model = BertTokenClassifier.from_checkpoint(
            checkpoint, labels=self.labels, sequence_length=max_seq_length, dtype=precision, **arguments
        )
        if trained:
            self.require_trained(model, TOKEN_HEAD, checkpoint, f"layer for the tags {model.labels}")
        return model

    def training_examples(self, model):
        """The windows to train on, as `TokenizedExamples`."""
        return self._tokenize("train", self._train, model)[1].windows

    def loss_weight(self, examples):
        """How many tokens have a label, and with it a loss: int."""
        return int((examples.labels >= 0).sum())

    def split_metrics(self, model, split, batch_size):
        """The metrics of an evaluation split: dict of name to float."""
        sentences, predicted = self._predict(model, split, self._evaluation[split], batch_size)
        return tagging_metrics([sentence.tags for sentence in sentences], predicted, self._scheme)

    def report(self, model, run_dir, batch_size):
        """The scores of all evaluation splits, by type; writes their predicted tags as `evaluation_<split>.conll`.

        Returns:
            A pair: what `evaluate` gives, and a dict of split to report.
        """
        metrics, reports = {}, {}
        for split, examples in self._evaluation.items():
            sentences, predicted = self._predict(model, split, examples, batch_size)
            true = [sentence.tags for sentence in sentences]
            metrics[split] = tagging_metrics(true, predicted, self._scheme)
            reports[split] = tagging_report(true, predicted, self._scheme)
            _write_tags(run_dir / f"evaluation_{split}.conll", sentences, predicted)
        return by_split(metrics), reports

    def write_predictions(self, model, folder, batch_size):
        """Tags all prediction splits.

        Returns:
            list of Path, the CoNLL files written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for split, examples in self._prediction.items():
            sentences, predicted = self._predict(model, split, examples, batch_size, with_labels=False)
            files.append(folder / f"{split}.conll")
            _write_tags(files[-1], sentences, predicted)
        return files

    def export(self, model, folder, dtype):
        """Writes the SavedModel, and gives its Path."""
        return model.export(folder, dtype=dtype)

    def _predict(self, model, split, examples, batch_size, with_labels=True):
        """A pair: the list of the sentences, and the list of their predicted tags."""
        sentences, tokenized = self._tokenize(split, examples, model, with_labels)
        numbers = model.predict_logits(tokenized, batch_size).argmax(axis=1)
        tags = [[model.labels[number] for number in of_sentence] for of_sentence in tokenized.of_sentences(numbers)]
        return sentences, tags

    def _tokenize(self, split, examples, model, with_labels=True):
        """A pair: the list of the sentences, and their `TokenizedSentences`."""

        def tokenize():
            sentences = list(examples)
            tokenized = model.tokenize_sentences(
                [sentence.tokens for sentence in sentences],
                [sentence.tags for sentence in sentences] if with_labels else None,
                [sentence.document for sentence in sentences] if self._document_context else None,
            )
            logging.info("%s: %d sentences in %d windows", split, len(sentences), len(tokenized.windows))
            return sentences, tokenized

        return self.tokenized_once(split, tokenize)


def _write_tags(path, sentences, tags):
    tagged = (sentence._replace(tags=tuple(of_sentence)) for sentence, of_sentence in zip(sentences, tags, strict=True))
    write_conll(path, tagged, overwrite=True)
