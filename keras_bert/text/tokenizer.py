"""BERT's tokenizer: text to wordpiece ids inside the TensorFlow graph."""

import functools
import numbers
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from keras_bert.text import vocabulary as vocabularies
from keras_bert.text.inputs import text_tensor
from keras_bert.text.normalization import MAXIMUM_CHARACTERS_PER_WORD, SPECIAL_TOKEN_MARKERS, TextNormalizer
from keras_bert.text.offsets import normalize_with_origins, spans_in_original
from keras_bert.text.versions import load_tensorflow_text

tensorflow_text = load_tensorflow_text()

_SUFFIX_INDICATOR = "##"


@functools.lru_cache(maxsize=8)
def _wordpiece_tokenizer(vocabulary: tuple[str, ...], max_bytes_per_word: int) -> Any:
    """The tokenizer of tensorflow-text, which takes a tenth of a second to make, once for all of one vocabulary."""
    with tf.init_scope():  # the graph that is traced by chance is not where the next one is used
        return tensorflow_text.FastWordpieceTokenizer(
            list(vocabulary),
            suffix_indicator=_SUFFIX_INDICATOR,
            max_bytes_per_word=max_bytes_per_word,
            token_out_type=tf.int32,
            unknown_token=vocabularies.UNKNOWN_TOKEN,
        )


class TokensWithOffsets(NamedTuple):
    """Wordpiece ids and where they stand in the original text, from `BertTokenizer.tokenize_with_offsets`.

    Source: none in BERT, whose tokenizer does not keep offsets.

    Args:
        token_ids: ragged int32 `[batch, (tokens)]`.
        start_bytes: ragged int32, the first byte of each token in the original bytes.
        end_bytes: ragged int32, one past its last byte.
        start_characters: ragged int32, the first character (code point) of each token in the original text. Bytes that
            are not UTF-8 are no characters and are not counted, as in Python's `decode("utf-8", "ignore")`.
        end_characters: ragged int32, one past its last character.

    Example:
        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "deja", "vu"], lower_case=True)
        >>> result = tokenizer.tokenize_with_offsets("Déjà vu")
        >>> result.start_bytes.numpy().tolist(), result.start_characters.numpy().tolist()
        ([0, 7], [0, 5])
    """

    token_ids: tf.RaggedTensor
    start_bytes: tf.RaggedTensor
    end_bytes: tf.RaggedTensor
    start_characters: tf.RaggedTensor
    end_characters: tf.RaggedTensor


