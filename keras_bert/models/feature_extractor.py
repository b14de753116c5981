"""BERT as it is, for features: vectors of texts, of their words, or of their pieces."""

from numbers import Integral
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_bert.models.encoder import BertEncoder
from keras_bert.models.inference import Predictor
from keras_bert.models.text_model import TextModel

LAST_LAYER = (-1,)
COMBINATIONS = ("stack", "concat", "sum", "mean")
POOLINGS = ("mean", "cls", "max")
PIECES_OF_WORD = ("first", "mean")
_SHORTEST = 1e-12  # by which a vector of zeros is divided, as in sentence-transformers


class TextFeatures(NamedTuple):
    """The features of one text, from `BertFeatureExtractor.extract`.

    Args:
        names: list of str, the pieces ("[CLS]", "play", "##ing", ..., "[SEP]") or the words.
        numbers: int32 array [units]. The number of each among the text's pieces or words, from 0; words that were cut
            off, or are made of characters that BERT drops, are left out.
        vectors: float32 array [units, size], or [units, layers, hidden] if the layers are stacked.
    """

    names: list
    numbers: np.ndarray
    vectors: np.ndarray


@keras.saving.register_keras_serializable(package="keras_bert")
class BertFeatureExtractor(TextModel):
    """A BERT that is not trained any more, but read (paper, section 5.3; google-research/bert, extract_features.py).

    `embed` gives a vector for each text, `extract` one for each of its pieces or words. Called on ids as other models
    are, it gives the vectors of the texts; `features` those of the tokens, for a model that is to be put on top. It has
    no weights but the encoder's and no loss, so that it is saved, exported and distributed like the other models, and
    `compile`, `fit` and `evaluate` are refused. Dropout is never on.

    Args:
        encoder: a `BertEncoder`; a pooler is not used.
        preprocessor: a `BertPreprocessor` that truncates, or None for a model that takes ids only.
        layers: list of int, the hidden states that are read: 0 is the output of the embeddings, 1 of the lowest block;
            -1 is the output of the highest one, -2 of that below.
            Differs from BERT: in extract_features.py 0 is the lowest block, and the embeddings cannot be had. Negative
            numbers mean the same there.
        combine: str. How layers become one vector: "concat" (side by side, in the order given), "sum", "mean"; or
            "stack", which keeps them apart on an axis of their own.
        pooling: str. How tokens become the vector of a text: "mean" or "max" over all that are no padding, [CLS] and
            [SEP] included (as in sentence-transformers, arXiv 1908.10084, section 3), or "cls", the vector of [CLS].
        normalize: bool. Whether vectors of texts are given the length 1, so that their products are cosines (each layer
            for itself, if they are stacked). Vectors of pieces and words stay as they are.
        name, dtype, trainable: as for every Keras model; the dtype is the encoder's unless given. Whatever it is,
            layers are combined and pooled in float32.

    Inputs: the encoder's dict of ids.

    Outputs:
        float32 [batch, size], or [batch, layers, hidden] if the layers are stacked. A row that is all padding is 0.

    Raises:
        ValueError: if the encoder has no such layer, or one is named twice; on an unknown `combine` or `pooling`; if
            the preprocessor does not fit the encoder, or cuts texts into windows.

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
        encoder,
        preprocessor=None,
        layers=LAST_LAYER,
        combine="concat",
        pooling="mean",
        normalize=True,
        name=None,
        dtype=None,
        trainable=True,
    ):
        super().__init__(encoder, preprocessor, name=name, dtype=dtype)
        if preprocessor is not None and preprocessor.long_texts != "truncate":
            raise ValueError(f"texts are truncated: the preprocessor has long_texts={preprocessor.long_texts!r}")
        for argument, value, allowed in (("combine", combine, COMBINATIONS), ("pooling", pooling, POOLINGS)):
            if value not in allowed:
                raise ValueError(f"unknown {argument} {value!r}; allowed are {allowed}")
        self.layers_read = checked_layers(layers, encoder.num_hidden_layers)
        self.combine = combine
        self.pooling = pooling
        self.normalize = normalize
        self._token_predictor = Predictor(lambda model, batch: model.features(batch))
        self.complete(trainable)

    def features(self, inputs):
        """The vectors of the tokens of a batch.

        Args:
            inputs: the encoder's dict of ids, [batch, length].

        Returns:
            float32 tensor [batch, length, size], or [batch, length, layers, hidden] if the layers are stacked; those of
            padding mean nothing.
        """
        states = self.encoder(inputs, training=False, return_hidden_states=True)["hidden_states"]
        chosen = [ops.cast(states[layer], "float32") for layer in self.layers_read]
        if self.combine == "stack":
            return ops.stack(chosen, axis=2)
        if self.combine == "concat":
            return ops.concatenate(chosen, axis=-1)
        return sum(chosen) / (len(chosen) if self.combine == "mean" else 1)

    def call(self, inputs, training=False):
        """The vectors of the texts of a batch; see the class. Training or not makes no difference."""
        vectors = self._pooled(self.features(inputs), inputs.get("padding_mask"))
        if self.normalize:
            length = ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
            vectors = vectors / ops.maximum(length, _SHORTEST)
        return vectors

    def _pooled(self, features, padding_mask):
        if padding_mask is None:
            padding_mask = ops.ones(ops.shape(features)[:2])
        is_token = ops.cast(padding_mask, "float32")
        for _ in features.shape[2:]:
            is_token = is_token[..., None]
        if self.pooling == "cls":
            return features[:, 0] * is_token[:, 0]
        sums = ops.sum(is_token, axis=1)
        if self.pooling == "mean":
            return ops.sum(features * is_token, axis=1) / ops.maximum(sums, 1.0)
        return ops.where(sums > 0, ops.max(ops.where(is_token > 0, features, -np.inf), axis=1), 0.0)

    def embed(self, x, batch_size=None, verbose=0):
        """The vectors of texts, in the order given.

        Args:
            x, batch_size, verbose: as for `predict`: texts, pairs, ids, or `TokenizedExamples`.

        Returns:
            float32 array [texts, size], or [texts, layers, hidden] if the layers are stacked.

        Raises:
            ValueError, TypeError: on what is neither texts nor ids that fit the model.
        """
        return np.asarray(self.predict(x, batch_size, verbose))

    def similarity(self, a, b, batch_size=None):
        """How alike texts are: the cosine of each of one list with each of another.

        Args:
            a, b: texts, pairs or ids, as for `embed`.
            batch_size: int. Texts in a batch; 64 if None.

        Returns:
            float32 array [texts of a, texts of b], from -1 to 1. Stacked layers count as if they stood side by side.

        Raises:
            ValueError, TypeError: as `embed`.

        Example:

        >>> encoder = BertEncoder(vocab_size=6, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, seed=0)
        >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], True)
        >>> extractor = BertFeatureExtractor(encoder, keras_bert.BertPreprocessor(tokenizer))
        >>> extractor.similarity(["play"], ["PLAY", "playing"]).round(3).shape
        (1, 2)
        """
        rows, columns = (_of_length_one(self.embed(texts, batch_size)) for texts in (a, b))
        return rows @ columns.T

    def tokenize(self, x, unit="pieces"):
        """Texts or pairs as ids, with the units that `extract` is to give vectors of.

        Args:
            x: texts or pairs: a list of str, a tuple of two lists, or a dict (`text`, or `text_a` and `text_b`).
            unit: str. "pieces" or "words", as for `extract`.

        Returns:
            `keras_bert.data.tokenized_units.TokenizedUnits`; its `examples.token_counts` say how long the texts were
            before any was truncated.

        Raises:
            ValueError, TypeError: if there is no preprocessor, on what is no texts, or on an unknown unit.
        """
        from keras_bert.data.tokenized_units import tokenize_units

        self.require_preprocessor()
        columns = self._text_columns(x)
        if columns is None:
            raise ValueError(f"expected texts (strings) or pairs of them, got {type(x).__name__}")
        return tokenize_units(columns, self.preprocessor, unit)

    def extract(self, x, unit="pieces", pieces_of_word="first", batch_size=None, verbose=0):
        """The vectors of the pieces or words of texts, in the order given; computed in batches of like length.

        Args:
            x: texts or pairs, as for `tokenize`, or what it gave. Texts that are too long are truncated, and counted in
                the log.
            unit: str. "pieces": every token, [CLS] and [SEP] included; or "words": what stands between spaces, as
                SQuAD and taggers count words.
            pieces_of_word: str. Of which pieces a word's vector is made: "first" (the default, as in the paper, section
                5.3), or "mean", of all its pieces that were not cut off.
            batch_size: int. Texts in a batch; 64 if None.
            verbose: as in Keras' `predict`.

        Returns:
            list of `TextFeatures`, one for each text.

        Raises:
            ValueError, TypeError: as `tokenize`, or on an unknown `pieces_of_word`.

        Example:

        >>> encoder = BertEncoder(vocab_size=6, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, seed=0)
        >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], True)
        >>> extractor = BertFeatureExtractor(encoder, keras_bert.BertPreprocessor(tokenizer))
        >>> features = extractor.extract(["Playing, play"], unit="words")[0]
        >>> features.names, features.numbers.tolist(), features.vectors.shape
        (['Playing,', 'play'], [0, 1], (2, 8))
        """
        from keras_bert.data.in_memory import log_long_texts, treatment_of_long_texts
        from keras_bert.data.tokenized_units import TokenizedUnits

        if pieces_of_word not in PIECES_OF_WORD:
            raise ValueError(f"unknown pieces_of_word {pieces_of_word!r}; allowed are {PIECES_OF_WORD}")
        units = x
        if not isinstance(x, TokenizedUnits):
            units = self.tokenize(x, unit)
            treatment = treatment_of_long_texts(self.preprocessor)
            log_long_texts(units.examples.token_counts, self.preprocessor.sequence_length, treatment)
        numbers = np.split(units.numbers, np.cumsum(units.examples.lengths)[:-1])
        features = [None] * len(units.names)
        outputs = self._token_predictor.outputs_of_examples(self, units.examples, batch_size, verbose)
        for rows, output in outputs:
            for row, vectors in zip(rows.tolist(), output, strict=True):
                found, of_units = _of_units(vectors[: len(numbers[row])], numbers[row], pieces_of_word)
                features[row] = TextFeatures([units.names[row][number] for number in found], found, of_units)
        return features

    def export(self, path, dtype=None, pairs=False):
        """Writes a SavedModel that takes raw text, for TensorFlow Serving or `tf.saved_model.load`.

        Signatures: `serving_default` takes `text` (or `text_a` and `text_b`), strings [batch]; `tokens` takes
        `token_ids`, `segment_ids`, `padding_mask`, int32 [batch, length]; `examples` takes serialized tf.Examples
        [batch] with the same features as `serving_default` has inputs. Each answers `embedding`, float32 [batch, size],
        or [batch, layers, hidden] if the layers are stacked.

        Args:
            path: str or Path. The folder to write, for example "models/embeddings/1"; the server takes its name for the
                version.
            dtype: None for the dtype that the model has, or "float32" or "bfloat16" to store and compute in it.
            pairs: bool. Whether the inputs are pairs of texts.

        Returns:
            Path of the folder.

        Raises:
            FileExistsError: if there is something at `path`; a version is never overwritten.
            ValueError: if there is no preprocessor, or on an unknown dtype.
        """
        from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS
        from keras_bert.models.serving import TextInputs, export_head, text_signatures

        inputs = TextInputs(PAIR_COLUMNS if pairs else TEXT_COLUMNS)
        return export_head(
            self,
            path,
            dtype,
            lambda served: text_signatures(served, inputs, lambda ids: {"embedding": served(ids)}),
            inputs,
        )

    def require_compiled(self, method):
        """Raises: there is nothing to train or evaluate.

        Args:
            method: str, the name of what is to be called, for the message.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            f"`{method}` is not for a {type(self).__name__}, which has no loss and no weights but its encoder's; fit a "
            "model of your own on its features, or a head such as BertClassifier on the encoder"
        )

    def compile(self, *args, **kwargs):
        """Raises, as `require_compiled` says."""
        self.require_compiled("compile")

    def get_config(self):
        """The constructor's arguments."""
        config = super().get_config()
        for of_training in ("freeze", "seed"):
            del config[of_training]
        return {
            **config,
            "layers": list(self.layers_read),
            "combine": self.combine,
            "pooling": self.pooling,
            "normalize": self.normalize,
        }

    @classmethod
    def from_checkpoint(
        cls,
        path,
        layers=LAST_LAYER,
        combine="concat",
        pooling="mean",
        normalize=True,
        sequence_length=128,  # google-research/bert, extract_features.py: max_seq_length
        lower_case=None,
        vocabulary=None,
        name=None,
        **encoder_arguments,
    ):
        """A feature extractor on the weights of somebody's checkpoint, with the checkpoint's tokenizer.

        Args:
            path: str or Path, as for `BertEncoder.from_checkpoint`.
            layers, combine, pooling, normalize, name: as for the constructor.
            sequence_length: int. The longest input in tokens, with [CLS] and [SEP].
            lower_case: bool; None takes what the checkpoint says or, where it does not, what its vocabulary shows.
            vocabulary: path or list of str; None takes the checkpoint's `vocab.txt`.
            **encoder_arguments: constructor arguments of the encoder that replace the checkpoint's, for example
                `dtype`.

        Returns:
            A BertFeatureExtractor. Its attribute `checkpoint_report` says what was read and what was not used.

        Raises:
            FileNotFoundError, ValueError: if the checkpoint is missing, damaged, not a BERT, or does not fit; if
                `lower_case` contradicts the checkpoint.
        """
        from keras_bert.models.pretrained import assign_arrays, load_tokenizer, read_bert
        from keras_bert.text.preprocessor import BertPreprocessor

        checkpoint = read_bert(path)
        preprocessor = BertPreprocessor(load_tokenizer(checkpoint, vocabulary, lower_case), sequence_length)
        # Without a pooler, whose output is not read.
        encoder = BertEncoder(**{**checkpoint.encoder_arguments, "with_pooler": False, **encoder_arguments})
        extractor = cls(encoder, preprocessor, layers, combine, pooling, normalize, name)
        extractor.checkpoint_report = assign_arrays(extractor.variables_by_path(), checkpoint)
        return extractor


