"""BERT's tokenizer: text to wordpiece ids in the TensorFlow graph."""

import functools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf
from absl import logging

from keras_bert.io import special_tokens
from keras_bert.text import vocabulary as vocabularies
from keras_bert.text.inputs import Texts, as_text_tensor
from keras_bert.text.normalization import MAXIMUM_CHARACTERS_PER_WORD, SPECIAL_TOKEN_MARKERS, TextNormalizer
from keras_bert.text.offsets import normalize_with_origins, spans_in_original
from keras_bert.text.versions import load_tensorflow_text
from keras_bert.typing import PathLike
from keras_bert.weights import keras_hub
from keras_bert.weights.hugging_face_tokenizer import read_tokenizer
from keras_bert.weights.preset_names import resolve_preset

tensorflow_text = load_tensorflow_text()

_SUFFIX_INDICATOR = "##"


@functools.lru_cache(maxsize=8)
def _wordpiece_tokenizer(vocabulary: tuple[str, ...], max_bytes_per_word: int) -> Any:
    """Returns tensorflow-text's tokenizer, cached because building it takes a tenth of a second."""
    with tf.init_scope():  # the cached tokenizer must not belong to the graph that is being traced
        return tensorflow_text.FastWordpieceTokenizer(
            list(vocabulary),
            suffix_indicator=_SUFFIX_INDICATOR,
            max_bytes_per_word=max_bytes_per_word,
            token_out_type=tf.int32,
            unknown_token=special_tokens.UNKNOWN_TOKEN,
        )


class TokensWithOffsets(NamedTuple):
    """Wordpiece ids and their offsets in the original texts, int32 ragged `[batch, (tokens)]`.

    Bytes that are not UTF-8 are not counted as characters, as in Python's `decode("utf-8", "ignore")`.
    """

    token_ids: tf.RaggedTensor
    start_bytes: tf.RaggedTensor  # first byte of each token
    end_bytes: tf.RaggedTensor  # one past its last byte
    start_characters: tf.RaggedTensor  # first character (code point) of each token
    end_characters: tf.RaggedTensor  # one past its last character