class BertTokenizer:
    """Turns text into BERT's wordpiece ids, identically to google-research/bert's `FullTokenizer` (`tokenization.py`).

    Everything is computed by operations of TensorFlow and tensorflow-text, so the tokenizer works on tensors in
    `tf.data.Dataset.map` and `tf.function`, and inside an exported SavedModel, where the vocabulary is a constant.
    It adds no `[CLS]` or `[SEP]`: `BertPreprocessor` does.

    Bytes that are not UTF-8, control and format characters are dropped; words are lower-cased and lose their accents
    where asked; white space, punctuation and CJK characters part words; each word is cut greedily into the longest
    entries of the vocabulary, and becomes `[UNK]` where that fails or where it has more than 200 characters.

    Args:
        vocabulary: path of a `vocab.txt`, or list of str, the wordpieces in the order of their ids.
        lower_case: bool, whether to lower-case; must be what the checkpoint was trained with.
        strip_accents: bool or None, whether to remove accents. Defaults to None: as `lower_case`, like the original.
        special_tokens_in_text: bool. Defaults to False: `[MASK]` and its like written in a text are ordinary text, as
            in the original.
            Differs from BERT: True makes `[CLS]`, `[SEP]`, `[MASK]`, `[PAD]` and `[UNK]`, spelled so, into
            their single ids. Do not use it on text that strangers wrote.
        max_characters_per_word: int, from 1 to 999, counted after normalisation. Defaults to 200.

    Inputs: string tensor, list or array `[batch]`, or one text. Outputs: int32 `RaggedTensor` `[batch, (tokens)]`, or
    `[tokens]` for one text.

    Raises:
        FileNotFoundError: there is no such vocabulary file.
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
        vocabulary: str | Path | Sequence[str],
        lower_case: bool,
        strip_accents: bool | None = None,
        special_tokens_in_text: bool = False,
        max_characters_per_word: int = MAXIMUM_CHARACTERS_PER_WORD,
    ):
        if isinstance(vocabulary, str | Path):
            self._vocabulary = vocabularies.load_vocabulary(vocabulary)
        else:
            self._vocabulary = vocabularies.check_vocabulary(vocabulary)
        self.lower_case = lower_case
        self.strip_accents = lower_case if strip_accents is None else strip_accents
        self.special_tokens_in_text = special_tokens_in_text
        self.max_characters_per_word = max_characters_per_word
        self._ids = {token: index for index, token in enumerate(self._vocabulary)}
        self._warn_of_wrong_case()
        self._normalizer = TextNormalizer(
            lower_case, self.strip_accents, special_tokens_in_text, max_characters_per_word
        )
        self._wordpiece = self._make_wordpiece_tokenizer()
        with tf.init_scope():  # a tokenizer made while a graph is traced must outlive that graph
            self._tokens = tf.constant(self._vocabulary)

    def _warn_of_wrong_case(self) -> None:
        if not {"a", "A"} & set(self._vocabulary):
            return  # of another script, which need not have case
        if self.lower_case != vocabularies.is_lower_case_vocabulary(self._vocabulary):
            logging.warning(
                "lower_case=%s, but the vocabulary of %d entries %s the entry 'A' and so looks %s. "
                "The tokenizer must treat case as the training of the checkpoint did.",
                self.lower_case,
                len(self._vocabulary),
                "has" if self.lower_case else "lacks",
                "cased" if self.lower_case else "lower-cased",
            )

    def _make_wordpiece_tokenizer(self) -> Any:
        try:
            return _wordpiece_tokenizer(tuple(self._wordpiece_vocabulary()), self._normalizer.maximum_bytes_per_word)
        except RuntimeError as error:
            raise ValueError(
                f"The vocabulary of {self.vocab_size} entries has no entry that a word could match, or cannot be "
                f"searched ({error}). Add words to it, or give the vocab.txt of a BERT checkpoint."
            ) from error

    def _wordpiece_vocabulary(self) -> list[str]:
        """The vocabulary as FastWordpieceTokenizer takes it: no empty entry, none twice, markers for special tokens."""
        entries = []
        for index, token in enumerate(self._vocabulary):
            if token in ("", _SUFFIX_INDICATOR) or self._ids[token] != index:
                # No word can match a stand-in: it starts with a bracket, which is always a word of its own.
                token = f"[\x01{index}]"
            elif self.special_tokens_in_text and token in SPECIAL_TOKEN_MARKERS and token != vocabularies.UNKNOWN_TOKEN:
                token = SPECIAL_TOKEN_MARKERS[token]
            entries.append(token)
        return entries

    @property
    def vocabulary(self) -> list[str]:
        """List of str: a copy of the vocabulary, in the order of the ids."""
        return list(self._vocabulary)

    @property
    def vocab_size(self) -> int:
        """Number of entries of the vocabulary."""
        return len(self._vocabulary)

    @property
    def cls_id(self) -> int:
        """Id of `[CLS]`."""
        return self._ids[vocabularies.CLASSIFICATION_TOKEN]

    @property
    def sep_id(self) -> int:
        """Id of `[SEP]`."""
        return self._ids[vocabularies.SEPARATOR_TOKEN]

    @property
    def pad_id(self) -> int:
        """Id of `[PAD]`."""
        return self._ids[vocabularies.PADDING_TOKEN]

    @property
    def unk_id(self) -> int:
        """Id of `[UNK]`."""
        return self._ids[vocabularies.UNKNOWN_TOKEN]

    @property
    def mask_id(self) -> int | None:
        """Id of `[MASK]`, or None where the vocabulary has none."""
        return self._ids.get(vocabularies.MASK_TOKEN)

    def tokenize(self, texts: Any) -> tf.RaggedTensor | tf.Tensor:
        """Turns texts into wordpiece ids, without `[CLS]` and `[SEP]`.

        Args:
            texts: string tensor, list or array `[batch]`, or one text.

        Returns:
            int32 `RaggedTensor` `[batch, (tokens)]`; for one text an int32 tensor `[tokens]`.

        Raises:
            TypeError: something other than text.
            ValueError: more than one dimension.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
            >>> tokenizer.tokenize("Playing").numpy().tolist()
            [4, 5]
        """
        texts = text_tensor(texts)
        if texts.shape.rank == 0:
            return self.tokenize(texts[tf.newaxis]).values
        return self._wordpiece.tokenize(self._normalizer(texts))

    def tokens(self, texts: Any) -> tf.RaggedTensor | tf.Tensor:
        """Turns texts into wordpieces as strings.

        Args:
            texts: string tensor, list or array `[batch]`, or one text.

        Returns:
            string `RaggedTensor` `[batch, (tokens)]`; for one text a string tensor `[tokens]`.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
            >>> tokenizer.tokens(["Playing", ""]).to_list()
            [[b'play', b'##ing'], []]
        """
        return self.id_to_token(self.tokenize(texts))

    def tokenize_with_offsets(self, texts: Any) -> TokensWithOffsets:
        """Turns texts into wordpiece ids and says where each stands in the original text.

        A token covers the original from the first to the last character that gave at least one character to it;
        `[UNK]` covers its whole word. So an accent that was stripped inside a token is covered, one after a token's
        last character is not, and several tokens may cover one character (one whose decomposition they share).

        Args:
            texts: string tensor, list or array `[batch]`, or one text.

        Returns:
            `TokensWithOffsets` of int32 `RaggedTensor`s `[batch, (tokens)]`; for one text of int32 tensors `[tokens]`.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
            >>> result = tokenizer.tokenize_with_offsets(["Pláying?"])
            >>> result.start_bytes.to_list(), result.end_bytes.to_list(), result.end_characters.to_list()
            ([[0, 5, 8]], [[5, 8, 9]], [[4, 7, 8]])
        """
        texts = text_tensor(texts)
        if texts.shape.rank == 0:
            return TokensWithOffsets(*(part.values for part in self.tokenize_with_offsets(texts[tf.newaxis])))
        origins = normalize_with_origins(texts, self._normalizer)
        token_ids, starts, ends = self._wordpiece.tokenize_with_offsets(origins.texts)
        spans = spans_in_original(origins, starts, ends)
        return TokensWithOffsets(token_ids, *(token_ids.with_values(part) for part in spans))

    def id_to_token(self, ids: Any) -> str | tf.Tensor | tf.RaggedTensor:
        """Looks up the wordpiece of an id, or of every id of a tensor.

        Args:
            ids: int, or list, tensor or `RaggedTensor` of ints.

        Returns:
            str for an int, otherwise a string tensor or `RaggedTensor` of the same shape.

        Raises:
            ValueError: an int that is no id of the vocabulary.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"], lower_case=True)
            >>> tokenizer.id_to_token(5), tokenizer.id_to_token([4, 5]).numpy().tolist()
            ('##ing', [b'play', b'##ing'])
        """
        if isinstance(ids, numbers.Integral):
            if not 0 <= ids < self.vocab_size:
                raise ValueError(f"An id must be from 0 to {self.vocab_size - 1}. Received: {ids}.")
            return self._vocabulary[ids]
        return tf.ragged.map_flat_values(tf.gather, self._tokens, self._integers(ids))

    def token_to_id(self, token: str) -> int:
        """Looks up the id of a wordpiece.

        Args:
            token: str, an entry of the vocabulary.

        Returns:
            Its id as an int; the last one where the vocabulary holds it several times.

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
                "To cut a text into entries, use tokenize(text)."
            )
        return self._ids[token]

    def detokenize(self, ids: Any) -> tf.Tensor:
        """Joins wordpieces to text: `##` pieces to what stands before them, words by spaces.

        `[CLS]`, `[SEP]` and `[PAD]` are left out. What tokenizing lost (case, accents, the spacing of punctuation) does
        not come back: "it's" reads "it ' s".

        Args:
            ids: list, tensor or `RaggedTensor` of ints `[tokens]` or `[batch, tokens]`.

        Returns:
            string tensor, scalar or `[batch]`.

        Raises:
            TypeError: ids that are not integers.
            ValueError: ids of more than two dimensions or of none.

        Example:
            >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "!"], lower_case=True)
            >>> tokenizer.detokenize([[2, 4, 5, 6, 3, 0]]).numpy().tolist()
            [b'playing !']
        """
        ids = self._integers(ids)
        if ids.shape.rank not in (1, 2):
            raise ValueError(f"ids must be of shape [tokens] or [batch, tokens]. Received: shape {ids.shape}.")
        if ids.shape.rank == 1:
            return self.detokenize(ids[tf.newaxis])[0]
        if isinstance(ids, tf.Tensor):
            ids = tf.RaggedTensor.from_tensor(ids)
        unwritten = [self.cls_id, self.sep_id, self.pad_id]
        written = tf.reduce_all(ids.values[:, tf.newaxis] != tf.constant(unwritten, ids.dtype), axis=1)
        kept = tf.ragged.boolean_mask(ids, ids.with_values(written))
        joined = tf.strings.reduce_join(self.id_to_token(kept), axis=-1, separator=" ")
        return tf.strings.regex_replace(joined, f" {_SUFFIX_INDICATOR}", "")

    def _integers(self, ids: Any) -> tf.Tensor | tf.RaggedTensor:
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
                f"Received: {repr(received)[:80]}. To turn text into ids, use tokenize(texts)."
            )
        return ids

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, fit for JSON: dict with the vocabulary as a list of str."""
        return {
            "vocabulary": self.vocabulary,
            "lower_case": self.lower_case,
            "strip_accents": self.strip_accents,
            "special_tokens_in_text": self.special_tokens_in_text,
            "max_characters_per_word": self.max_characters_per_word,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "BertTokenizer":
        """Makes the tokenizer that `get_config` described.

        Args:
            config: dict, from `get_config`.

        Returns:
            BertTokenizer.
        """
        return cls(**config)