def checked_layers(layers, blocks):
    """The numbers of hidden states, after checking that an encoder has them.

    Args:
        layers: list of int, as for `BertFeatureExtractor`.
        blocks: int. The encoder's blocks.

    Returns:
        tuple of int, as they were given.

    Raises:
        ValueError: if there are none, one is no number of a hidden state, or two mean the same one.

    Example:

    >>> checked_layers([-1, 0], blocks=2)
    (-1, 0)
    """
    if isinstance(layers, (str, bytes)) or not hasattr(layers, "__len__") or not len(layers):
        raise ValueError(f"layers must be a list of at least one number, got {layers!r}")
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, Integral) or not -blocks - 1 <= layer <= blocks:
            raise ValueError(
                f"layers are numbers from 0 (the embeddings) to {blocks} (the highest block), or from -1 (the highest "
                f"block) to {-blocks - 1}; got {layer!r}"
            )
    if len({layer % (blocks + 1) for layer in layers}) < len(layers):
        raise ValueError(f"a layer is named twice: {list(layers)}, of {blocks} blocks")
    return tuple(int(layer) for layer in layers)


def _of_length_one(vectors):
    flat = vectors.reshape([len(vectors), -1])
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), _SHORTEST)


def _of_units(vectors, numbers, pieces_of_word):
    """The numbers of a text's units, and their vectors, from those of its tokens and the units that these are of."""
    first = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))  # tokens with which a unit or a gap begins
    is_unit = numbers[first] >= 0
    found = numbers[first[is_unit]]
    if pieces_of_word == "first":
        return found, vectors[first[is_unit]]
    pieces = np.diff(first, append=len(numbers)).astype("float32")
    sums = np.add.reduceat(vectors, first, axis=0)
    return found, (sums / pieces.reshape([-1, *[1] * (vectors.ndim - 1)]))[is_unit]
