"""Features of a frozen BERT: vectors of texts, words or wordpieces."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack

import keras
import numpy as np
from keras import ops

from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS
from keras_bert.export.export_options import ExportArguments, ExportOptions
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.inference import Predictor
from keras_bert.models.pretrained import assign_arrays, load_tokenizer, read_bert
from keras_bert.models.text_model import TextModel
from keras_bert.typing import Inputs, PathLike, Tensor
from keras_bert.weights.sentence_transformers import EmbeddingSettings, read_embedding_settings

if TYPE_CHECKING:
    from keras_bert.data.tokenized_units import TokenizedUnits
    from keras_bert.text.preprocessor import BertPreprocessor

LAST_LAYER = (-1,)
COMBINATIONS = ("stack", "concat", "sum", "mean")
POOLINGS = ("mean", "cls", "max")
WORD_POOLINGS = ("first", "mean")
_DEFAULT_LENGTH = 128  # google-research/bert, extract_features.py: max_seq_length
_MIN_NORM = 1e-12  # divisor of a zero vector, as in sentence-transformers


class TextFeatures(NamedTuple):
    """The features of one text, from `BertFeatureExtractor.extract`."""

    names: list[str]  # wordpieces ("[CLS]", "play", "##ing", ..., "[SEP]") or words
    # int32 [units]: the index of each wordpiece or word in the text. Words without a wordpiece are left out: those that
    # were truncated or consist of characters that BERT removes.
    numbers: np.ndarray
    vectors: np.ndarray  # float32 [units, size], or [units, layers, hidden] with combine="stack"


@keras.saving.register_keras_serializable(package="keras_bert")
class BertFeatureExtractor(TextModel):
    """A frozen BERT used as a feature extractor (paper, section 5.3; google-research/bert, extract_features.py).

    `embed` returns one vector per text, `extract` one per wordpiece or word. Called on ids, the model returns the
    vectors of the texts; `features` returns those of the tokens, for a model on top. It has only the encoder's weights,
    and dropout is never active.

    Args:
        encoder: a `BertEncoder`; its pooler is not used.
        preprocessor: a `BertPreprocessor` that truncates, or None for a model that takes only ids.
        layers: hidden states to read: 0 is the output of the embeddings, 1 of the lowest block; -1 is the output of the
            highest block, -2 of the one below.
            Differs from BERT: in extract_features.py 0 is the lowest block, and the embeddings are not available.
            Negative numbers have the same meaning there.
        combine: how several layers become one vector: "concat" (in the given order), "sum", "mean"; or "stack", which
            keeps them on a separate axis.
        pooling: how tokens become the vector of a text: "mean" or "max" over all tokens except padding, including [CLS]
            and [SEP] (as in sentence-transformers, arXiv 1908.10084, section 3), or "cls", the vector of [CLS].
        normalize: whether text vectors are scaled to length 1, so that their dot products are cosines (each layer
            separately with combine="stack"). Vectors of wordpieces and words are not scaled.
        name, trainable: as for every Keras model. The dtype is the encoder's; layers are always combined and pooled in
            float32.

    Inputs: the encoder's dict of ids.

    Outputs:
        float32 [batch, size], or [batch, layers, hidden] with combine="stack". A row of padding only is 0.

    Raises:
        ValueError: if a layer does not exist or is given twice, `combine` or `pooling` is unknown, or the preprocessor
            does not fit the encoder or splits texts into windows.

    Example:

    >>> encoder = BertEncoder(vocab_size=6, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, seed=0)
    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
    >>> extractor = BertFeatureExtractor(encoder, keras_bert.BertPreprocessor(tokenizer), layers=[-1, -2])
    >>> extractor.embed(["Playing", "play play"]).shape
    (2, 16)
    >>> extractor.extract(["Playing"])[0].names
    ['[CLS]', 'play', '##ing', '[SEP]']
    """

    def __init__(
        self,
        encoder: BertEncoder,
        preprocessor: BertPreprocessor | None = None,
        layers: Sequence[int] = LAST_LAYER,
        combine: str = "concat",
        pooling: str = "mean",
        normalize: bool = True,
        name: str | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(encoder, preprocessor, name)
        if preprocessor is not None and preprocessor.long_texts != "truncate":
            raise ValueError(
                "a feature extractor truncates texts, but the preprocessor has "
                f'long_texts={preprocessor.long_texts!r}; create it with long_texts="truncate"'
            )
        for argument, value, allowed in (("combine", combine, COMBINATIONS), ("pooling", pooling, POOLINGS)):
            if value not in allowed:
                raise ValueError(f"unknown {argument} {value!r}; allowed are {allowed}")
        self.layers_read = _check_layers(layers, encoder.num_hidden_layers)
        self.combine = combine
        self.pooling = pooling
        self.normalize = normalize
        self._token_predictor = Predictor(lambda model, batch: model.features(batch))
        self.built = True  # it has no variables but the encoder's
        if not trainable:
            self.trainable = False  # only now: Keras passes it on to existing layers

    def call(self, inputs: Inputs, training: bool = False) -> Tensor:
        """Returns the vectors of the texts of a batch; `training` has no effect."""
        vectors = self._pool(self.features(inputs), inputs.get("padding_mask"))
        if self.normalize:
            norm = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
            vectors = vectors / ops.maximum(norm, _MIN_NORM)
        return vectors

    def features(self, inputs: Inputs) -> Tensor:
        """Returns the vectors of the tokens of a batch.

        Args:
            inputs: the encoder's dict of ids, [batch, length].

        Returns:
            float32 tensor [batch, length, size], or [batch, length, layers, hidden] with combine="stack"; undefined at
            padding.
        """
        states = self.encoder(inputs, training=False, return_hidden_states=True)["hidden_states"]
        selected = [ops.cast(states[layer], "float32") for layer in self.layers_read]
        if self.combine == "stack":
            return ops.stack(selected, axis=2)
        if self.combine == "concat":
            return ops.concatenate(selected, axis=-1)
        return sum(selected) / (len(selected) if self.combine == "mean" else 1)

    def _pool(self, features: Tensor, padding_mask: Tensor | None) -> Tensor:
        if padding_mask is None:
            padding_mask = ops.ones(ops.shape(features)[:2])
        is_token = ops.cast(padding_mask, "float32")
        for _ in features.shape[2:]:
            is_token = ops.expand_dims(is_token, -1)
        if self.pooling == "cls":
            return features[:, 0] * is_token[:, 0]
        num_tokens = ops.sum(is_token, axis=1)
        if self.pooling == "mean":
            return ops.sum(features * is_token, axis=1) / ops.maximum(num_tokens, 1.0)
        return ops.where(num_tokens > 0, ops.max(ops.where(is_token > 0, features, -np.inf), axis=1), 0.0)

    def embed(self, x: Any, batch_size: int | None = None, verbose: int | str = 0) -> np.ndarray:
        """Returns the vectors of texts in the given order; texts are computed in batches of similar length.

        Args:
            x: texts (a list of strings), pairs (a tuple of two lists, or a dict with `text_a` and `text_b`),
                `TokenizedExamples`, or the encoder's dict of ids. Texts that are too long are truncated and counted in
                the log. Texts need TensorFlow; ids work on every Keras backend.
            batch_size: texts per batch; None as for `predict`.
            verbose: as in Keras' `predict`.

        Returns:
            float32 array [texts, size], or [texts, layers, hidden] with combine="stack".

        Raises:
            ValueError, TypeError: if `x` is neither texts nor ids, or there is no preprocessor for texts.
        """
        return np.asarray(self.predict(x, batch_size, verbose))

    def similarity(self, a: Any, b: Any, batch_size: int | None = None) -> np.ndarray:
        """Returns the cosine similarity of each text of one list with each of another.

        Args:
            a, b: texts, pairs or ids, as for `embed`.
            batch_size: texts per batch; None as for `predict`.

        Returns:
            float32 array [texts of a, texts of b], from -1 to 1. Stacked layers are treated as concatenated.

        Raises:
            ValueError, TypeError: as `embed`.

        Example:

        >>> encoder = BertEncoder(vocab_size=6, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, seed=0)
        >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], True)
        >>> extractor = BertFeatureExtractor(encoder, keras_bert.BertPreprocessor(tokenizer))
        >>> extractor.similarity(["play"], ["PLAY", "playing"]).round(3).shape
        (1, 2)
        """
        rows, columns = (_scale_to_unit_length(self.embed(texts, batch_size)) for texts in (a, b))
        return rows @ columns.T

    def tokenize(self, x: Any, unit: str = "wordpieces") -> TokenizedUnits:
        """Tokenizes texts or pairs for `extract`.

        Args:
            x: texts or pairs, as for `embed`.
            unit: "wordpieces" or "words", as for `extract`.

        Returns:
            `keras_bert.data.tokenized_units.TokenizedUnits`; its `examples.token_counts` are the lengths before
            truncation.

        Raises:
            ValueError, TypeError: if there is no preprocessor, `x` is not texts, or the unit is unknown.
        """
        from keras_bert.data.tokenized_units import tokenize_units

        return tokenize_units(self._columns(x), self.preprocessor, unit)

    def extract(
        self,
        x: Any,
        unit: str = "wordpieces",
        word_pooling: str = "first",
        batch_size: int | None = None,
        verbose: int | str = 0,
    ) -> list[TextFeatures]:
        """Returns the vectors of the wordpieces or words of texts, in the given order.

        Args:
            x: texts or pairs, as for `embed`, or the result of `tokenize`. Texts that are too long are truncated and
                counted in the log.
            unit: "wordpieces" is every wordpiece, including [CLS] and [SEP]; "words" are separated by spaces, as in
                SQuAD and tagging data.
            word_pooling: the vector of a word: "first", that of its first wordpiece (as in the paper, section 5.3), or
                "mean", of all its wordpieces that were not truncated.
            batch_size: texts per batch; None as for `predict`.
            verbose: as in Keras' `predict`.

        Returns:
            A list with the `TextFeatures` of each text.

        Raises:
            ValueError, TypeError: as `tokenize`, or if `word_pooling` is unknown.

        Example:

        >>> encoder = BertEncoder(vocab_size=6, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, seed=0)
        >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], True)
        >>> extractor = BertFeatureExtractor(encoder, keras_bert.BertPreprocessor(tokenizer))
        >>> features = extractor.extract(["Playing, play"], unit="words")[0]
        >>> features.names, features.numbers.tolist(), features.vectors.shape
        (['Playing,', 'play'], [0, 1], (2, 8))
        """
        from keras_bert.data.tokenized_examples import log_long_texts
        from keras_bert.data.tokenized_units import TokenizedUnits

        if word_pooling not in WORD_POOLINGS:
            raise ValueError(f"unknown word_pooling {word_pooling!r}; allowed are {WORD_POOLINGS}")
        units = x
        if not isinstance(x, TokenizedUnits):
            units = self.tokenize(x, unit)
            log_long_texts(units.examples.token_counts, self.preprocessor)
        numbers = np.split(units.numbers, np.cumsum(units.examples.lengths)[:-1])
        features: dict[int, TextFeatures] = {}
        outputs = self._token_predictor.outputs_by_example(self, units.examples, batch_size, verbose)
        for rows, output in outputs:
            for row, tokens in zip(rows.tolist(), output, strict=True):
                found, vectors = _pool_units(tokens[: len(numbers[row])], numbers[row], word_pooling)
                features[row] = TextFeatures([units.names[row][number] for number in found], found, vectors)
        return [features[row] for row in range(len(units.names))]

    def export(self, path: PathLike, *, pairs: bool = False, **options: Unpack[ExportArguments]) -> Path:
        """Writes a SavedModel that takes raw text, for TensorFlow Serving or `tf.saved_model.load`.

        Signatures: `serving_default` takes `text` (or `text_a` and `text_b`), strings [batch]; `tokens` takes
        `token_ids`, `segment_ids`, `padding_mask`, int32 [batch, length]; `examples` takes serialized tf.Examples
        [batch] with the inputs of `serving_default` as features. Each returns `embedding`, float32 [batch, size], or
        [batch, layers, hidden] with combine="stack".

        Args:
            path, pairs, options: see `BertClassifier.export`, also for the result and the errors.
        """
        from keras_bert.models.serving import TextInputs, export_head, text_signatures

        inputs = TextInputs(PAIR_COLUMNS if pairs else TEXT_COLUMNS)

        def signatures(served: Any) -> Any:
            return text_signatures(served, inputs, lambda ids: {"embedding": served(ids)})

        return export_head(self, path, ExportOptions(**options), signatures, inputs)

    def classifier_arguments(self) -> EmbeddingSettings | None:
        """Returns what a sentence-transformers folder states of this model; None if it cannot describe the model."""
        blocks, length = self.encoder.num_hidden_layers, self.encoder.max_position_embeddings
        if [layer % (blocks + 1) for layer in self.layers_read] != [blocks] or self.combine == "stack":
            return None
        if self.preprocessor is not None:
            length = self.preprocessor.sequence_length
        return EmbeddingSettings(self.pooling, self.normalize, length)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "layers": list(self.layers_read)}
        del config["dtype"]
        return config | {name: getattr(self, name) for name in ("combine", "pooling", "normalize")}

    @classmethod
    def from_checkpoint(
        cls,
        path: PathLike,
        layers: Sequence[int] = LAST_LAYER,
        combine: str = "concat",
        pooling: str | None = None,
        normalize: bool | None = None,
        sequence_length: int | None = None,
        lower_case: bool | None = None,
        vocabulary: PathLike | Sequence[str] | None = None,
        **encoder_arguments: Any,
    ) -> Self:
        """Creates a feature extractor with the weights and the tokenizer of a checkpoint.

        Args:
            path: as for `BertEncoder.from_checkpoint`.
            layers, combine: as for the constructor.
            pooling, normalize: as for the constructor. None means those of a sentence-transformers folder
                (`modules.json`), and "mean" and True for a checkpoint of another kind.
            sequence_length: maximum input length in tokens, including [CLS] and [SEP]. None means that of a
                sentence-transformers folder, and otherwise 128, but not more than the encoder's positions.
            lower_case: None reads it from the checkpoint, or infers it from the vocabulary.
            vocabulary: a file or a list of wordpieces; None means the checkpoint's `vocab.txt`.
            **encoder_arguments: constructor arguments of the encoder that replace the checkpoint's, for example
                `dtype`; and `allow_nonfinite=True`, to accept weights that are NaN or infinite.

        Returns:
            A BertFeatureExtractor. Its attribute `checkpoint_report` lists what was read and what was not used.

        Raises:
            FileNotFoundError, ValueError: if the checkpoint is missing, corrupt or not a BERT, or an argument
                contradicts it; if the folder is of sentence-transformers and has a module or setting that this class
                lacks, such as `Dense`, and any of `pooling`, `normalize` and `sequence_length` is None.
        """
        from keras_bert.text.preprocessor import BertPreprocessor

        checkpoint = read_bert(path, encoder_arguments.pop("allow_nonfinite", False))
        # Without a pooler, which is not used.
        encoder = BertEncoder(**{**checkpoint.encoder_arguments, "with_pooler": False, **encoder_arguments})
        stated = None
        if None in (pooling, normalize, sequence_length):
            folder = Path(path) if Path(path).is_dir() else Path(path).parent
            stated = read_embedding_settings(folder, encoder.hidden_size)
        settings = stated or EmbeddingSettings("mean", normalize=True, max_length=_DEFAULT_LENGTH)
        pooling = settings.pooling if pooling is None else pooling
        normalize = settings.normalize if normalize is None else normalize
        if sequence_length is None:
            longest = encoder.max_position_embeddings
            sequence_length = min(settings.max_length or longest, longest)
        preprocessor = BertPreprocessor(load_tokenizer(checkpoint, vocabulary, lower_case), sequence_length)
        extractor = cls(encoder, preprocessor, layers, combine, pooling, normalize)
        extractor.checkpoint_report = assign_arrays(extractor.variables_by_path(), checkpoint)
        return extractor


def _check_layers(layers: Sequence[int], num_blocks: int) -> tuple[int, ...]:
    """Returns the indices of hidden states; ValueError if an encoder of `num_blocks` blocks does not have them."""
    if isinstance(layers, (str, bytes)) or not hasattr(layers, "__len__") or not len(layers):
        raise ValueError(f"layers must be a list of at least one number, got {layers!r}")
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, Integral) or not -num_blocks - 1 <= layer <= num_blocks:
            raise ValueError(
                f"layers are numbers from 0 (the embeddings) to {num_blocks} (the highest block), or from -1 (the "
                f"highest block) to {-num_blocks - 1}; got {layer!r}"
            )
    if len({layer % (num_blocks + 1) for layer in layers}) < len(layers):
        raise ValueError(f"a layer is given twice: {list(layers)}, of {num_blocks} blocks")
    return tuple(int(layer) for layer in layers)


def _scale_to_unit_length(vectors: np.ndarray) -> np.ndarray:
    flat = vectors.reshape([len(vectors), int(np.prod(vectors.shape[1:]))])  # -1 is undefined for no texts
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), _MIN_NORM)


def _pool_units(tokens: np.ndarray, numbers: np.ndarray, word_pooling: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of a text's units and their vectors, from its tokens and the unit number of each."""
    first = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))  # the first token of each unit or gap
    is_unit = numbers[first] >= 0
    found = numbers[first[is_unit]]
    if word_pooling == "first":
        return found, tokens[first[is_unit]]
    num_tokens = np.diff(first, append=len(numbers)).astype("float32")
    sums = np.add.reduceat(tokens, first, axis=0)
    return found, (sums / num_tokens.reshape([-1, *[1] * (tokens.ndim - 1)]))[is_unit]
