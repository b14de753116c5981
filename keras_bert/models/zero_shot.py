"""Classification of texts by labels that are chosen at run time, with a classifier of natural language inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from keras_bert.data.columns import PAIR_COLUMNS, text_column
from keras_bert.data.label_values import MULTI_LABEL, SINGLE_LABEL
from keras_bert.export.export_options import ExportOptions
from keras_bert.export.saved_model import check_export_path, write_saved_model
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.labels import label_names
from keras_bert.models.serving import with_dtype
from keras_bert.typing import PathLike, Tensor

_WARMUP_LABELS = ["a topic", "another topic"]
_WARMUP_TEXTS = ["warm up", "a second text, which is somewhat longer than the first one was"]


class ZeroShotClassifier:
    """Classifies texts by labels given at run time, without training on them (arXiv 1909.00161).

    A classifier of natural language inference (NLI) reads the text as premise, and as hypothesis a sentence made from
    each label. The scores are those of Hugging Face's zero-shot pipeline: for one label per text, the softmax of the
    labels' logits of entailment; for several, the softmax of the logits of entailment and contradiction of each label.

    Differs from Hugging Face: a single label needs `multi_label=True`, which their pipeline assumes for it; and of a
    text and a hypothesis that are too long together, the longer is truncated, as in training, and not always the text.

    Args:
        classifier: a `BertClassifier` with a preprocessor, trained on pairs of premise and hypothesis with a single
            label per pair. It is used as it is; train it further at any time.
        entailment: its label for a hypothesis that follows from the premise. None means the label whose name begins
            with "entail", in upper or lower case.
        contradiction: its label for a hypothesis that the premise contradicts. None means the label whose name begins
            with "contradict", or of two labels the one that is not entailment. Only `multi_label` uses it.
        template: hypothesis, with "{}" in place of the label.
        multi_label: whether any number of labels may apply to a text, instead of exactly one.

    Raises:
        TypeError: if `classifier` is not a BertClassifier.
        ValueError: if it has no preprocessor or its labels are not single, a label is not found, or the template does
            not have exactly one "{}".

    Example:

    >>> encoder = keras_bert.BertEncoder(6, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, seed=0)
    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "rain", "snow"], lower_case=True)
    >>> preprocessor = keras_bert.BertPreprocessor(tokenizer)
    >>> nli = BertClassifier(encoder, ["contradiction", "neutral", "entailment"], preprocessor, seed=0)
    >>> zero_shot = ZeroShotClassifier(nli)  # after training `nli` on pairs
    >>> zero_shot.predict_probabilities(["Snow!", "rain, rain"], labels=["rain", "snow", "hail"]).shape
    (2, 3)
    >>> folder = zero_shot.export(Path(tempfile.mkdtemp()) / "1")
    >>> serve = tf.saved_model.load(folder).signatures["serving_default"]
    >>> serve(text=tf.constant(["Snow!"]), labels=tf.constant(["rain", "snow"]))["probabilities"].shape.as_list()
    [1, 2]
    """

    def __init__(
        self,
        classifier: BertClassifier,
        entailment: str | None = None,
        contradiction: str | None = None,
        template: str = "This text is about {}.",
        multi_label: bool = False,
    ):
        if not isinstance(classifier, BertClassifier):
            raise TypeError(f"classifier must be a BertClassifier, got a {type(classifier).__name__}")
        if classifier.problem_type != SINGLE_LABEL:
            raise ValueError(
                f"the classifier must have a single label per pair ({SINGLE_LABEL!r}), as NLI has; its problem_type is "
                f"{classifier.problem_type!r}"
            )
        classifier.require_preprocessor()
        if not isinstance(template, str) or template.count("{}") != 1:
            raise ValueError(f'template must have exactly one "{{}}" for the label, got {template!r}')
        self.classifier = classifier
        self.template = template
        self.multi_label = bool(multi_label)
        names = classifier.labels
        self.entailment = _find_label("entailment", "entail", entailment, names)
        self.contradiction: str | None = None
        if multi_label:
            if contradiction is None and len(names) == 2:
                contradiction = next(name for name in names if name != self.entailment)
            self.contradiction = _find_label("contradiction", "contradict", contradiction, names)
            if self.contradiction == self.entailment:
                raise ValueError(f"entailment and contradiction must be two labels, got {self.entailment!r} for both")

    def predict_probabilities(
        self, texts: Any, labels: Sequence[str], batch_size: int | None = None, verbose: int | str = 0
    ) -> np.ndarray:
        """Predicts the probabilities of labels.

        Args:
            texts: a list of texts.
            labels: distinct names, at least two; with `multi_label` at least one.
            batch_size, verbose: as for `BertClassifier.predict`, where an example is a text with one label.

        Returns:
            float32 array [texts, labels]. Rows add up to 1, unless `multi_label`.

        Raises:
            ValueError, TypeError: if texts or labels are invalid.
        """
        scores, _ = self._predict_scores(texts, labels, batch_size, verbose)
        return np.asarray(self._probabilities(scores))

    def predict_labels(
        self, texts: Any, labels: Sequence[str], batch_size: int | None = None, verbose: int | str = 0
    ) -> list[Any]:
        """Predicts labels.

        Args:
            texts, labels, batch_size, verbose: as for `predict_probabilities`, also for errors.

        Returns:
            A label per text; with `multi_label`, a list of those with a probability of at least one half.
        """
        scores, names = self._predict_scores(texts, labels, batch_size, verbose)
        if not self.multi_label:
            return [names[i] for i in scores.argmax(axis=1)]
        return [[name for name, score in zip(names, row, strict=True) if score >= 0] for row in scores]

    def export(self, path: PathLike, dtype: str | None = None) -> Path:
        """Writes a SavedModel that takes texts and labels, for TensorFlow Serving or `tf.saved_model.load`.

        Its signature `serving_default` takes `text`, strings [batch], and `labels`, strings [labels], the same for all
        texts. It returns `probabilities` float32 [batch, labels], and `label` string [batch], the most probable one. A
        request with fewer labels than `predict_probabilities` needs is an error. A server cannot join requests, which
        may have different labels, so the export has no batching parameters.

        Args:
            path: folder to write, for example "models/topics/1"; the server reads the version from its name.
            dtype: as for `BertClassifier.export`.

        Returns:
            Path of the folder.

        Raises:
            FileExistsError: if `path` exists; a version is never overwritten.
            ValueError: if the dtype is unknown.
        """
        check_export_path(path)
        served = with_dtype(self.classifier, ExportOptions(dtype=dtype).dtype)

        def answer(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            texts, labels = inputs["text"], inputs["labels"]
            num_texts, num_labels = tf.size(texts), tf.size(labels)
            message = f"there must be at least {self._min_labels} labels; their number is"
            is_enough = tf.debugging.Assert(num_labels >= self._min_labels, [message, num_labels])
            with tf.control_dependencies([is_enough]):
                hypotheses = tf.strings.join(self._template_parts(labels))
            pairs = (tf.repeat(texts, num_labels), tf.tile(hypotheses, [num_texts]))
            logits = served(served.preprocessor(dict(zip(PAIR_COLUMNS, pairs, strict=True))))
            scores = tf.reshape(self._scores(logits), [num_texts, num_labels])
            # From the scores, as in `predict_labels`: probabilities may round to the same number.
            best = tf.gather(labels, tf.argmax(scores, axis=1))
            return {"probabilities": self._probabilities(scores), "label": best}

        specs = {name: tf.TensorSpec([None], tf.string) for name in ("text", "labels")}
        requests = [{"text": _WARMUP_TEXTS[:rows], "labels": _WARMUP_LABELS} for rows in (1, 2)]
        return write_saved_model(
            path,
            {"serving_default": (answer, specs)},
            [weight.value for weight in served.weights],
            assets={"vocab.txt": "\n".join(served.preprocessor.tokenizer.vocabulary) + "\n"},
            warmup_requests=[("serving_default", request) for request in requests],
            max_batch_size=None,
        )

    @property
    def _min_labels(self) -> int:
        return 1 if self.multi_label else 2

    def _template_parts(self, label: Any) -> list[Any]:
        before, after = self.template.split("{}")
        return [before, label, after]

    def _predict_scores(
        self, texts: Any, labels: Any, batch_size: int | None, verbose: int | str
    ) -> tuple[np.ndarray, list[str]]:
        """Returns the scores [texts, labels], whose softmax or sigmoid are the probabilities, and the labels."""
        texts, labels = text_column(texts, "texts"), text_column(labels, "labels").tolist()
        names = label_names(labels, MULTI_LABEL if self.multi_label else SINGLE_LABEL)
        hypotheses = ["".join(self._template_parts(name)) for name in names]
        pairs = (np.repeat(texts, len(names)), hypotheses * len(texts))
        logits = self.classifier.predict(dict(zip(PAIR_COLUMNS, pairs, strict=True)), batch_size, verbose)
        return np.asarray(self._scores(logits)).reshape(len(texts), len(names)), names

    def _scores(self, logits: Tensor) -> Tensor:
        """Converts the classifier's logits [pairs, labels of NLI] to scores [pairs]."""
        names = self.classifier.labels
        scores = logits[:, names.index(self.entailment)]
        return scores - logits[:, names.index(self.contradiction)] if self.contradiction is not None else scores

    def _probabilities(self, scores: Tensor) -> Tensor:
        return ops.sigmoid(scores) if self.multi_label else ops.softmax(scores, axis=1)


def _find_label(what: str, prefix: str, given: str | None, names: Sequence[str]) -> str:
    """Returns the label of the classifier that is given, or else the only one whose name begins with a prefix."""
    found = [name for name in names if (name.lower().startswith(prefix) if given is None else name == given)]
    if len(found) == 1:
        return found[0]
    looked_for = f'one whose name begins with "{prefix}"' if given is None else repr(given)
    raise ValueError(
        f"no label for {what}: looked for {looked_for} among the classifier's labels {list(names)}; "
        f"pass {what}=, one of them"
    )
