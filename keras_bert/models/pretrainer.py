"""Pre-training heads: masked language model and next sentence prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import keras
import numpy as np
from keras import ops

from keras_bert.data.columns import TEXT_COLUMNS, text_column
from keras_bert.export.export_options import ExportArguments, ExportOptions
from keras_bert.io.row_errors import quotation
from keras_bert.layers.attention_mask import BIDIRECTIONAL, LEFT_TO_RIGHT
from keras_bert.layers.base_layer import create_sublayer
from keras_bert.layers.masked_lm_head import MaskedLMHead
from keras_bert.layers.pooler import gather_positions
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.freeze import FREEZE_NONE
from keras_bert.models.head import BertHead, LossTerms
from keras_bert.models.lora import LORA_ARGUMENTS
from keras_bert.models.pretrained import assign_arrays, load_tokenizer, read_bert
from keras_bert.typing import Inputs, PathLike, Tensor

if TYPE_CHECKING:
    from keras_bert.text.preprocessor import BertPreprocessor
    from keras_bert.weights.checkpoint import Checkpoint

MASKED_LM, NEXT_SENTENCE = "masked_lm", "next_sentence"  # the heads and their losses
# By loss term, the names of its logits and of its labels.
_NAMES_BY_TERM = {
    MASKED_LM: ("masked_logits", "masked_labels"),
    NEXT_SENTENCE: ("next_sentence_logits", "next_sentence_labels"),
}
_ANSWERS = ("words", "probabilities", "masks")
_WARMUP_TEXTS = ("[MASK]", "a second [MASK] which is somewhat [MASK] than the first one was")
NEXT_SENTENCE_LOGITS = 2  # 0: the second segment follows (or is in order); 1: it is random (or swapped)


@keras.saving.register_keras_serializable(package="keras_bert")
class BertPretrainer(BertHead):
    """BERT that predicts masked tokens, and whether a segment follows another (paper, section 3.1;
    google-research/bert, run_pretraining.py).

    `fit` takes pairs of texts with labels 0 (the second follows the first) and 1 (it does not), or single texts without
    labels if `next_sentence` is False, and masks 15% of their tokens, different ones in every epoch. It also takes the
    instances of `keras_bert.pretraining`, one or several per row; `keras_bert.pretraining.objectives` separates their
    inputs from their labels. With an encoder of another attention direction the same head learns a left-to-right, or a
    right-to-left, language model.

    Args:
        encoder: a `BertEncoder`; with a pooler if next sentences are predicted.
        next_sentence: whether there is a head for next sentences.
        preprocessor: a `BertPreprocessor` whose tokenizer reads [MASK] in a text as the special token
            (`special_tokens_in_text=True`); None for a model that takes ids only.
        freeze, seed: as for `BertHead`.
        **kwargs: name, dtype, trainable, as for every Keras model; the dtype defaults to the encoder's. And `lora_rank`
            and so on, as for `BertHead`.

    Inputs: the encoder's dict of ids, and
        masked_positions: int32 [batch, predictions], the positions to predict; all by default.
        cls_positions: int32 [batch, instances], where the instances of a packed row begin; a row is one by default.

    Outputs: a dict of float32 tensors:
        masked_logits: [batch, predictions, vocab].
        next_sentence_logits: [batch, 2], or [batch, instances, 2] with `cls_positions`.

    Raises:
        ValueError: if next sentences are to be predicted by an encoder without a pooler, or by a left-to-right one,
            whose [CLS] attends to nothing else (paper, section 5.1: "LTR & No NSP"); or if the preprocessor does not
            fit.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, seed=0)
    >>> pretrainer = BertPretrainer(encoder, seed=0)
    >>> outputs = pretrainer({"token_ids": np.array([[2, 4, 5, 3]]), "masked_positions": np.array([[1, 2]])})
    >>> {name: tuple(logits.shape) for name, logits in outputs.items()}
    {'masked_logits': (1, 2, 9), 'next_sentence_logits': (1, 2)}
    """

    batches_by_length = False  # instances have a length; batches come as in pre-training
    trains_on_text_datasets = False  # masks depend on the index of an example, which a dataset lacks

    def __init__(
        self,
        encoder: BertEncoder,
        next_sentence: bool = True,
        preprocessor: BertPreprocessor | None = None,
        freeze: str | int = FREEZE_NONE,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(encoder, preprocessor, freeze, seed, **kwargs)
        if not isinstance(encoder, BertEncoder):
            raise ValueError(f"only a BertEncoder can be pre-trained; got {encoder!r}")
        if next_sentence and not encoder.with_pooler:
            raise ValueError(
                "next sentences are predicted from the pooled output: make the encoder with with_pooler=True, or pass "
                "next_sentence=False"
            )
        if next_sentence and encoder.attention_direction == LEFT_TO_RIGHT:
            raise ValueError(
                "next sentences are predicted from [CLS], which attends to nothing else in a left-to-right encoder: "
                "pass next_sentence=False"
            )
        if preprocessor is not None:
            _check_takes_masks(preprocessor)
        self.next_sentence = next_sentence
        self.loss_names = (MASKED_LM, NEXT_SENTENCE) if next_sentence else (MASKED_LM,)
        arguments = (encoder.vocab_size, encoder.hidden_act, encoder.initializer_range, encoder.layer_norm_eps)
        self.masked_lm = create_sublayer(self, MaskedLMHead, MASKED_LM, *arguments)
        if next_sentence:
            self.next_sentence_logits = self.output_layer(NEXT_SENTENCE_LOGITS, NEXT_SENTENCE)
        self.finish_init()

    def call(self, inputs: Inputs, training: bool = False) -> dict[str, Tensor]:
        """Computes the logits of both heads for a batch of ids."""
        inputs = dict(inputs)
        masked_positions = inputs.pop("masked_positions", None)
        cls_positions = inputs.pop("cls_positions", None)
        encoded = self.encoder(inputs, training=training)
        hidden = encoded["sequence_output"]  # [batch, length, hidden]
        chosen = hidden if masked_positions is None else gather_positions(hidden, masked_positions)
        flat = ops.reshape(chosen, (-1, self.encoder.hidden_size))
        logits = self.masked_lm(flat, token_embeddings=self.encoder.embeddings.token_embeddings, training=training)
        shape = ops.shape(chosen)
        outputs = {"masked_logits": ops.reshape(logits, (shape[0], shape[1], self.encoder.vocab_size))}
        if self.next_sentence:
            outputs["next_sentence_logits"] = self._next_sentence_logits(encoded, cls_positions, training)
        return outputs

    def _next_sentence_logits(self, encoded: Mapping[str, Tensor], cls_positions: Any, training: bool) -> Tensor:
        if cls_positions is None:
            return self.next_sentence_logits(encoded["pooled_output"])
        first = gather_positions(encoded["sequence_output"], cls_positions)  # [batch, instances, hidden]
        # The pooler reads the first token of a row: here each instance is one.
        pooled = self.encoder.pooler(ops.reshape(first, (-1, 1, self.encoder.hidden_size)), training=training)
        logits = self.next_sentence_logits(pooled)
        return ops.reshape(logits, (-1, ops.shape(cls_positions)[1], NEXT_SENTENCE_LOGITS))

    def loss_terms(self, labels: Any, outputs: Any, sample_weight: Tensor | None = None) -> LossTerms:
        """Computes the two losses of a batch.

        Args:
            labels: dict of tensors:
                masked_labels: int [batch, predictions]; masked_weights: float, the weight of each, 0 for padding.
                next_sentence_labels: int [batch], or [batch, instances] with `next_sentence_weights`, float.
            outputs: dict of logits, as returned by `call`.
            sample_weight: must be None: the labels contain weights.

        Returns:
            `{"masked_lm": (sum, weight), "next_sentence": (sum, weight)}`: the cross-entropies times their weights,
            summed, and the sums of the weights; the second term only if there is a head for it.
        """
        weights = self._weights(labels, sample_weight)
        terms = {}
        for name, weight in weights.items():
            logits, targets = _logits_and_targets(name, outputs, labels)
            losses = ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
            terms[name] = ops.sum(losses * weight), ops.sum(weight)
        return terms

    def loss_weights(self, labels: Any, sample_weight: Tensor | None = None) -> dict[str, Tensor]:
        return {name: ops.sum(weight) for name, weight in self._weights(labels, sample_weight).items()}

    def _weights(self, labels: Any, sample_weight: Tensor | None) -> dict[str, Tensor]:
        if sample_weight is not None:
            raise ValueError("pre-training instances have weights in their labels; leave sample_weight out")
        weights = {MASKED_LM: ops.cast(labels["masked_weights"], "float32")}
        if self.next_sentence:
            given = labels.get("next_sentence_weights")
            if given is None:
                given = ops.ones_like(labels["next_sentence_labels"])
            weights[NEXT_SENTENCE] = ops.cast(given, "float32")
        return weights

    def encode_labels(self, labels: Any) -> Any:
        """Returns next sentence labels, 0 or 1; or, with ids, the dict of labels that `loss_terms` takes."""
        if isinstance(labels, Mapping):
            return {name: np.asarray(values) for name, values in labels.items()}
        labels = np.asarray(labels)
        if labels.ndim != 1 or not np.isin(labels, (0, 1)).all():
            raise ValueError(
                "labels of next sentences must be 0 (the second text follows the first) or 1, one per pair; got "
                f"{quotation(labels.tolist())}"
            )
        return labels.astype("int32")

    def training_examples(self, examples: Any) -> Any:
        """Masks 15% of the tokens of texts, different ones in every epoch."""
        from keras_bert.data.masked_examples import MaskedExamples
        from keras_bert.data.tokenized_examples import TokenizedExamples

        if not isinstance(examples, TokenizedExamples):
            return examples
        if self.next_sentence != (examples.labels is not None):
            raise ValueError(
                "this BertPretrainer predicts next sentences: pass pairs of texts, and labels y, 0 where the second "
                "text follows the first and 1 where it does not"
                if self.next_sentence
                else "this BertPretrainer has next_sentence=False: leave y out"
            )
        tokenizer, length = self.preprocessor.tokenizer, self.preprocessor.sequence_length
        return MaskedExamples(examples, tokenizer.vocabulary, length, self._fit.seed)

    def metric_sums(self, labels: Any, outputs: Any) -> dict[str, Tensor]:
        """Returns scalars whose sums over batches `keras_bert.metrics.pretraining_scores.pretraining_metrics` takes.

        They are the weighted sums `_loss` and `_correct` of each loss term, and the sum of its weights, `_weight`.
        """
        sums, weights = {}, self._weights(labels, None)
        for name, (loss_sum, weight_sum) in self.loss_terms(labels, outputs).items():
            logits, targets = _logits_and_targets(name, outputs, labels)
            is_correct = ops.equal(ops.argmax(logits, axis=-1), targets)
            sums[f"{name}_loss"] = loss_sum
            sums[f"{name}_correct"] = ops.sum(ops.cast(is_correct, "float32") * weights[name])
            sums[f"{name}_weight"] = weight_sum
        return sums

    def fill_masks(self, texts: Sequence[str], top: int = 5) -> list[list[list[tuple[str, float]]]]:
        """Predicts the masked tokens of texts.

        Args:
            texts: strings with [MASK] in them.
            top: number of predictions per mask.

        Returns:
            Per text, per [MASK] in it, `top` pairs of wordpiece and probability, the most probable first.

        Raises:
            ValueError: if there is no preprocessor, the encoder is unidirectional (which predicts a token at the
                position of its neighbor), `top` is not from 1 to the size of the vocabulary, or `texts` is a single
                text.
            TypeError: if one is not a string.

        Example:

        >>> tokenizer = keras_bert.BertTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"], lower_case=True, special_tokens_in_text=True
        ... )
        >>> encoder = BertEncoder(vocab_size=6, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> pretrainer = BertPretrainer(encoder, preprocessor=keras_bert.BertPreprocessor(tokenizer))
        >>> [[len(words) for words in masks] for masks in pretrainer.fill_masks(["[MASK] a [MASK]", "a"], top=3)]
        [[3, 3], []]
        """
        self._check_serving(top)
        answers = fill_masks(self, self.preprocessor(text_column(texts, "texts")), top)
        filled = []
        for words, probabilities, number in zip(*(answers[name].numpy() for name in _ANSWERS), strict=True):
            masks = zip(words[:number], probabilities[:number].tolist(), strict=True)
            filled.append([[(word.decode(), p) for word, p in zip(*mask, strict=True)] for mask in masks])
        return filled

    def export(self, path: PathLike, *, top: int = 5, **options: Unpack[ExportArguments]) -> Path:
        """Writes a SavedModel that takes raw text with [MASK] in it, for TensorFlow Serving or `tf.saved_model.load`.

        Signatures: `serving_default` takes `text`, strings [batch]; `tokens` takes `token_ids`, `segment_ids`,
        `padding_mask`, int32 [batch, length]; `examples` takes serialized tf.Examples [batch] with the feature `text`.
        Each returns `words` string, `word_ids` int32 and `probabilities` float32, each [batch, masks, top], padded with
        "" and 0, and `masks` int32 [batch], the number of masks in each text.

        Args:
            path, options: see `BertClassifier.export`, also for the result.
            top: number of predictions per mask.

        Raises:
            FileExistsError, ValueError: as `fill_masks` and `BertClassifier.export`.
        """
        from keras_bert.models.serving import TextInputs, export_head, text_signatures

        self._check_serving(top)
        inputs = TextInputs(TEXT_COLUMNS, warmup=_WARMUP_TEXTS)

        def signatures(served: Any) -> Any:
            return text_signatures(served, inputs, lambda ids: fill_masks(served, ids, top))

        return export_head(self, path, ExportOptions(**options), signatures, inputs)

    def _check_serving(self, top: int) -> None:
        self.require_preprocessor()
        if self.encoder.attention_direction != BIDIRECTIONAL:
            raise ValueError(
                f"only a bidirectional encoder is trained to fill masks; this one is {self.encoder.attention_direction}"
            )
        if not 1 <= top <= self.encoder.vocab_size:
            raise ValueError(f"top must be from 1 to {self.encoder.vocab_size}, the size of the vocabulary; got {top}")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "next_sentence": self.next_sentence}

    @classmethod
    def from_checkpoint(
        cls,
        path: PathLike,
        next_sentence: bool | None = None,
        sequence_length: int | None = None,
        seed: int | None = None,
        name: str | None = None,
        allow_nonfinite: bool = False,
        **encoder_arguments: Any,
    ) -> Self:
        """Creates a pretrainer with the weights of a checkpoint, and with its tokenizer if it has one.

        Args:
            path: as for `BertEncoder.from_checkpoint`.
            next_sentence: None means True if the checkpoint has a pooler and is not a left-to-right model.
            sequence_length: maximum length of a text in tokens, special tokens included; None means the encoder's
                number of positions.
            seed, name: as for the constructor. Heads that the checkpoint lacks start with random weights.
            allow_nonfinite: whether weights may be NaN or infinite.
            **encoder_arguments: constructor arguments of the encoder that replace the checkpoint's; and `lora_rank` and
                so on, as for `BertHead`.

        Returns:
            A BertPretrainer. Its attribute `checkpoint_report` lists what was read, what is random, and what was not
            used.

        Raises:
            FileNotFoundError, ValueError: if the checkpoint is missing, corrupt, not a BERT, or does not fit.
        """
        lora = {name: encoder_arguments.pop(name) for name in LORA_ARGUMENTS if name in encoder_arguments}
        checkpoint = read_bert(path, allow_nonfinite)
        encoder = BertEncoder(**{"seed": seed, **checkpoint.encoder_arguments, **encoder_arguments})
        if next_sentence is None:
            has_pooler = "encoder/pooler/kernel" in checkpoint.arrays
            next_sentence = has_pooler and encoder.attention_direction != LEFT_TO_RIGHT
        preprocessor = None
        if checkpoint.vocabulary is not None and keras.backend.backend() == "tensorflow":
            preprocessor = _make_preprocessor(checkpoint, sequence_length or encoder.max_position_embeddings)
        pretrainer = cls(encoder, next_sentence, preprocessor, seed=seed, name=name, **lora)
        pretrainer.checkpoint_report = assign_arrays(pretrainer.variables_by_path(), checkpoint)
        return pretrainer


def _make_preprocessor(checkpoint: Checkpoint, sequence_length: int) -> BertPreprocessor:
    """Creates a preprocessor with a checkpoint's vocabulary that reads [MASK] in a text as the special token."""
    from keras_bert.text.preprocessor import BertPreprocessor
    from keras_bert.text.tokenizer import BertTokenizer

    settings = {**load_tokenizer(checkpoint).get_config(), "special_tokens_in_text": True}
    return BertPreprocessor(BertTokenizer.from_config(settings), sequence_length)


def _check_takes_masks(preprocessor: BertPreprocessor) -> None:
    tokenizer = preprocessor.tokenizer
    if tokenizer.mask_id is None or not tokenizer.special_tokens_in_text:
        raise ValueError(
            "[MASK] marks masked tokens in a text: the tokenizer needs a vocabulary with [MASK], and "
            "special_tokens_in_text=True"
        )
    if preprocessor.long_texts != "truncate":
        raise ValueError(f"the preprocessor must truncate texts; it has long_texts={preprocessor.long_texts!r}")


def _logits_and_targets(name: str, outputs: Inputs, labels: Inputs) -> tuple[Tensor, Tensor]:
    """Returns the logits of a loss term, and the correct classes."""
    logits_name, labels_name = _NAMES_BY_TERM[name]
    return outputs[logits_name], ops.cast(labels[labels_name], "int32")


def fill_masks(pretrainer: BertPretrainer, ids: Mapping[str, Any], top: int) -> dict[str, Any]:
    """Predicts the most probable wordpieces at each [MASK] of a batch of ids, in the graph.

    Returns a dict: `words` string, `word_ids` int32 and `probabilities` float32, each [batch, masks, top], the most
    probable first; `masks` int32 [batch], the number of masks of each text. Texts with fewer masks are padded with ""
    and 0.
    """
    import tensorflow as tf

    tokenizer = pretrainer.preprocessor.tokenizer
    is_mask = tf.cast((ids["token_ids"] == tokenizer.mask_id) & (ids["padding_mask"] != 0), tf.int32)
    counts = tf.reduce_sum(is_mask, axis=1)
    most, length = tf.reduce_max(tf.concat([counts, [0]], axis=0)), tf.shape(is_mask)[1]
    # Earlier masks have greater numbers. Other runtimes have no ragged tensors, and cannot reshape empty ones: at least
    # one position is computed.
    columns = tf.minimum(tf.maximum(most, 1), length)
    positions = tf.math.top_k(is_mask * (length - tf.range(length)), columns).indices  # [batch, columns]
    logits = pretrainer({**ids, "masked_positions": positions}, training=False)["masked_logits"]
    probabilities, word_ids = tf.math.top_k(tf.nn.softmax(logits), top)
    probabilities, word_ids = probabilities[:, :most], word_ids[:, :most]
    exists = tf.reshape(tf.range(most), [1, -1, 1]) < tf.reshape(counts, [-1, 1, 1])  # [batch, masks, 1]
    return {
        "words": tf.where(exists, tf.gather(tf.constant(tokenizer.vocabulary), word_ids), ""),
        "word_ids": tf.where(exists, word_ids, 0),
        "probabilities": tf.where(exists, probabilities, 0.0),
        "masks": counts,
    }
