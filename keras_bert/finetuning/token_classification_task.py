"""Tagging of words, with entities or parts of speech, on CoNLL's column files."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert.data.formats.conll import TaggedSentence, read_conll, write_conll
from keras_bert.data.tokenized_examples import TokenizedExamples
from keras_bert.data.tokenized_sentences import TokenizedSentences
from keras_bert.finetuning.task import DataSettings, FineTuningTask, Metrics, TaskData, by_split, skip_if_read_only
from keras_bert.io.row_errors import BadRows
from keras_bert.metrics.entity_scores import tagging_metrics, tagging_report
from keras_bert.models.token_classifier import BertTokenClassifier
from keras_bert.settings import files_setting, setting
from keras_bert.text.tags import PLAIN, SCHEMES, detect_scheme
from keras_bert.weights.layout import TOKEN_HEAD


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenClassificationSettings(DataSettings):
    """Settings of tagging: column files, and how to read them."""

    train_file: tuple[str, ...] = files_setting(
        "CoNLL file to train on, or a pattern; repeat the flag for several.", "train"
    )
    dev_file: tuple[str, ...] = files_setting("File to choose the best model by and to evaluate on.", "train", "eval")
    test_file: tuple[str, ...] = files_setting("Further file to evaluate on.", "train", "eval")
    predict_file: tuple[str, ...] = files_setting("File to tag; its tags are ignored.", "predict")
    token_column: int = setting(0, "Column of the tokens, from 0, or from the end if negative.")
    tag_column: int = setting(-1, "Column of the tags.")
    comment_prefix: str | None = setting(None, "What comment lines begin with; default: there are none.")
    scheme: str | None = setting(None, "Tagging scheme; default: detected from the files' tags.", choices=SCHEMES)
    labels: tuple[str, ...] | None = setting(None, "The tags, comma-separated; default: those in the training file.")
    document_context: bool = setting(False, "Read a sentence with the text around it in its document.")


class TokenClassificationTask(FineTuningTask):
    """CoNLL-2003's task (paper, section 5.3) on `TaggedSentence`s, and any other in which every word has a tag.

    Without `labels` in the settings, the tags are those of the model.
    """

    head = TOKEN_HEAD

    def __init__(self, settings: TokenClassificationSettings, data: TaskData) -> None:
        super().__init__("tagging", "token_accuracy" if settings.scheme == PLAIN else "f1", data)
        self.settings = settings
        self._scheme = settings.scheme or PLAIN

    settings_class = TokenClassificationSettings

    @classmethod
    def from_settings(
        cls, settings: TokenClassificationSettings, modes: Collection[str], seed: int = 1
    ) -> TokenClassificationTask:
        bad_rows = BadRows(skip=settings.skip_bad_rows)
        labels, scheme = settings.labels, settings.scheme

        def read(paths: Collection[str], is_labelled: bool = True) -> Iterable[TaggedSentence]:
            return read_conll(
                list(paths),
                settings.tag_column if is_labelled else None,
                settings.token_column,
                scheme,
                settings.comment_prefix,
                bad_rows,
                None if labels is None or not is_labelled else list(labels),
            )

        train = read(settings.train_file) if settings.train_file and "train" in modes else None
        if train is not None:
            tags = _tags(train)
            scheme = scheme or detect_scheme(tags)
            found = {tag for sentence_tags in tags for tag in sentence_tags}
            labels = labels or tuple(sorted(found, key=lambda tag: (tag != "O", tag)))
            logging.info("%d tags of the scheme %s: %s", len(labels), scheme, ", ".join(labels))
        evaluation = {}
        if {"train", "eval"} & set(modes):
            files = {"dev": settings.dev_file, "test": settings.test_file}
            evaluation = {split: read(paths) for split, paths in files.items() if paths}
        if scheme is None:  # a checkpoint that no run has trained
            scheme = detect_scheme(tags for examples in evaluation.values() for tags in _tags(examples))
        is_predicted = settings.predict_file and "predict" in modes
        prediction = {"predict": read(settings.predict_file, is_labelled=False)} if is_predicted else {}
        data = TaskData(train, evaluation, prediction, bad_rows)
        return cls(dataclasses.replace(settings, scheme=scheme, labels=labels), data)

    def load_model(self, checkpoint: str | Path, arguments: dict[str, Any]) -> BertTokenClassifier:
        labels = None if self.settings.labels is None else list(self.settings.labels)
        return BertTokenClassifier.from_checkpoint(checkpoint, labels=labels, **arguments)

    def describe_head(self, model: BertTokenClassifier) -> str:
        return f"layer for the tags {model.labels}"

    def tokenize_split(self, split: str, examples: Iterable[Any], model: BertTokenClassifier) -> TokenizedExamples:
        return self._tokenize(split, examples, model)[1].windows

    def split_metrics(self, model: BertTokenClassifier, split: str, batch_size: int | None) -> Metrics:
        sentences, predicted = self._predict(model, split, self.data.evaluation[split], batch_size)
        return tagging_metrics(_tags(sentences), predicted, self._scheme)

    def report(
        self, model: BertTokenClassifier, run_dir: Path, batch_size: int | None
    ) -> tuple[Metrics, dict[str, Any]]:
        """Returns the scores of all evaluation splits by type, and writes the tags to `evaluation_<split>.conll`."""
        metrics, reports = {}, {}
        for split, examples in self.data.evaluation.items():
            sentences, predicted = self._predict(model, split, examples, batch_size)
            true = _tags(sentences)
            metrics[split] = tagging_metrics(true, predicted, self._scheme)
            reports[split] = tagging_report(true, predicted, self._scheme)
            file = run_dir / f"evaluation_{split}.conll"
            with skip_if_read_only(file):
                _write_tags(file, sentences, predicted)
        return by_split(metrics), reports

    def write_predictions(self, model: BertTokenClassifier, folder: Path, batch_size: int | None) -> list[Path]:
        """Tags all prediction splits, in CoNLL files."""
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for split, examples in self.data.prediction.items():
            sentences, predicted = self._predict(model, split, examples, batch_size, is_labelled=False)
            files.append(folder / f"{split}.conll")
            _write_tags(files[-1], sentences, predicted)
        return files

    def _predict(
        self,
        model: BertTokenClassifier,
        split: str,
        examples: Iterable[TaggedSentence],
        batch_size: int | None,
        is_labelled: bool = True,
    ) -> tuple[list[TaggedSentence], list[list[str]]]:
        """Returns the sentences and their predicted tags."""
        sentences, tokenized = self._tokenize(split, examples, model, is_labelled)
        numbers = model.predict_logits(tokenized, batch_size).argmax(axis=1)
        return sentences, [[model.labels[number] for number in row] for row in tokenized.split_by_sentence(numbers)]

    def _tokenize(
        self, split: str, examples: Iterable[TaggedSentence], model: BertTokenClassifier, is_labelled: bool = True
    ) -> tuple[list[TaggedSentence], TokenizedSentences]:
        def tokenize() -> tuple[list[TaggedSentence], TokenizedSentences]:
            sentences = list(examples)
            tokenized = model.tokenize_sentences(
                [sentence.tokens for sentence in sentences],
                [sentence.tags for sentence in sentences] if is_labelled else None,
                [sentence.document for sentence in sentences] if self.settings.document_context else None,
            )
            logging.info("%s: %d sentences in %d windows", split, len(sentences), len(tokenized.windows))
            return sentences, tokenized

        return self.tokenized_once(split, tokenize)


def _tags(sentences: Iterable[TaggedSentence]) -> list[tuple[str, ...]]:
    return [sentence.tags or () for sentence in sentences]


def _write_tags(path: Path, sentences: Sequence[TaggedSentence], tags: Sequence[Sequence[str]]) -> None:
    tagged = (sentence._replace(tags=tuple(row)) for sentence, row in zip(sentences, tags, strict=True))
    write_conll(path, tagged, overwrite=True)
