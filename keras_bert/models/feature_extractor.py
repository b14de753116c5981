"""Features of a frozen BERT: vectors of words or wordpieces."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from keras_bert.models.encoder import BertEncoder
from keras_bert.models.pretrained import assign_arrays, load_tokenizer, read_bert
from keras_bert.models.text_model import TextModel
from keras_bert.typing import Inputs, PathLike, Tensor

if TYPE_CHECKING:
    from keras_bert.data.tokenized_units import TokenizedUnits
    from keras_bert.text.preprocessor import BertPreprocessor

LAST_LAYER = (-1,)
COMBINATIONS = ("stack", "concat", "sum", "mean")
WORD_POOLINGS = ("first", "mean")
_DEFAULT_LENGTH = 128  # google-research/bert, extract_features.py: max_seq_length


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

    `extract` returns a vector per wordpiece or word. Called on ids, the model returns those of the tokens, for a model
    on top. It has only the encoder's weights, and dropout is never active. For one vector per text, take a
    `BertTextEmbedder`.

    Args:
        encoder: a `BertEncoder`; its pooler is not used.
        preprocessor: a `BertPreprocessor` that truncates, or None for a model that takes only ids.
        layers: hidden states to read: 0 is the output of the embeddings, 1 of the lowest block; -1 is the output of the
            highest block, -2 of the one below.
            Differs from BERT: in extract_features.py 0 is the lowest block, and the embeddings are not available.
            Negative numbers have the same meaning there.
        combine: how several layers become one vector: "concat" (in the given order), "sum", "mean"; or "stack", which
            keeps them on a separate axis.
        name, trainable: as for every Keras model. The dtype is the encoder's; layers are always combined in float32.

    Inputs: the encoder's dict of ids.

    Outputs:
        float32 [batch, length, size], or [batch, length, layers, hidden] with combine="stack"; undefined at padding.

    Raises:
        ValueError: if a layer does not exist or is given twice, `combine` is unknown, or the preprocessor does not fit
            the encoder or splits texts into windows.

    Example:

    >>> encoder = BertEncoder(vocab_size=6, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, seed=0)
    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
    >>> extractor = BertFeatureExtractor(encoder, keras_bert.BertPreprocessor(tokenizer), layers=[-1, -2])
    >>> extractor.extract(["Playing"])[0].names
    ['[CLS]', 'play', '##ing', '[SEP]']
    """

    def __init__(
        self,
        encoder: BertEncoder,
        preprocessor: BertPreprocessor | None = None,
        layers: Sequence[int] = LAST_LAYER,
        combine: str = "concat",
        name: str | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(encoder, preprocessor, name)
        if preprocessor is not None and preprocessor.long_texts != "truncate":
            raise ValueError(
                "a feature extractor truncates texts, but the preprocessor has "
                f'long_texts={preprocessor.long_texts!r}; create it with long_texts="truncate"'
            )
        if combine not in COMBINATIONS:
            raise ValueError(f"unknown combine {combine!r}; allowed are {COMBINATIONS}")
        self.layers_read = _check_layers(layers, encoder.num_hidden_layers)
        self.combine = combine
        self.built = True  # it has no variables but the encoder's
        if not trainable:
            self.trainable = False  # only now: Keras passes it on to existing layers

    def call(self, inputs: Inputs, training: bool = False) -> Tensor:
        """Returns the vectors of the tokens of a batch; `training` has no effect."""
        states = self.encoder(inputs, training=False, return_hidden_states=True)["hidden_states"]
        selected = [ops.cast(states[layer], "float32") for layer in self.layers_read]
        if self.combine == "stack":
            return ops.stack(selected, axis=2)
        if self.combine == "concat":
            return ops.concatenate(selected, axis=-1)
        return sum(selected) / (len(selected) if self.combine == "mean" else 1)

    def tokenize(self, x: Any, unit: str = "wordpieces") -> TokenizedUnits:
        """Tokenizes texts or pairs for `extract`.

        Args:
            x: texts (a list of strings), or pairs (a tuple of two lists, or a dict with `text_a` and `text_b`).
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
            x: texts or pairs, as for `tokenize`, or its result. Texts that are too long are truncated and
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
        outputs = self._predictor.outputs_by_example(self, units.examples, batch_size, verbose)
        for rows, output in outputs:
            for row, tokens in zip(rows.tolist(), output, strict=True):
                found, vectors = _pool_units(tokens[: len(numbers[row])], numbers[row], word_pooling)
                features[row] = TextFeatures([units.names[row][number] for number in found], found, vectors)
        return [features[row] for row in range(len(units.names))]

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "layers": list(self.layers_read)}
        del config["dtype"]
        return config | {"combine": self.combine}

    @classmethod
    def from_checkpoint(
        cls,
        path: PathLike,
        layers: Sequence[int] = LAST_LAYER,
        combine: str = "concat",
        sequence_length: int | None = None,
        lower_case: bool | None = None,
        vocabulary: PathLike | Sequence[str] | None = None,
        **encoder_arguments: Any,
    ) -> Self:
        """Creates a feature extractor with the weights and the tokenizer of a checkpoint.

        Args:
            path: as for `BertEncoder.from_checkpoint`.
            layers, combine: as for the constructor.
            sequence_length: maximum input length in tokens, including [CLS] and [SEP]; None means 128, but not more
                than the encoder's positions.
            lower_case: None reads it from the checkpoint, or infers it from the vocabulary.
            vocabulary: a file or a list of wordpieces; None means the checkpoint's `vocab.txt`.
            **encoder_arguments: constructor arguments of the encoder that replace the checkpoint's, for example
                `dtype`; and `allow_nonfinite=True`, to accept weights that are NaN or infinite.

        Returns:
            A BertFeatureExtractor. Its attribute `checkpoint_report` lists what was read and what was not used.

        Raises:
            FileNotFoundError, ValueError: if the checkpoint is missing, corrupt or not a BERT, or an argument
                contradicts it.
        """
        from keras_bert.text.preprocessor import BertPreprocessor

        checkpoint = read_bert(path, encoder_arguments.pop("allow_nonfinite", False))
        # Without a pooler, which is not used.
        encoder = BertEncoder(**{**checkpoint.encoder_arguments, "with_pooler": False, **encoder_arguments})
        length = min(_DEFAULT_LENGTH, encoder.max_position_embeddings) if sequence_length is None else sequence_length
        preprocessor = BertPreprocessor(load_tokenizer(checkpoint, vocabulary, lower_case), length)
        extractor = cls(encoder, preprocessor, layers, combine)
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
