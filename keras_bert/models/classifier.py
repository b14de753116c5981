"""A classifier of texts and pairs of texts."""

import re

import keras
import numpy as np
from keras import ops

from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS
from keras_bert.models.freeze import FREEZE_NONE
from keras_bert.models.head import BertHead
from keras_bert.models.labels import (
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    class_weight_list,
    encode_labels,
    label_names,
)
from keras_bert.models.paper_encoders.encoder_loading import read_encoder
from keras_bert.models.pretrained import assign_arrays, drop_head, is_same_head, load_tokenizer
from keras_bert.weights.layout import CLASSIFIER_HEAD

_ALL_VALUES = "values"  # the output that holds every value of a regression


@keras.saving.register_keras_serializable(package="keras_bert")
class BertClassifier(BertHead):
    """BERT with a classification layer on the pooled output (paper, section 4.1; google-research/bert,
    run_classifier.py).

    Takes texts or ids, as `BertHead` says, and gives logits.

    Args:
        encoder: a `BertEncoder` with a pooler.
        labels: list of label names, or their number. For regression the names of the outputs; None is one output.
        preprocessor: a `BertPreprocessor`, or None for a classifier that takes ids only.
        problem_type: str. "single_label_classification", "multi_label_classification" (any number of labels at once) or
            "regression".
        dropout: float. Dropout on the pooled output.
        class_weights: list, or dict of label name to weight: how much an example of a label (for several labels: a
            label's term) counts in the loss. None counts all alike.
        freeze: what training leaves as it is: "none", "embeddings", "encoder", or a number k: the embeddings and the
            lowest k blocks. It is the encoder itself that is frozen, for whoever else uses it, too.
        seed: int or None. Seed of the new layer, of its dropout, and of the order of training texts.
        name, dtype, trainable: as for every Keras model; the dtype is the encoder's unless given.

    Inputs: the encoder's dict of ids. With windows (see `BertPreprocessor`) also `window_text_ids`, int32 [windows]:
    which text a
        window belongs to, ascending from 0; the logits of a text's windows are averaged.

    Outputs:
        float32 logits [texts, labels].

    Raises:
        ValueError: on labels, weights or a freeze that make no sense, an encoder without pooler, or a preprocessor that
            does not fit the encoder.

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

    def __init__(
        self,
        encoder,
        labels=None,
        preprocessor=None,
        problem_type=SINGLE_LABEL,
        dropout=0.1,  # google-research/bert, run_classifier.py: keep_prob=0.9
        class_weights=None,
        freeze=FREEZE_NONE,
        seed=None,
        name=None,
        dtype=None,
        trainable=True,
    ):
        super().__init__(encoder, preprocessor, freeze, seed, name, dtype)
        if not encoder.with_pooler:
            raise ValueError("a classifier reads the pooled output: the encoder must be made with with_pooler=True")
        self.problem_type = problem_type
        self.labels = label_names(labels, problem_type)
        self.class_weights = class_weight_list(class_weights, self.labels)
        if problem_type == REGRESSION and class_weights is not None:
            raise ValueError("regression has no classes to weigh; leave class_weights out")
        self.dropout = self.dropout_layer(dropout)
        self.logits = self.output_layer(len(self.labels), CLASSIFIER_HEAD)
        self.finish_init(trainable)

    def call(self, inputs, training=False):
        """Logits of a batch of ids; see the class."""
        inputs = dict(inputs)
        window_text_ids = inputs.pop("window_text_ids", None)
        pooled = self.encoder(inputs, training=training)["pooled_output"]
        logits = self.logits(self.dropout(pooled, training=training))
        if window_text_ids is None:
            return logits
        windows = ops.segment_sum(ops.ones_like(logits), window_text_ids, sorted=True)
        return ops.segment_sum(logits, window_text_ids, sorted=True) / windows

    def loss_terms(self, labels, outputs, sample_weight=None):
        """The classification loss of a batch.

        Args:
            labels: what `encode_labels` gives: int [batch], or float [batch, labels].
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

    def _weights(self, labels, sample_weight):
        """float32 [batch, 1] for single labels, [batch, labels] else: how much each of the losses counts."""
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

    def accuracy_metric(self):
        """The accuracy of the problem type; None for regression."""
        if self.problem_type == SINGLE_LABEL:
            return keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        if self.problem_type == MULTI_LABEL:
            return keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)  # of logits: probability one half
        return None

    def default_metrics(self):
        """Accuracy, or mean squared and absolute error for regression."""
        if self.problem_type == REGRESSION:
            return [keras.metrics.MeanSquaredError(name="mse"), keras.metrics.MeanAbsoluteError(name="mae")]
        return super().default_metrics()

    def encode_labels(self, labels):
        """Labels as a user writes them, as the numbers that the loss takes; see
        `keras_bert.models.labels.encode_labels`."""
        return encode_labels(labels, self.labels, self.problem_type)

    def encode_labels_in_graph(self, labels):
        """Labels from a dataset, checked: names or numbers of single labels, else rows of numbers."""
        from keras_bert.data.text_datasets import encode_label_rows, encode_single_labels

        if self.problem_type == SINGLE_LABEL:
            return encode_single_labels(labels, self.labels)
        return encode_label_rows(labels, len(self.labels), is_binary=self.problem_type == MULTI_LABEL)

    def label_classes(self, examples=None):
        """The labels, for single labels."""
        return self.labels if self.problem_type == SINGLE_LABEL else None

    def probabilities(self, logits):
        """What the logits mean: probabilities of the labels, or the values themselves for regression.

        Args:
            logits: float [texts, labels].

        Returns:
            float [texts, labels].
        """
        if self.problem_type == SINGLE_LABEL:
            return ops.softmax(logits)
        return ops.sigmoid(logits) if self.problem_type == MULTI_LABEL else logits

    def predict_probabilities(self, x, batch_size=None, verbose=0):
        """Probabilities of the labels (values for regression) for texts or ids, in the order given.

        Args:
            x, batch_size, verbose: as for `predict`.

        Returns:
            float32 array [texts, labels].
        """
        return np.asarray(self.probabilities(self.predict(x, batch_size, verbose)))

    def predict_labels(self, x, batch_size=None, verbose=0):
        """Label names for texts or ids, in the order given.

        Args:
            x, batch_size, verbose: as for `predict`.

        Returns:
            list of str; for several labels at once, a list of lists with every label whose probability is at least one
            half.

        Raises:
            ValueError: for regression, which has no labels.
        """
        if self.problem_type == REGRESSION:
            raise ValueError("regression gives values, not labels; use `predict`")
        logits = self.predict(x, batch_size, verbose)
        if self.problem_type == SINGLE_LABEL:
            return [self.labels[i] for i in logits.argmax(axis=-1)]
        return [[name for name, logit in zip(self.labels, row, strict=True) if logit >= 0] for row in logits]

    def export(self, path, dtype=None, pairs=False):
        """Writes a SavedModel that takes raw text, for TensorFlow Serving or `tf.saved_model.load`.

        Signatures: `serving_default` takes `text` (or `text_a` and `text_b`), strings [batch]; `tokens` takes
        `token_ids`, `segment_ids`, `padding_mask`, int32 [batch, length]; `examples` takes serialized tf.Examples
        [batch] with the same features as `serving_default` has inputs. Each answers `probabilities` [batch, labels],
        `label` [batch] and `score_<label>` [batch] for every label; with several labels at once also `labels` [batch,
        labels], the names of those that hold, else ""; regression answers `values` [batch, outputs] and each output by
        its name.

        Args:
            path: str or Path. The folder to write, for example "models/intents/1"; the server takes its name for the
                version.
            dtype: None for the dtype that the model has, or "float32" or "bfloat16" to store and compute in it.
                bfloat16 halves the size, and is faster on processors that compute in it.
            pairs: bool. Whether the inputs are pairs of texts.

        Returns:
            Path of the folder.

        Raises:
            FileExistsError: if there is something at `path`; a version is never overwritten.
            ValueError: if there is no preprocessor, or on an unknown dtype.
        """
        from keras_bert.models.serving import TextInputs, export_head, text_signatures

        inputs = TextInputs(PAIR_COLUMNS if pairs else TEXT_COLUMNS)
        return export_head(
            self,
            path,
            dtype,
            lambda served: text_signatures(served, inputs, lambda ids: serving_answers(served, served(ids))),
            inputs,
            assets={"labels.txt": "\n".join(self.labels) + "\n"},
        )

    def classifier_arguments(self):
        """What a checkpoint says of this classifier beside its weights; not its class weights."""
        return {
            "num_labels": len(self.labels),
            "label_names": self.labels,
            "problem_type": self.problem_type,
            "classifier_dropout": self.dropout.rate,
        }

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "labels": self.labels,
            "problem_type": self.problem_type,
            "dropout": self.dropout.rate,
            "class_weights": self.class_weights,
        }

    @classmethod
    def from_checkpoint(
        cls,
        path,
        labels=None,
        problem_type=None,
        sequence_length=128,  # google-research/bert, run_classifier.py: max_seq_length
        long_texts="truncate",
        window_stride=None,
        lower_case=None,
        vocabulary=None,
        dropout=None,
        class_weights=None,
        freeze=FREEZE_NONE,
        seed=None,
        name=None,
        **encoder_arguments,
    ):
        """A classifier on the weights of somebody's checkpoint, with the checkpoint's tokenizer.

        Args:
            path: str or Path, as for `BertEncoder.from_checkpoint`.
            labels: list of names or their number; None takes the labels of the checkpoint's own classifier. Its layer
                is used when the labels agree; else the layer starts at random, as the report says.
            problem_type: str; None takes the checkpoint's, or single labels.
            sequence_length: int. The longest input in tokens, with [CLS] and [SEP].
            long_texts: "truncate", or "windows" to average the logits of overlapping windows.
            window_stride: int; tokens from one window's beginning to the next one's; None is half a window.
            lower_case: bool; None takes what the checkpoint says or, where it does not, what its vocabulary shows.
            vocabulary: path or list of str; None takes the checkpoint's `vocab.txt`.
            dropout: float; None takes the checkpoint's, or 0.1.
            class_weights, freeze, seed, name: as for the constructor.
            **encoder_arguments: constructor arguments of the encoder that replace the checkpoint's, for example
                `dtype`; and `encoder` and `right_to_left`, as for
                `keras_bert.models.paper_encoders.encoder_loading.read_encoder`.

        Returns:
            A BertClassifier. Its attribute `checkpoint_report` says what was read, what stayed random, and what was not
            used.

        Raises:
            FileNotFoundError, ValueError: if the checkpoint is missing, damaged, not a BERT, or does not fit; if no
                labels are known; if `lower_case` contradicts the checkpoint.
        """
        from keras_bert.text.preprocessor import BertPreprocessor

        checkpoint, encoder = read_encoder(path, seed=seed, **encoder_arguments)
        head = checkpoint.head_arguments(CLASSIFIER_HEAD)
        problem_type = problem_type or head.get("problem_type") or SINGLE_LABEL
        own_labels = head.get("label_names") or head.get("num_labels")
        if labels is None and own_labels is None and problem_type != REGRESSION:
            raise ValueError(
                f"{path} has no classifier, so its labels are not known; give labels=[...], a list of names"
            )
        classifier = cls(
            encoder,
            labels=own_labels if labels is None else labels,
            preprocessor=BertPreprocessor(
                load_tokenizer(checkpoint, vocabulary, lower_case),
                sequence_length,
                "longest",
                long_texts,
                window_stride,
            ),
            problem_type=problem_type,
            dropout=next(rate for rate in (dropout, head.get("classifier_dropout"), 0.1) if rate is not None),
            class_weights=class_weights,
            freeze=freeze,
            seed=seed,
            name=name,
        )
        if not is_same_head(classifier.labels, problem_type, head):
            checkpoint = drop_head(checkpoint, CLASSIFIER_HEAD)
        classifier.checkpoint_report = assign_arrays(classifier.variables_by_path(), checkpoint)
        return classifier


