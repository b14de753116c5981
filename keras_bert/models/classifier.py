"""Classifier of texts and pairs of texts."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import keras
import numpy as np
from keras import ops

from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS
from keras_bert.data.label_values import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from keras_bert.export.export_options import ExportArguments, ExportOptions
from keras_bert.layers.text_pooling import pool_tokens, scale_to_unit_length
from keras_bert.models.head import BertHead, LossTerms
from keras_bert.models.inference import Predictor
from keras_bert.models.labels import class_weight_list, encode_labels, label_names
from keras_bert.typing import Inputs, PathLike, Tensor
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.layout import CLASSIFIER_HEAD, POOLER, POOLINGS
from keras_bert.weights.sentence_transformers import read_embedding_settings

if TYPE_CHECKING:
    from keras_bert.text.preprocessor import BertPreprocessor

_ALL_VALUES = "values"  # the output that holds every value of a regression
_WINDOW_TEXT_IDS = "window_text_ids"
_WINDOWS = "windows"  # `keras_bert.text.preprocessor.WINDOWS`, whose module needs TensorFlow
_TAKEN_NAMES = (_ALL_VALUES, "num_windows", "truncated")  # of outputs that are not one label's


@keras.saving.register_keras_serializable(package="keras_bert")
class BertClassifier(BertHead):
    """BERT with a classification layer on one vector per text (paper, section 4.1; google-research/bert,
    run_classifier.py).

    Takes texts (`text`, or pairs `text_a` and `text_b`) or ids, and returns logits.

    Args:
        encoder: encoder, with a pooler if that is the pooling.
        labels: list of label names, or their number. For regression the names of the outputs; None means one output.
        preprocessor: a `BertPreprocessor`; None for a classifier that takes ids only.
        problem_type: "single_label_classification", "multi_label_classification" (any number of labels at once) or
            "regression".
        pooling: where the vector of a text comes from: "pooler", the paper's dense layer on [CLS]; or without that
            layer "mean", "cls", "max" or "weighted", as for `BertTextEmbedder`, scaled to the length sqrt(hidden).
        dropout: rate of the dropout on that vector.
        class_weights: list, or dict of label name to weight: how much an example of a label (with several labels at
            once: a label's term) counts in the loss. None weights all equally.
        **kwargs: freeze, seed, name, dtype, trainable, and `lora_rank` and so on, as for `BertHead`.

    Inputs: the encoder's dict of ids. With windows (see `BertPreprocessor`) also `window_text_ids`, int32 [windows]:
        which text a window belongs to, ascending from 0; the logits of a text's windows are averaged.

    Outputs:
        float32 logits [texts, labels].

    Raises:
        ValueError: on invalid labels, weights, pooling or freeze, an encoder that lacks the pooler or has one that is
            not used, or a preprocessor that does not fit the encoder.

    Example:

    >>> encoder = keras_bert.BertEncoder(6, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, seed=0)
    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad"], lower_case=True)
    >>> preprocessor = keras_bert.BertPreprocessor(tokenizer, sequence_length=8)
    >>> classifier = BertClassifier(encoder, ["negative", "positive"], preprocessor, seed=0)
    >>> classifier.compile(keras_bert.BertAdamW(1e-2))
    >>> history = classifier.fit(["good", "bad"] * 8, ["positive", "negative"] * 8, epochs=8, verbose=0)
    >>> classifier.predict_labels(["bad", "good"])
    ['negative', 'positive']
    """

    head_name = CLASSIFIER_HEAD
    labels: list[str]
    problem_type: str

    def __init__(
        self,
        encoder: keras.Model,
        labels: int | Sequence[str] | None = None,
        preprocessor: BertPreprocessor | None = None,
        problem_type: str = SINGLE_LABEL,
        pooling: str = POOLER,
        dropout: float = 0.1,  # google-research/bert, run_classifier.py: keep_prob=0.9
        class_weights: Sequence[float] | Mapping[str | int, float] | None = None,
        **kwargs: Any,
    ):
        super().__init__(encoder, preprocessor, **kwargs)
        if pooling not in (POOLER, *POOLINGS):
            raise ValueError(f"unknown pooling {pooling!r}; allowed are {(POOLER, *POOLINGS)}")
        if encoder.with_pooler != (pooling == POOLER):
            needed = "the pooler" if pooling == POOLER else "no pooler"
            raise ValueError(
                f"pooling={pooling!r} needs an encoder with {needed}: make it with with_pooler={pooling == POOLER}, or "
                "pass another pooling"
            )
        self.problem_type = problem_type
        self.pooling = pooling
        self.labels = label_names(labels, problem_type)
        self.class_weights = class_weight_list(class_weights, self.labels)
        if problem_type == REGRESSION and class_weights is not None:
            raise ValueError("regression has no classes to weigh; leave class_weights out")
        self.dropout = self.dropout_layer(dropout)
        self.logits = self.output_layer(len(self.labels), CLASSIFIER_HEAD)
        self.finish_init()

    def call(self, inputs: Inputs, training: bool = False) -> Tensor:
        """Computes the logits of a batch of ids."""
        pooled = self.dropout(self._pooled(inputs, training), training=training)
        return _mean_of_windows(self.logits(pooled), inputs)

    @property
    def _length(self) -> float:
        # About the length of a pooler's output, for which learning rates are known: numbers near 1.
        return self.encoder.hidden_size**0.5

    def _pooled(self, inputs: Inputs, training: bool = False) -> Tensor:
        """Computes the vectors [rows, hidden] that the output layer takes."""
        inputs = {name: ids for name, ids in inputs.items() if name != _WINDOW_TEXT_IDS}
        if self.pooling == POOLER:
            return self.encoder(inputs, training=training, pooled_only=True)["pooled_output"]
        tokens = ops.cast(self.encoder(inputs, training=training)["sequence_output"], "float32")
        vectors = scale_to_unit_length(pool_tokens(tokens, inputs.get("padding_mask"), self.pooling))
        return vectors * self._length

    def loss_terms(self, labels: Any, outputs: Any, sample_weight: Tensor | None = None) -> LossTerms:
        """Computes the loss of a batch.

        Args:
            labels: encoded labels: int [batch], or float [batch, labels].
            outputs: float32 logits [batch, labels].
            sample_weight: float [batch] or None.

        Returns:
            `{"loss": (sum, weight)}`: cross-entropy (softmax, or a sigmoid for each label) or squared error, times the
            weights of classes and examples, and the sum of those weights.
        """
        if self.problem_type == SINGLE_LABEL:
            one_hot = ops.one_hot(ops.reshape(labels, (-1,)), len(self.labels), dtype=outputs.dtype)
            losses = -ops.sum(one_hot * ops.log_softmax(outputs), axis=-1, keepdims=True)  # [batch, 1]
        else:
            labels = ops.reshape(ops.cast(labels, outputs.dtype), ops.shape(outputs))
            if self.problem_type == MULTI_LABEL:
                losses = ops.softplus(outputs) - labels * outputs  # the cross-entropy of a sigmoid, [batch, labels]
            else:
                losses = ops.square(outputs - labels)
        weights = self._weights(labels, sample_weight)
        return {"loss": (ops.sum(losses * weights), ops.sum(weights))}

    def _weights(self, labels: Any, sample_weight: Tensor | None) -> Tensor:
        """Returns float32 [batch, 1] for single labels, [batch, labels] otherwise."""
        if self.problem_type == SINGLE_LABEL:
            labels = ops.reshape(labels, (-1,))
            weights = ops.ones_like(labels, dtype="float32")[:, None]
            if self.class_weights is not None:
                weights = ops.take(ops.convert_to_tensor(self.class_weights, "float32"), labels)[:, None]
        else:
            weights = ops.ones((ops.shape(labels)[0], len(self.labels)), "float32")
            if self.class_weights is not None:
                weights = weights * ops.convert_to_tensor(self.class_weights, "float32")
        if sample_weight is not None:
            weights = weights * ops.reshape(ops.cast(sample_weight, "float32"), (-1, 1))
        return weights

    def accuracy_metric(self) -> keras.metrics.Metric | None:
        """Creates the accuracy metric of the problem type; None for regression."""
        if self.problem_type == SINGLE_LABEL:
            return keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        if self.problem_type == MULTI_LABEL:
            return keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)  # logit of a probability of one half
        return None

    def default_metrics(self) -> list[keras.metrics.Metric] | None:
        """Creates the metrics: accuracy, or mean squared and absolute error for regression."""
        if self.problem_type == REGRESSION:
            return [keras.metrics.MeanSquaredError(name="mse"), keras.metrics.MeanAbsoluteError(name="mae")]
        return super().default_metrics()

    def encode_labels(self, labels: Any) -> np.ndarray:
        """Encodes label names or numbers as the loss takes them; see `keras_bert.models.labels.encode_labels`."""
        return encode_labels(labels, self.labels, self.problem_type)

    def encode_labels_in_graph(self, labels: Any) -> Any:
        """Encodes the labels of a batch of a dataset: names or numbers of single labels, otherwise rows of numbers."""
        from keras_bert.data.text_datasets import encode_label_rows, encode_single_labels

        if self.problem_type == SINGLE_LABEL:
            return encode_single_labels(labels, self.labels)
        return encode_label_rows(labels, len(self.labels), is_binary=self.problem_type == MULTI_LABEL)

    def label_classes(self, examples: Any = None) -> list[str] | None:
        """Returns the labels, for single labels."""
        return self.labels if self.problem_type == SINGLE_LABEL else None

    def probabilities(self, logits: Tensor) -> Tensor:
        """Converts logits [texts, labels] to probabilities; for regression the values are returned unchanged."""
        if self.problem_type == SINGLE_LABEL:
            return ops.softmax(logits)
        return ops.sigmoid(logits) if self.problem_type == MULTI_LABEL else logits

    def fit_logits(self, x: Any, y: Any = None, inverse_regularization: float = 1.0) -> None:
        """Fits the output layer alone, by scikit-learn's logistic regression with an L2 penalty, and not the encoder.

        This is the second step of SetFit (arXiv 2209.11055), after the encoder was trained in a `BertTextEmbedder` on
        `keras_bert.contrastive_pairs`; with any other encoder it is a linear probe. The regression is fitted to vectors
        of length 1, as by the setfit library for an embedder that normalizes.

        Args:
            x, y: texts or ids in memory and their labels, as for `fit`; at least one text for each label.
            inverse_regularization: scikit-learn's `C`: the higher, the closer the fit to the labels.

        Raises:
            ValueError: if the problem is not single-label classification, a label has no text, or the Keras backend is
                not TensorFlow.

        Example:

        >>> encoder = keras_bert.BertEncoder(
        ...     6, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, with_pooler=False, seed=0
        ... )
        >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad"], lower_case=True)
        >>> preprocessor = keras_bert.BertPreprocessor(tokenizer, sequence_length=8)
        >>> classifier = BertClassifier(encoder, ["no", "yes"], preprocessor, pooling="mean", seed=0)
        >>> classifier.fit_logits(["good", "bad"], ["yes", "no"], inverse_regularization=10.0)
        >>> classifier.predict_labels(["bad", "good"])
        ['no', 'yes']
        """
        from sklearn.linear_model import LogisticRegression

        if keras.backend.backend() != "tensorflow":
            raise ValueError(f"fit_logits needs TensorFlow, and the Keras backend is {keras.backend.backend()}")
        if self.problem_type != SINGLE_LABEL:
            raise ValueError(
                f"logistic regression needs a single label per text ({SINGLE_LABEL!r}); the problem_type is "
                f"{self.problem_type!r}"
            )
        examples: Any = self.tokenize(x, y)
        if examples.labels is None:
            raise ValueError("there are no labels: y is None")
        counts = np.bincount(examples.labels, minlength=len(self.labels))
        if missing := [name for name, count in zip(self.labels, counts, strict=True) if not count]:
            raise ValueError(f"every label needs a text to learn from; there is none for {missing}")
        predictor = Predictor(lambda model, batch: _mean_of_windows(ops.cast(model._pooled(batch), "float32"), batch))
        vectors = predictor.outputs_of_examples(self, examples).astype("float64")
        weights = None if self.class_weights is None else dict(enumerate(self.class_weights))
        regression = LogisticRegression(C=inverse_regularization, class_weight=weights, max_iter=1000)
        regression.fit(vectors / self._length, examples.labels)
        kernel, bias = regression.coef_.T / self._length, regression.intercept_
        if len(self.labels) == 2:  # one logit, that of the second label
            kernel, bias = (np.concatenate([-part / 2, part / 2], axis=-1) for part in (kernel, bias))
        self.logits.kernel.assign(kernel)
        self.logits.bias.assign(bias)

    def predict_probabilities(self, x: Any, batch_size: int | None = None, verbose: int | str = 0) -> np.ndarray:
        """Predicts the probabilities of the labels (values for regression), in the order given.

        Args:
            x, batch_size, verbose: as for `predict`.

        Returns:
            float32 array [texts, labels].
        """
        return np.asarray(self.probabilities(self.predict(x, batch_size, verbose)))

    def predict_labels(self, x: Any, batch_size: int | None = None, verbose: int | str = 0) -> list[Any]:
        """Predicts label names, in the order given.

        Args:
            x, batch_size, verbose: as for `predict`.

        Returns:
            A label name per text; with several labels at once, a list of those with a probability of at least one half.

        Raises:
            ValueError: for regression, which has no labels.
        """
        if self.problem_type == REGRESSION:
            raise ValueError("regression gives values, not labels; use `predict`")
        logits = self.predict(x, batch_size, verbose)
        if self.problem_type == SINGLE_LABEL:
            return [self.labels[i] for i in logits.argmax(axis=-1)]
        return [[name for name, logit in zip(self.labels, row, strict=True) if logit >= 0] for row in logits]

    def export(self, path: PathLike, *, pairs: bool = False, **options: Unpack[ExportArguments]) -> Path:
        """Writes a SavedModel that takes raw text, for TensorFlow Serving or `tf.saved_model.load`.

        Signatures: `serving_default` takes `text` (or `text_a` and `text_b`), strings [batch]; `tokens` takes
        `token_ids`, `segment_ids`, `padding_mask`, int32 [batch, length]; `examples` takes serialized tf.Examples
        [batch] with the inputs of `serving_default` as features. Each returns `probabilities` [batch, labels], `label`
        [batch] and `score_<label>` [batch] for every label; with several labels at once also `labels` [batch, labels],
        the names of those that hold, else ""; regression returns `values` [batch, outputs] and each output by name.
        With windows, the signatures of texts also return `num_windows` int32 [batch], how many windows of the text were
        read, and `truncated` bool [batch], whether there are more than the preprocessor's `max_windows`. `tokens`
        refuses ids that the encoder does not have.

        Args:
            path: folder to write, for example "models/intents/1"; the server reads the version from its name.
            pairs: whether the inputs are pairs of texts.
            **options: options that all heads have:
                dtype: "float32" or "bfloat16" to store and compute in it; None means the model's own. bfloat16 halves
                    the size, and is faster on processors that compute in it.
                format: "saved_model"; or "onnx", "openvino" or "litert" for a folder with a float32 model of that
                    runtime, which takes the inputs of `tokens` and returns those of its outputs that are numbers and
                    have two axes or more, the tokenizer's files, and a README.md with the code that runs it. The file
                    is run after it is written, and must return this model's outputs to 1e-5.
                quantize: "int8_dynamic" to store weights as int8 and to quantize activations at run time, not for
                    SavedModels; "int8", for "openvino" only, to quantize them to ranges that were measured on
                    `calibration_texts`; None for float32. A quantized file must return about this model's outputs.
                calibration_texts: for "int8", about 300 typical texts, in any form that `predict` takes; of more, 300
                    are used.

        Returns:
            Path of the folder.

        Raises:
            FileExistsError: if `path` exists; a version is never overwritten.
            ImportError: if the packages of the format are not installed.
            TypeError: for an unknown option.
            ValueError: if there is no preprocessor, an option is unknown or does not fit the others, the Keras backend
                is not TensorFlow, or the runtime of the format cannot run this model or returns other outputs.
        """
        from keras_bert.models.serving import TextInputs, export_head, text_signatures

        inputs = TextInputs(PAIR_COLUMNS if pairs else TEXT_COLUMNS)

        def signatures(served: Any) -> Any:
            def from_windows(texts: Any) -> Any:
                ids, num_windows, is_cut = served.preprocessor.with_window_counts(texts)
                return {**_serving_answers(served, served(ids)), "num_windows": num_windows, "truncated": is_cut}

            from_texts = from_windows if served.preprocessor.long_texts == _WINDOWS else None
            return text_signatures(served, inputs, lambda ids: _serving_answers(served, served(ids)), from_texts)

        labels = {"labels.txt": "\n".join(self.labels) + "\n"}
        return export_head(self, path, ExportOptions(**options), signatures, inputs, labels)

    def get_config(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("labels", "problem_type", "pooling", "class_weights")}
        return {**super().get_config(), **own, "dropout": self.dropout.rate}

    def classifier_arguments(self) -> dict[str, Any]:
        """Returns what a checkpoint stores of the classifier besides its weights."""
        arguments = super().classifier_arguments()
        assert isinstance(arguments, dict)
        return {**arguments, "pooling": self.pooling}

    @classmethod
    def from_checkpoint(cls, path: PathLike, **arguments: Any) -> Self:
        """Creates a classifier as `BertHead.from_checkpoint` does.

        The pooling is by default that of the checkpoint's classifier; without one, the pooler, or for a
        sentence-transformers folder that has no pooler, the pooling that the folder states.
        """
        if arguments.get("pooling") is not None:
            arguments = {"with_pooler": arguments["pooling"] == POOLER, **arguments}
        return super().from_checkpoint(path, **arguments)

    @classmethod
    def read_settings(
        cls, checkpoint: Checkpoint, encoder: keras.Model, given: Collection[str]
    ) -> tuple[Checkpoint, dict[str, Any]]:
        """Reads the pooling of a sentence-transformers folder without a pooler."""
        settings = None
        if not encoder.with_pooler and "pooling" not in given and checkpoint.classifier_arguments is None:
            settings = read_embedding_settings(checkpoint.path.parent, encoder.hidden_size)
        return checkpoint, {} if settings is None else {"pooling": settings.pooling}

    @classmethod
    def checkpoint_defaults(cls, path: PathLike, head: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the checkpoint's labels, problem type, pooling and dropout."""
        problem_type = given.get("problem_type") or head.get("problem_type") or SINGLE_LABEL
        labels = head.get("label_names") or head.get("num_labels")
        if labels is None and "labels" not in given and problem_type != REGRESSION:
            raise ValueError(f"{path} has no classifier, so its labels are unknown; pass labels=[...], a list of names")
        defaults = {"labels": labels, "problem_type": problem_type, "pooling": head.get("pooling", POOLER)}
        return {**super().checkpoint_defaults(path, head, given), **defaults}

    def _has_labels_of(self, head: Mapping[str, Any]) -> bool:
        return head.get("pooling", POOLER) == self.pooling and super()._has_labels_of(head)


def _mean_of_windows(values: Tensor, inputs: Inputs) -> Tensor:
    """Averages rows of windows by text; without windows, rows are returned as they are."""
    numbers = inputs.get(_WINDOW_TEXT_IDS)
    if numbers is None:
        return values
    windows = ops.segment_sum(ops.ones_like(values), numbers, sorted=True)
    return ops.segment_sum(values, numbers, sorted=True) / windows


def _serving_answers(classifier: BertClassifier, logits: Any) -> dict[str, Any]:
    """Returns the named outputs of every signature, from logits [batch, labels]."""
    import tensorflow as tf

    values = tf.cast(classifier.probabilities(logits), tf.float32)
    names = output_names(classifier.labels, classifier.problem_type)
    answers = dict(zip(names, tf.unstack(values, axis=1), strict=True))
    if classifier.problem_type == REGRESSION:
        return {**answers, _ALL_VALUES: values}
    labels = tf.constant(classifier.labels)
    # From the logits, as in `predict_labels`: probabilities near 0, 1/2 and 1 may round to the same number.
    answers.update(probabilities=values, label=tf.gather(labels, tf.argmax(logits, axis=1)))
    if classifier.problem_type == MULTI_LABEL:
        # One column per label, empty where the label does not hold: no ragged output.
        answers["labels"] = tf.where(logits >= 0, labels[None], "")
    return answers


def output_names(labels: Sequence[str], problem_type: str) -> list[str]:
    """Returns a distinct output name for each label: `score_<label>`, or the label itself for regression.

    >>> output_names(["very good", "bad", "very-good"], "single_label_classification")
    ['score_very_good', 'score_bad', 'score_very_good_2']
    """
    prefix = "" if problem_type == REGRESSION else "score_"
    names: dict[str, None] = {}  # in order
    next_numbers: dict[str, int] = {}  # all labels in some scripts want one name
    for label in labels:
        name = wanted = prefix + re.sub(r"[^0-9A-Za-z_]", "_", label)
        number = next_numbers.get(wanted, 2)
        while name in names or name in _TAKEN_NAMES:
            name, number = f"{wanted}_{number}", number + 1
        next_numbers[wanted] = number
        names[name] = None
    return list(names)