class BertTokenizer:
    """Converts text to BERT's wordpiece ids, identically to google-research/bert's `FullTokenizer` (`tokenization.py`).

    All computation is done by operations of TensorFlow and tensorflow-text, so the tokenizer works on tensors in
    `tf.data.Dataset.map`, in `tf.function` and inside an exported SavedModel, where the vocabulary is a constant.
    It does not add `[CLS]` and `[SEP]`; `BertPreprocessor` does.

    Bytes that are not UTF-8, control and format characters are removed; text is lower-cased and stripped of accents if
    requested; white space, punctuation and CJK characters separate words; each word is split greedily into the longest
    entries of the vocabulary, and becomes `[UNK]` if that fails or if it has more than 200 characters.

    Args:
        vocabulary: path of a `vocab.txt`, or a list of the wordpieces in the order of their ids.
        lower_case: whether to lower-case; must be the setting that the checkpoint was trained with.
        strip_accents: whether to remove accents. Defaults to None: as `lower_case`, like the original.
        special_tokens_in_text: Defaults to False: `[MASK]` and other special tokens written in a text are ordinary
            text, as in the original.
            Differs from BERT: True converts `[CLS]`, `[SEP]`, `[MASK]`, `[PAD]` and `[UNK]`, in exactly this spelling,
            to their ids. Do not use it on text from untrusted sources.
        max_characters_per_word: 1 to 999, counted after normalization. Defaults to 200, as in the original.

    Inputs: a str, or a list, NumPy array, pandas Series or string tensor `[batch]`. Outputs: int32 `RaggedTensor`
    `[batch, (tokens)]`, or `[tokens]` for a single text.

    Raises:
        FileNotFoundError: the vocabulary file does not exist.
        TypeError: the vocabulary is not a path or a list of strings.
        ValueError: the vocabulary lacks a special token, or `max_characters_per_word` is out of range.

    Example:
        >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "!"]
        >>> tokenizer = BertTokenizer(vocabulary, lower_case=True)
        >>> tokenizer.tokenize(["Playing!", "What?"]).to_list()
        [[5, 6, 7], [1, 1]]
    """

    def __init__(
        self,
        vocabulary: PathLike | Sequence[str],
        lower_case: bool,
        strip_accents: bool | None = None,
        special_tokens_in_text: bool = False,
        max_characters_per_word: int = MAXIMUM_CHARACTERS_PER_WORD,
    ) -> None:
        if isinstance(vocabulary, str | os.PathLike):
            self._vocabulary = vocabularies.load_vocabulary(vocabulary)
        else:
            self._vocabulary = vocabularies.check_vocabulary(vocabulary)
        for name, flag in (("lower_case", lower_case), ("special_tokens_in_text", special_tokens_in_text)):
            if not isinstance(flag, bool | np.bool_):
                raise TypeError(f"{name} must be True or False. Received: {flag!r}.")
        self.lower_case = lower_case
        self.strip_accents = lower_case if strip_accents is None else strip_accents
        self.special_tokens_in_text = special_tokens_in_text
        self.max_characters_per_word = max_characters_per_word
        self._ids = {token: index for index, token in enumerate(self._vocabulary)}
        self._warn_about_case()
        self._normalizer = TextNormalizer(
            lower_case, self.strip_accents, special_tokens_in_text, max_characters_per_word
        )
        try:
            self._wordpiece = _wordpiece_tokenizer(
                tuple(self._wordpiece_vocabulary()), self._normalizer.maximum_bytes_per_word
            )
        except RuntimeError as error:
            raise ValueError(
                f"The vocabulary of {self.vocab_size} entries has no entry that a word could match, or cannot be "
                f"searched ({error}). Add words to it, or pass the vocab.txt of a BERT checkpoint."
            ) from error
        with tf.init_scope():  # a tokenizer that is created while a graph is traced must outlive that graph
            self._tokens = tf.constant(self._vocabulary)

    def _warn_about_case(self) -> None:
        if not {"a", "A"} & set(self._vocabulary):
            return  # another script, which need not have case
        if self.lower_case != vocabularies.is_lower_case_vocabulary(self._vocabulary):
            logging.warning(
                "lower_case=%s, but the vocabulary of %d entries %s the entry 'A' and so looks %s. "
                "The tokenizer must use the case setting that the checkpoint was trained with.",
                self.lower_case,
                len(self._vocabulary),
                "has" if self.lower_case else "lacks",
                "cased" if self.lower_case else "lower-cased",
            )

    def _wordpiece_vocabulary(self) -> list[str]:
        """Builds the vocabulary for FastWordpieceTokenizer: no empty or repeated entry, markers for special tokens."""
        entries = []
        for index, token in enumerate(self._vocabulary):
            if token in ("", _SUFFIX_INDICATOR) or self._ids[token] != index:
                # No word can match this entry: it starts with a bracket, which is always a word of its own.
                token = f"[\x01{index}]"
            elif (
                self.special_tokens_in_text and token in SPECIAL_TOKEN_MARKERS and token != special_tokens.UNKNOWN_TOKEN
            ):
                token = SPECIAL_TOKEN_MARKERS[token]
            entries.append(token)
        return entries

    @property
    def vocabulary(self) -> list[str]:
        """Copy of the vocabulary, in the order of the ids."""
        return list(self._vocabulary)

    @property
    def vocab_size(self) -> int:
        """Number of entries of the vocabulary."""
        return len(self._vocabulary)

    @property
    def cls_id(self) -> int:
        """Id of `[CLS]`."""
        return self._ids[special_tokens.CLASSIFICATION_TOKEN]

    @property
    def sep_id(self) -> int:
        """Id of `[SEP]`."""
        return self._ids[special_tokens.SEPARATOR_TOKEN]

    @property
    def pad_id(self) -> int:
        """Id of `[PAD]`."""
        return self._ids[special_tokens.PADDING_TOKEN]

    @property
    def unk_id(self) -> int:
        """Id of `[UNK]`."""
        return self._ids[special_tokens.UNKNOWN_TOKEN]

    @property
    def mask_id(self) -> int | None:
        """Id of `[MASK]`, or None if the vocabulary lacks it."""
        return self._ids.get(special_tokens.MASK_TOKEN)

    def tokenize(self, texts: Texts) -> tf.RaggedTensor | tf.Tensor:
        """Converts texts to wordpiece ids, without `[CLS]` and `[SEP]`.

        Args:
            texts: texts `[batch]`, or a single text.

        Returns:
            int32 `RaggedTensor` `[batch, (tokens)]`; for a single text an int32 tensor `[tokens]`.

        Raises:
            TypeError: the input is not text.
            ValueError: the input has more than one dimension.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
            >>> tokenizer.tokenize("Playing").numpy().tolist()
            [4, 5]
        """
        texts = as_text_tensor(texts)
        if texts.shape.rank == 0:
            return self.tokenize(texts[tf.newaxis]).values
        return self._wordpiece.tokenize(self._normalizer(texts))

    def tokens(self, texts: Texts) -> tf.RaggedTensor | tf.Tensor:
        """Converts texts to wordpieces as strings.

        Args:
            texts: texts `[batch]`, or a single text.

        Returns:
            string `RaggedTensor` `[batch, (tokens)]`; for a single text a string tensor `[tokens]`.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
            >>> tokenizer.tokens(["Playing", ""]).to_list()
            [[b'play', b'##ing'], []]
        """
        return self.id_to_token(self.tokenize(texts))

    def tokenize_with_offsets(self, texts: Texts) -> TokensWithOffsets:
        """Converts texts to wordpiece ids and locates each token in the original text.

        A token covers the original from the first to the last character that contributed a character to it; `[UNK]`
        covers its whole word. So a stripped accent inside a token is covered, one after its last character is not, and
        several tokens may cover the same character (if they share its decomposition).

        Args:
            texts: texts `[batch]`, or a single text.

        Returns:
            Named tuple of int32 `RaggedTensor`s `[batch, (tokens)]`, or tensors `[tokens]` for a single text:
            `token_ids`, `start_bytes`, `end_bytes`, `start_characters`, `end_characters`. Ends are exclusive.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
            >>> result = tokenizer.tokenize_with_offsets(["Pláying?"])
            >>> result.start_bytes.to_list(), result.end_bytes.to_list(), result.end_characters.to_list()
            ([[0, 5, 8]], [[5, 8, 9]], [[4, 7, 8]])
        """
        texts = as_text_tensor(texts)
        if texts.shape.rank == 0:
            return TokensWithOffsets(*(part.values for part in self.tokenize_with_offsets(texts[tf.newaxis])))
        origins = normalize_with_origins(texts, self._normalizer)
        token_ids, starts, ends = self._wordpiece.tokenize_with_offsets(origins.texts)
        spans = spans_in_original(origins, starts, ends)
        return TokensWithOffsets(token_ids, *(token_ids.with_values(part) for part in spans))

    def id_to_token(self, ids: Any) -> str | tf.Tensor | tf.RaggedTensor:
        """Looks up the wordpieces of ids.

        Args:
            ids: an int, or a list, array, tensor or `RaggedTensor` of ints.

        Returns:
            str for an int, otherwise a string tensor or `RaggedTensor` of the same shape.

        Raises:
            TypeError: the ids are not integers.
            ValueError: an int that is not an id of the vocabulary.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
            >>> tokenizer.id_to_token(5), tokenizer.id_to_token([4, 5]).numpy().tolist()
            ('##ing', [b'play', b'##ing'])
        """
        if isinstance(ids, int | np.integer):
            if not 0 <= ids < self.vocab_size:
                raise ValueError(f"An id must be from 0 to {self.vocab_size - 1}. Received: {ids}.")
            return self._vocabulary[ids]
        return tf.ragged.map_flat_values(tf.gather, self._tokens, _as_ids(ids))

    def token_to_id(self, token: str) -> int:
        """Looks up the id of a wordpiece.

        Args:
            token: an entry of the vocabulary.

        Returns:
            Its id; the last one if the vocabulary holds it several times.

        Raises:
            ValueError: the vocabulary has no such entry.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
            >>> tokenizer.token_to_id("##ing")
            5
        """
        if token not in self._ids:
            raise ValueError(
                f"The vocabulary of {self.vocab_size} entries has no entry {token!r}. "
                "To split a text into entries, use tokenize(text)."
            )
        return self._ids[token]

    def detokenize(self, ids: Any) -> tf.Tensor:
        """Joins wordpieces to text: `##` wordpieces to the one before them, words by spaces.

        `[CLS]`, `[SEP]` and `[PAD]` are removed. Case, accents and the spacing of punctuation are not restored: "it's"
        becomes "it ' s".

        Args:
            ids: list, array, tensor or `RaggedTensor` of ints `[tokens]` or `[batch, tokens]`.

        Returns:
            string tensor, scalar or `[batch]`.

        Raises:
            TypeError: the ids are not integers.
            ValueError: the ids do not have one or two dimensions.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "!"], lower_case=True)
            >>> tokenizer.detokenize([[2, 4, 5, 6, 3, 0]]).numpy().tolist()
            [b'playing !']
        """
        ids = _as_ids(ids)
        if ids.shape.rank not in (1, 2):
            raise ValueError(f"ids must be of shape [tokens] or [batch, tokens]. Received: shape {ids.shape}.")
        if ids.shape.rank == 1:
            return self.detokenize(ids[tf.newaxis])[0]
        if isinstance(ids, tf.Tensor):
            ids = tf.RaggedTensor.from_tensor(ids)
        removed = tf.constant([self.cls_id, self.sep_id, self.pad_id], ids.dtype)
        is_kept = tf.reduce_all(ids.values[:, tf.newaxis] != removed, axis=1)
        kept = tf.ragged.boolean_mask(ids, ids.with_values(is_kept))
        joined = tf.strings.reduce_join(self.id_to_token(kept), axis=-1, separator=" ")
        return tf.strings.regex_replace(joined, f" {_SUFFIX_INDICATOR}", "")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments in a form that JSON can hold, the vocabulary as a list."""
        return {
            "vocabulary": self.vocabulary,
            "lower_case": self.lower_case,
            "strip_accents": self.strip_accents,
            "special_tokens_in_text": self.special_tokens_in_text,
            "max_characters_per_word": self.max_characters_per_word,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a tokenizer from the dict that `get_config` returned.

        Raises:
            ValueError: the vocabulary is not a list: a configuration must not name a file to open, because it may come
                from somebody else.
        """
        vocabulary = config.get("vocabulary")
        if not isinstance(vocabulary, list):
            raise ValueError(
                f"A tokenizer's configuration must hold its vocabulary as a list. Received: {repr(vocabulary)[:80]}. "
                "To read a file, use BertTokenizer(path, lower_case=...)."
            )
        return cls(**config)

    @classmethod
    def from_preset(cls, name: PathLike, lower_case: bool | None = None, **kwargs: Any) -> Self:
        """Creates the tokenizer of a published model; its weights are not downloaded.

        Args:
            name: as for `BertEncoder.from_preset`: a preset's name, `hf://owner/name`, or the path of a folder.
            lower_case: None reads it from the model's files, or infers it from the vocabulary.
            **kwargs: further arguments of the constructor; `strip_accents` replaces what the files state.

        Returns:
            A BertTokenizer.

        Raises:
            FileNotFoundError, PermissionError, ConnectionError: as `BertEncoder.from_preset`, or if there is no
                vocabulary.
            ValueError: the name is unknown, the files are not of a BERT's tokenizer, or `lower_case` contradicts them.

        Example:
            >>> tokenizer = BertTokenizer.from_preset("bert_tiny_novels")
            >>> tokenizer.tokens("Reader, I married him.").numpy().tolist()
            [b'reader', b',', b'i', b'married', b'him', b'.']
        """
        path = resolve_preset(name, tokenizer_only=True)
        folder = path if path.is_dir() else path.parent  # of a file of weights
        is_keras_hub = (folder / keras_hub.VOCABULARY_NAME).is_file()
        stored = keras_hub.read_tokenizer(folder) if is_keras_hub else read_tokenizer(folder)
        if stored.vocabulary is None:
            held = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
            raise FileNotFoundError(
                f"{folder} has neither vocab.txt nor tokenizer.json; it contains {held}. Put the vocabulary that "
                "belongs to the weights into the folder, or pass another folder."
            )
        case = choose_case(stored.vocabulary, lower_case, stored.lower_case, folder)
        kwargs = {"strip_accents": stored.strip_accents, **kwargs}
        if stored.max_characters_per_word is not None:
            kwargs.setdefault("max_characters_per_word", stored.max_characters_per_word)
        return cls(stored.vocabulary, case, **kwargs)


