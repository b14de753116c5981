"""Token classification: tags the words of a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import keras
import numpy as np
from keras import ops

from keras_bert.data.columns import TEXT_COLUMNS, text_column, to_mapping
from keras_bert.export.export_options import ExportArguments, ExportOptions
from keras_bert.io.row_errors import quotation
from keras_bert.metrics.keras_metrics import TokenAccuracy
from keras_bert.models.freeze import FREEZE_NONE
from keras_bert.models.head import BertHead, LossTerms
from keras_bert.models.inference import outputs_by_slice
from keras_bert.models.labels import SINGLE_LABEL, encode_labels, label_names
from keras_bert.typing import Inputs, PathLike, Tensor
from keras_bert.weights.layout import TOKEN_HEAD

if TYPE_CHECKING:
    from keras_bert.data.tokenized_examples import TokenizedExamples
    from keras_bert.data.tokenized_sentences import TokenizedSentences
    from keras_bert.text.word_preprocessor import BertWordPreprocessor

_OFFSETS = ("start_bytes", "end_bytes", "start_characters", "end_characters")


@keras.saving.register_keras_serializable(package="keras_bert")
class BertTokenClassifier(BertHead):
    """BERT with a classification layer on every token: named entities, parts of speech (paper, section 5.3).

    Takes sentences (lists of words, or a column `words` of them, with `tags` as labels) or ids. A word is tagged at its
    first wordpiece. Tags are predicted independently, as in the paper, which has no CRF. `tag` takes raw texts.

    Args:
        encoder: any encoder; its pooler, if there is one, is not used.
        labels: list of tags, such as "O", "B-person", "I-person", or their number.
        preprocessor: a `BertWordPreprocessor`; None for a model that takes ids only.
        dropout: rate of the dropout on the tokens' vectors.
        freeze, seed: as for `BertHead`.
        **kwargs: name, dtype, trainable, as for every Keras model; the dtype defaults to the encoder's. And `lora_rank`
            and so on, as for `BertHead`.

    Inputs: the encoder's dict of ids [rows, length].

    Outputs: float32 logits [rows, length, labels].

    Raises:
        ValueError: on invalid labels or freeze, or a preprocessor that does not fit the encoder.

    Example:

    >>> encoder = keras_bert.BertEncoder(7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, seed=0)
    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "in", "paris", "##ian"], True)
    >>> model = BertTokenClassifier(encoder, ["O", "B-place"], keras_bert.BertWordPreprocessor(tokenizer, 8), seed=0)
    >>> model.compile(keras_bert.BertAdamW(1e-2))
    >>> sentences, tags = [["in", "Paris"], ["Paris", "in", "in"]], [["O", "B-place"], ["B-place", "O", "O"]]
    >>> history = model.fit(sentences * 8, tags * 8, epochs=8, verbose=0)
    >>> model.predict_tags([["in", "Paris"]])
    [['O', 'B-place']]
    >>> [entity["text"] for entity in model.tag(["in, in Paris"])[0]["entities"]][-1]
    'Paris'
    """

    column_names = (("words",),)
    label_column = "tags"
    has_token_labels = True
    head_name = TOKEN_HEAD
    labels: list[str]
    encoder_defaults: ClassVar[Mapping[str, Any]] = {"with_pooler": False}  # unused, and never trained
    # In batches of similar length a word of a short sentence would count more than one of a long sentence.
    batches_by_length = False

    def __init__(
        self,
        encoder: keras.Model,
        labels: int | Sequence[str],
        preprocessor: BertWordPreprocessor | None = None,
        dropout: float = 0.1,  # as in front of the classifier's layer
        freeze: str | int = FREEZE_NONE,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(encoder, preprocessor, freeze, seed, **kwargs)
        self.labels = label_names(labels, SINGLE_LABEL)
        self.dropout = self.dropout_layer(dropout)
        self.logits = self.output_layer(len(self.labels), TOKEN_HEAD)
        self.finish_init()

    def call(self, inputs: Inputs, training: bool = False) -> Tensor:
        """Computes the logits of the tokens of a batch of ids."""
        tokens = self.encoder(inputs, training=training)["sequence_output"]
        return self.logits(self.dropout(tokens, training=training))

    def loss_terms(self, labels: Any, outputs: Any, sample_weight: Tensor | None = None) -> LossTerms:
        """Computes the loss of a batch.

        Args:
            labels: int [rows, length], -1 for tokens without a label.
            outputs: float32 logits [rows, length, labels].
            sample_weight: float [rows], or [rows, length], or None.

        Returns:
            `{"loss": (sum, weight)}`: the cross-entropies of the labeled tokens times the weights of their rows, and
            the sum of the weights of these tokens.
        """
        weights = self._weights(labels, sample_weight)
        losses = ops.sparse_categorical_crossentropy(ops.maximum(labels, 0), outputs, from_logits=True)
        return {"loss": (ops.sum(losses * weights), ops.sum(weights))}

    def _weights(self, labels: Any, sample_weight: Tensor | None) -> Tensor:
        """Returns the weight of each loss, float32 [rows, length], 0 where a token has no label."""
        weights = ops.cast(labels >= 0, "float32")
        if sample_weight is None:
            return weights
        sample_weight = ops.cast(sample_weight, "float32")
        return weights * (sample_weight if len(sample_weight.shape) == 2 else ops.reshape(sample_weight, (-1, 1)))

    def accuracy_metric(self) -> keras.metrics.Metric:
        """Creates the metric: the fraction of words (tokens with a label) whose best tag is the correct one."""
        return TokenAccuracy(name="accuracy")

    def _columns(self, x: Any) -> dict[str, Any]:
        if isinstance(x, Mapping) or hasattr(x, "columns"):
            return super()._columns(x)
        self.require_preprocessor()
        return {"words": to_mapping(x)}

    def encode_labels(self, labels: Any) -> Any:
        """Returns the tags of words unchanged: `tokenize_sentences` encodes them. With ids, labels are an array."""
        return labels if isinstance(labels, np.ndarray) else list(labels)

    def label_classes(self, examples: Any = None) -> list[str]:
        """Returns the tags."""
        return self.labels

    def tokenize_columns(self, columns: Mapping[str, Any], labels: Any = None) -> TokenizedExamples:
        """Tokenizes the words of sentences, one row per window."""
        tokenized = self.tokenize_sentences(columns["words"], labels)
        sentences = np.repeat(np.arange(len(tokenized.lengths)), tokenized.lengths)
        tokenized.windows.caller_rows = np.zeros(len(tokenized.windows), "int64")
        tokenized.windows.caller_rows[tokenized.word_windows] = sentences
        return tokenized.windows

    def example_weights(self, examples: Any, sample_weight: np.ndarray) -> np.ndarray:
        """Gives each window the weight of its sentence."""
        return sample_weight[examples.caller_rows]

    def tokenize_sentences(
        self,
        sentences: Sequence[Sequence[str]],
        tags: Sequence[Sequence[str] | None] | None = None,
        documents: Sequence[int] | None = None,
    ) -> TokenizedSentences:
        """Tokenizes sentences as windows, with the positions at which their words are read.

        Args:
            sentences: the words of each sentence.
            tags: the tag of each word, or None.
            documents: as for `keras_bert.data.tokenized_sentences.tokenize_sentences`.

        Raises:
            ValueError: if there is no preprocessor, the numbers of tags and words differ, a tag is unknown, or a text
                is given instead of a list of words or tags.
            TypeError: if a word is not a string.
        """
        self.require_preprocessor()
        from keras_bert.data.tokenized_sentences import tokenize_sentences

        lists = _checked_lists(sentences, "sentences must be lists of words; `tag` takes raw texts")
        words = [text_column(sentence, f"sentences[{number}]").tolist() for number, sentence in enumerate(lists)]
        labels: Any = None
        if tags is not None:
            tag_lists = _checked_lists(tags, "tags must be lists of strings, one per sentence")
            flat = encode_labels([tag for sentence in tag_lists for tag in sentence], self.labels, SINGLE_LABEL)
            labels = np.split(flat, np.cumsum([len(sentence) for sentence in tag_lists])[:-1])
        return tokenize_sentences(words, self.preprocessor, labels, documents)

    def predict_logits(
        self, tokenized: TokenizedSentences, batch_size: int | None = None, verbose: int | str = 0
    ) -> np.ndarray:
        """Computes the logits of words: float32 [words of all sentences, labels]."""
        logits = np.empty([len(tokenized.word_windows), len(self.labels)], "float32")
        by_window = np.argsort(tokenized.word_windows, kind="stable")
        ends = np.cumsum(np.bincount(tokenized.word_windows, minlength=len(tokenized.windows)))
        for windows, output in self._predictor.outputs_by_example(self, tokenized.windows, batch_size, verbose):
            for window, row in zip(windows, output, strict=True):
                words = by_window[ends[window - 1] if window else 0 : ends[window]]
                logits[words] = row[tokenized.word_positions[words]]
        return logits

    def predict_tags(
        self,
        sentences: Sequence[Sequence[str]],
        documents: Sequence[int] | None = None,
        batch_size: int | None = None,
    ) -> list[list[str]]:
        """Predicts the tags of the words of sentences.

        Args:
            sentences: the words of each sentence.
            documents: which document each sentence belongs to, to read it in context; None reads each by itself.
            batch_size: windows per batch; None as for `predict`.

        Returns:
            The tags of each sentence.
        """
        tokenized = self.tokenize_sentences(sentences, documents=documents)
        numbers = self.predict_logits(tokenized, batch_size).argmax(axis=1)
        return [[self.labels[number] for number in sentence] for sentence in tokenized.split_by_sentence(numbers)]

    def tag(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Tags raw texts, as an exported model does.

        Args:
            texts: strings, split into words by `keras_bert.text.words.split_text`. Words after the preprocessor's
                `max_windows` are left out, with a warning.

        Returns:
            A dict per text: `words`, a list of dicts of `text`, `tag`, `score` (the tag's probability), `start` and
            `end` (characters of the text); and, if the tags spell entities, `entities`, a list of dicts of `text`,
            `type`, `score` (the mean of its words'), `start` and `end`.

        Raises:
            ValueError: if there is no preprocessor, or `texts` is a single text.
            TypeError: if one is not a string.
        """
        self.require_preprocessor()
        outputs = outputs_by_slice(lambda texts: tag_texts(self, texts), self.preprocessor, text_column(texts, "texts"))
        return [described for values in outputs for described in _described_texts(values)]

    def export(self, path: PathLike, **options: Unpack[ExportArguments]) -> Path:
        """Writes a SavedModel that takes raw text, for TensorFlow Serving or `tf.saved_model.load`.

        Signatures: `serving_default` takes `text`, strings [batch]; `examples` takes serialized
        tf.Examples [batch] with the feature `text`; `words` takes `words`, strings [batch] of words with spaces between
        them, for texts that are split into words already. All three return `num_windows` int32 [batch], `truncated`
        bool [batch], whether there are words after the preprocessor's `max_windows`, which are not returned;
        `word_count` int32 [batch]; and, for each word, [batch, words], padded with "" and 0: `words`, `tags`, `scores`
        (probabilities), `start_bytes`, `end_bytes`, `start_characters`, `end_characters`. If the tags spell entities
        they also return `entity_count` and, [batch, entities], `entities`, `entity_types`, `entity_scores` (the mean of
        the words'), `entity_start_bytes` and so on. `tokens` takes `token_ids`, `segment_ids`, `padding_mask`, int32
        [batch, length], and returns `probabilities` float32 [batch, length, labels] and `tags` string [batch, length].

        Args:
            path, options: see `BertClassifier.export`, also for the result and the errors.
        """
        import tensorflow as tf

        from keras_bert.models.serving import TextInputs, export_head, text_signatures
        from keras_bert.text.words import split_text, split_words

        inputs = TextInputs(TEXT_COLUMNS, lambda texts: self.preprocessor(split_text(texts["text"])[0]).inputs)

        def signatures(served: Any) -> Any:
            def from_ids(ids: Any) -> Any:
                logits = served(ids, training=False)
                tags = tf.gather(tf.constant(served.labels), tf.argmax(logits, axis=-1))
                return {"probabilities": tf.nn.softmax(logits), "tags": tags}

            def from_words(words: Any) -> Any:
                return tag_texts(served, words["words"], split_words)

            standard = text_signatures(served, inputs, from_ids, lambda texts: tag_texts(served, texts["text"]))
            return {**standard, "words": (from_words, {"words": tf.TensorSpec([None], tf.string)})}

        labels = {"labels.txt": "\n".join(self.labels) + "\n"}
        return export_head(self, path, ExportOptions(**options), signatures, inputs, labels)

    @staticmethod
    def preprocessor_class() -> Any:
        from keras_bert.text.word_preprocessor import BertWordPreprocessor

        return BertWordPreprocessor

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "labels": self.labels, "dropout": self.dropout.rate}

    @classmethod
    def checkpoint_defaults(cls, path: PathLike, head: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the checkpoint's tags and dropout."""
        labels = head.get("label_names") or head.get("num_labels")
        if labels is None and "labels" not in given:
            raise ValueError(
                f"{path} has no token classifier, so its labels are unknown; pass labels=[...], a list of tags"
            )
        return {**super().checkpoint_defaults(path, head, given), "labels": labels}


def _checked_lists(values: Any, rule: str) -> list[Any]:
    """Returns the lists in `values`, none of which may be a text, which would be split into letters."""
    values = [values] if isinstance(values, (str, bytes)) else list(values)
    for number, item in enumerate(values):
        if isinstance(item, (str, bytes)):
            raise ValueError(f"{rule}. Number {number} is a text: {quotation(item)}")
    return values


def tag_texts(model: Any, texts: Any, split: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """Tags texts [batch] and finds their entities, in the graph.

    `split` returns the words of texts and the bytes at which they start, as `split_text`, the default, does. The
    outputs are described at `BertTokenClassifier.export`.
    """
    import tensorflow as tf

    from keras_bert.text.entity_spans import are_entity_tags
    from keras_bert.text.pack import keep_first
    from keras_bert.text.substrings import Substrings
    from keras_bert.text.words import split_text

    split = split or split_text
    all_words, starts = split(texts)
    prepared = model.preprocessor(all_words, model.preprocessor.max_windows)
    words = keep_first(all_words, prepared.num_words)
    starts = words.with_values(keep_first(starts, prepared.num_words).values)
    substrings = Substrings(texts)
    logits = model(prepared.inputs, training=False)
    word_logits = tf.gather_nd(logits, tf.stack([prepared.windows, prepared.positions], axis=1))  # [words, labels]
    numbers = tf.argmax(word_logits, axis=1, output_type=tf.int32)
    scores = words.with_values(tf.reduce_max(tf.nn.softmax(word_logits), axis=1))
    ends = words.with_values(starts.values + tf.strings.length(words.values))
    answers = {
        "words": words,
        "tags": words.with_values(tf.gather(tf.constant(model.labels), numbers)),
        "scores": scores,
        **_offsets(substrings, starts, ends),
    }
    answers = {
        "num_windows": prepared.num_windows,
        "truncated": prepared.num_words < tf.cast(all_words.row_lengths(), tf.int32),
        "word_count": prepared.num_words,
        **_dense(answers),
    }
    if not are_entity_tags(model.labels):
        return answers
    return {**answers, **_entities(substrings, words.with_values(numbers), model.labels, scores, starts, ends)}


def _entities(substrings: Any, numbers: Any, labels: list[str], scores: Any, starts: Any, ends: Any) -> dict[str, Any]:
    import tensorflow as tf

    from keras_bert.text.entity_spans import find_entities

    spans = find_entities(numbers, labels)
    offset = tf.gather(tf.cast(numbers.row_starts(), tf.int32), spans.types.value_rowids())
    entity_starts = spans.types.with_values(tf.gather(starts.values, offset + spans.first_words.values))
    entity_ends = spans.types.with_values(tf.gather(ends.values, offset + spans.last_words.values))
    size = tf.size(spans.types.values)
    mean_scores = tf.math.unsorted_segment_mean(scores.values, spans.entity_ids.values, size)
    texts = substrings.between(spans.types.value_rowids(), entity_starts.values, entity_ends.values)
    answers = {
        "entities": spans.types.with_values(texts),
        "entity_types": spans.types,
        "entity_scores": spans.types.with_values(mean_scores),
        **{f"entity_{name}": values for name, values in _offsets(substrings, entity_starts, entity_ends).items()},
    }
    return {"entity_count": tf.cast(spans.types.row_lengths(), tf.int32), **_dense(answers)}


def _offsets(substrings: Any, starts: Any, ends: Any) -> dict[str, Any]:
    """Returns byte offsets and the corresponding character offsets."""
    characters = substrings.characters_before(starts.value_rowids(), starts.values, ends.values)
    return dict(zip(_OFFSETS, (starts, ends, *map(starts.with_values, characters)), strict=True))


def _dense(answers: dict[str, Any]) -> dict[str, Any]:
    return {name: values.to_tensor() for name, values in answers.items()}


def _described_texts(values: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Converts the outputs of `tag_texts`, as lists, to a dict per text, as `BertTokenClassifier.tag` returns it."""

    def described(row: int, kinds: Mapping[str, str], count: int) -> Iterator[dict[str, Any]]:
        columns = {key: values[name][row][:count] for key, name in kinds.items()}
        for row_values in zip(*columns.values(), strict=True):
            decoded = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in row_values]
            yield dict(zip(columns, decoded, strict=True))

    offsets = {"start": "start_characters", "end": "end_characters"}
    word_columns = {"text": "words", "tag": "tags", "score": "scores", **offsets}
    entity_columns = {"text": "entities", "type": "entity_types", "score": "entity_scores"}
    entity_columns |= {key: f"entity_{name}" for key, name in offsets.items()}
    for row, count in enumerate(values["word_count"]):
        text = {"words": list(described(row, word_columns, count))}
        if "entity_count" in values:
            text["entities"] = list(described(row, entity_columns, values["entity_count"][row]))
        yield text