def serving_answers(classifier, logits):
    """Named outputs of every signature, from logits [batch, labels]."""
    import tensorflow as tf

    values = tf.cast(classifier.probabilities(logits), tf.float32)
    answers = dict(
        zip(output_names(classifier.labels, classifier.problem_type), tf.unstack(values, axis=1), strict=True)
    )
    if classifier.problem_type == REGRESSION:
        return {**answers, _ALL_VALUES: values}
    names = tf.constant(classifier.labels)
    # From the logits, as in `predict_labels`: probabilities near 0, 1/2 and 1 may round to the same number.
    answers.update(probabilities=values, label=tf.gather(names, tf.argmax(logits, axis=1)))
    if classifier.problem_type == MULTI_LABEL:
        # One column per label, empty where the label does not hold: no ragged output.
        answers["labels"] = tf.where(logits >= 0, names[None], "")
    return answers


def output_names(labels, problem_type):
    """Returns a distinct output name for each label: `score_<label>`, or the label itself for regression.

    >>> output_names(["very good", "bad", "very-good"], "single_label_classification")
    ['score_very_good', 'score_bad', 'score_very_good_2']
    """
    prefix = "" if problem_type == REGRESSION else "score_"
    names = []
    for label in labels:
        name = wanted = prefix + re.sub(r"[^0-9A-Za-z_]", "_", label)
        number = 2
        while name in names or name == _ALL_VALUES:
            name, number = f"{wanted}_{number}", number + 1
        names.append(name)
    return names
