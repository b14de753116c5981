"""Multiple choice: selects the best continuation of a text."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import keras
import numpy as np
from keras import ops

from keras_bert.export.export_options import ExportArguments, ExportOptions
from keras_bert.models.freeze import FREEZE_NONE
from keras_bert.models.head import BertHead, LossTerms
from keras_bert.typing import Inputs, PathLike, Tensor
from keras_bert.weights.layout import CHOICE_HEAD

if TYPE_CHECKING:
    from keras_bert.data.tokenized_examples import TokenizedExamples
    from keras_bert.models.serving import TextInputs
    from keras_bert.text.preprocessor import BertPreprocessor

_NEVER = -1e9  # replaces the logit of an empty choice
_WARMUP_QUESTIONS = (
    {"prompt": "Warm", "choices": ["up.", "down."]},
    {
        "prompt": "A second prompt, which is somewhat longer,",
        "choices": ["is chosen for.", "has a choice that is long."],
    },
)


@keras.saving.register_keras_serializable(package="keras_bert")
class BertMultipleChoice(BertHead):
    """BERT with one vector whose product with the pooled output of a prompt and a choice is the choice's score (paper,
    section 4.4).

    Takes texts (`prompt`, and `choices`, a list of texts per prompt) or ids, and returns a logit per choice.

    Differs from BERT: the score has a bias, as in Hugging Face's checkpoints; it is the same for all choices, so it
    does not change the softmax.

    Args:
        encoder: encoder with a pooler.
        preprocessor: a `BertPreprocessor` that truncates; None for a model that takes ids only.
        dropout: rate of the dropout on the pooled output.
        freeze, seed: as for `BertHead`.
        **kwargs: name, dtype, trainable, as for every Keras model; the dtype defaults to the encoder's. And `lora_rank`
            and so on, as for `BertHead`.

    Inputs: the encoder's dict of ids, [questions, choices, length]; any number of choices, the same for all questions
        of a batch.

    Outputs: float32 logits [questions, choices].

    Raises:
        ValueError: if the preprocessor does not fit the encoder, the encoder has no pooler, or on an unknown freeze.

    Example:

    >>> encoder = keras_bert.BertEncoder(7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, seed=0)
    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "it", "rains", "pours"], True)
    >>> model = BertMultipleChoice(encoder, keras_bert.BertPreprocessor(tokenizer, sequence_length=8), seed=0)
    >>> model.compile(keras_bert.BertAdamW(1e-2))
    >>> questions = {"prompt": ["it", "it"] * 8, "choices": [["rains", "pours"], ["pours", "rains"]] * 8}
    >>> history = model.fit(questions, [1, 0] * 8, epochs=8, verbose=0)
    >>> model.choose({"prompt": ["it"], "choices": [["pours", "rains"]]})
    [0]
    """

    column_names = (("prompt", "choices"),)
    ids_ranks = (3,)
    head_name = CHOICE_HEAD
    encoder_defaults: ClassVar[Mapping[str, Any]] = {"with_pooler": True}

    def __init__(
        self,
        encoder: keras.Model,
        preprocessor: BertPreprocessor | None = None,
        dropout: float = 0.1,  # as in front of the classifier's layer; the paper states none
        freeze: str | int = FREEZE_NONE,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(encoder, preprocessor, freeze, seed, **kwargs)
        if not encoder.with_pooler:
            raise ValueError("choices are scored by the pooled output: make the encoder with with_pooler=True")
        if preprocessor is not None and preprocessor.long_texts != "truncate":
            raise ValueError(f"choices are truncated: the preprocessor has long_texts={preprocessor.long_texts!r}")
        self.dropout = self.dropout_layer(dropout)
        self.score = self.output_layer(1, CHOICE_HEAD)
        self.finish_init()

    def call(self, inputs: Inputs, training: bool = False) -> Tensor:
        """Computes the logits of a batch of ids."""
        token_ids = inputs["token_ids"]
        if len(token_ids.shape) != 3:
            raise ValueError(f"ids of choices must be [questions, choices, length], got {tuple(token_ids.shape)}")
        questions, choices, length = ops.shape(token_ids)
        flat = {name: ops.reshape(values, (-1, length)) for name, values in inputs.items()}
        pooled = self.encoder(flat, training=training, pooled_only=True)[
            "pooled_output"
        ]  # [questions * choices, hidden]
        return ops.reshape(self.score(self.dropout(pooled, training=training)), (questions, choices))

    def loss_terms(self, labels: Any, outputs: Any, sample_weight: Tensor | None = None) -> LossTerms:
        """Computes the loss of a batch.

        Args:
            labels: int [questions], the index of the correct choice.
            outputs: float32 logits [questions, choices].
            sample_weight: float [questions] or None.

        Returns:
            `{"loss": (sum, weight)}`: the cross-entropies over the choices times the weights, and the weights' sum.
        """
        labels = ops.reshape(labels, (-1,))
        weights = self._weights(labels, sample_weight)
        losses = ops.sparse_categorical_crossentropy(labels, outputs, from_logits=True)
        return {"loss": (ops.sum(losses * weights), ops.sum(weights))}

    def accuracy_metric(self) -> keras.metrics.Metric:
        """Creates the metric: the fraction of questions whose best choice is the correct one."""
        return keras.metrics.SparseCategoricalAccuracy(name="accuracy")

    def encode_labels(self, labels: Any) -> Any:
        """Returns the indices of choices unchanged; `tokenize_choices` checks them."""
        return labels

    def label_classes(self, examples: Any = None) -> list[str] | None:
        """Returns the indices of the choices."""
        return None if examples is None else [str(number) for number in range(examples.num_choices)]

    def tokenize_columns(self, columns: Mapping[str, Any], labels: Any = None) -> TokenizedExamples:
        """Tokenizes prompts and their choices, one row per pair."""
        from keras_bert.data.tokenized_examples import log_long_texts, tokenize_choices

        examples = tokenize_choices(columns["prompt"], columns["choices"], self.preprocessor, labels)
        log_long_texts(examples.token_counts, self.preprocessor)
        return examples

    def probabilities(self, logits: Tensor) -> np.ndarray:
        """Converts logits [questions, choices] to probabilities of the choices."""
        return np.asarray(ops.softmax(logits))

    def choose(self, x: Any, batch_size: int | None = None) -> list[int]:
        """Returns the index of the best choice of each question.

        Args:
            x, batch_size: as for `predict`.
        """
        return self.predict(x, batch_size, verbose=0).argmax(axis=-1).tolist()

    def export(self, path: PathLike, **options: Unpack[ExportArguments]) -> Path:
        """Writes a SavedModel that takes prompts and choices, for TensorFlow Serving or `tf.saved_model.load`.

        Signatures: `serving_default` takes `prompt` string [batch] and `choices` string [batch, choices], one or more;
        questions with fewer choices than others are padded with "", which is never chosen unless all are empty.
        `examples` takes serialized tf.Examples [batch] with the features `prompt` and `choices`. `tokens` takes
        `token_ids`, `segment_ids`, `padding_mask`, int32 [batch, choices, length]. Each returns `choice` int32 [batch],
        the index of the best choice, and `probabilities` float32 [batch, choices]; the first two also `text`, the best
        choice itself.

        Args:
            path, options: see `BertClassifier.export`, also for the result and the errors.
        """
        from keras_bert.models.serving import export_head

        inputs = _serving_inputs(self.preprocessor)
        return export_head(self, path, ExportOptions(**options), serving_signatures, inputs, inputs_per_row=4)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dropout": self.dropout.rate}


def _serving_inputs(preprocessor: Any) -> TextInputs:
    """Returns the text inputs of an exported model."""
    from keras_bert.models.serving import TextInputs

    def to_ids(texts: Mapping[str, Any]) -> Mapping[str, Any]:
        return choice_ids(preprocessor, texts["prompt"], texts["choices"])

    return TextInputs(("prompt", "choices"), to_ids, _WARMUP_QUESTIONS, list_names=("choices",))


def serving_signatures(model: Any) -> Mapping[str, Any]:
    """Returns the signatures of an exported model; see `BertMultipleChoice.export`."""
    from keras_bert.models.serving import text_signatures

    answer_ids, answer_texts = functools.partial(_answer_ids, model), functools.partial(_answer_texts, model)
    return text_signatures(model, _serving_inputs(model.preprocessor), answer_ids, answer_texts)


def choice_ids(preprocessor: Any, prompts: Any, choices: Any) -> dict[str, Any]:
    """Tokenizes prompts [batch] with each of their choices [batch, choices] in the graph.

    Returns a dict of int32 tensors [batch, choices, length].
    """
    import tensorflow as tf

    choices = tf.convert_to_tensor(choices, tf.string)
    number = tf.shape(choices)[1]
    pairs = {"text_a": tf.repeat(tf.convert_to_tensor(prompts, tf.string), number), "text_b": tf.reshape(choices, [-1])}
    ids = preprocessor(pairs)
    length = tf.shape(ids["token_ids"])[1]  # a request may be empty, so no size can be inferred
    shape = tf.concat([tf.shape(choices), [length]], axis=0)
    return {name: tf.reshape(values, shape) for name, values in ids.items()}


def _answer_ids(model: Any, ids: Mapping[str, Any]) -> dict[str, Any]:
    """Computes the named outputs for a batch of ids [batch, choices, length], in the graph."""
    return _answers(model({**ids, "token_ids": _with_choices(ids["token_ids"])}, training=False))


def _answer_texts(model: Any, texts: Mapping[str, Any]) -> dict[str, Any]:
    """Computes the named outputs for a dict of `prompt` [batch] and `choices` [batch, choices], in the graph."""
    import tensorflow as tf

    prompts, choices = texts["prompt"], _with_choices(texts["choices"])
    logits = model(choice_ids(model.preprocessor, prompts, choices), training=False)
    is_empty = tf.equal(choices, "")
    is_none = tf.logical_and(is_empty, tf.logical_not(tf.reduce_all(is_empty, axis=1, keepdims=True)))
    answers = _answers(tf.where(is_none, _NEVER, logits))
    return {**answers, "text": tf.gather(choices, answers["choice"], batch_dims=1)}


def _with_choices(choices: Any) -> Any:
    """Returns the choices [batch, choices, ...] unchanged, after asserting that there is at least one per question."""
    import tensorflow as tf

    questions, number = tf.unstack(tf.shape(choices)[:2])
    message = "each question needs a choice, and there is none; the shape is"
    with tf.control_dependencies([tf.debugging.Assert((questions == 0) | (number > 0), [message, tf.shape(choices)])]):
        return tf.identity(choices)


def _answers(logits: Any) -> dict[str, Any]:
    import tensorflow as tf

    # Padded with a choice that never wins: serialized examples of no questions have no choices, and argmax of nothing
    # is an error.
    best = tf.argmax(tf.pad(logits, [[0, 0], [0, 1]], constant_values=-np.inf), axis=1, output_type=tf.int32)
    return {"choice": best, "probabilities": tf.nn.softmax(logits)}