def choose_case(
    vocabulary: PathLike | Sequence[str], lower_case: bool | None, stated: bool | None, source: PathLike
) -> bool:
    """Returns whether a checkpoint's tokenizer lower-cases: as given, as its files state, or as inferred.

    Raises ValueError if `lower_case` contradicts what the files of the checkpoint `source` state.
    """
    if lower_case is not None and stated not in (None, lower_case):
        raise ValueError(
            f"lower_case={lower_case} contradicts the checkpoint {source}, which was trained with "
            f"lower_case={stated}; omit lower_case"
        )
    if lower_case is not None or stated is not None:
        return bool(stated if lower_case is None else lower_case)
    if isinstance(vocabulary, str | os.PathLike):
        words: Sequence[str] = vocabularies.load_vocabulary(vocabulary)
    else:
        words = vocabulary
    inferred = vocabularies.is_lower_case_vocabulary(words)
    logging.info("%s does not state lower_case; inferred %s from its vocabulary", source, inferred)
    return inferred


def _as_ids(ids: Any) -> tf.Tensor | tf.RaggedTensor:
    """Converts ids to an integer tensor or `RaggedTensor`."""
    received = ids
    try:
        if isinstance(ids, list | tuple):
            ids = tf.ragged.constant(ids, dtype=None if ids else tf.int32)
        elif not isinstance(ids, tf.RaggedTensor):
            ids = tf.convert_to_tensor(ids)
        is_integer = ids.dtype.is_integer
    except (TypeError, ValueError):
        is_integer = False
    if not is_integer:
        raise TypeError(
            "Token ids must be integers, as an int, a list, an array or a tensor. "
            f"Received: {repr(received)[:80]}. To convert text to ids, use tokenize(texts)."
        )
    return ids
