"""Choice of the wordpieces that a smaller vocabulary keeps."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from keras_bert.io.special_tokens import SPECIAL_TOKENS
from keras_bert.text.tokenizer import BertTokenizer

_TEXTS_AT_ONCE = 4096
_SUFFIX_INDICATOR = "##"


def count_wordpieces(tokenizer: BertTokenizer, texts: Iterable[str]) -> np.ndarray:
    """Counts how often texts use each wordpiece: int64 [vocab_size]."""
    counts, texts = np.zeros(tokenizer.vocab_size, "int64"), iter(texts)
    while chunk := list(itertools.islice(texts, _TEXTS_AT_ONCE)):
        counts += np.bincount(tokenizer.tokenize(chunk).flat_values.numpy(), minlength=len(counts))
    return counts


def choose_wordpieces(
    tokenizer: BertTokenizer,
    texts: Iterable[str],
    vocab_size: int | None = None,
    min_count: int = 1,
    keep_first: int = 0,
) -> list[int]:
    """Chooses the wordpieces of a smaller vocabulary, the most frequent ones in some texts.

    Special tokens are always kept, and so are the characters of all wordpieces that occur or are kept, at the start of
    words and as continuations, so that words of these characters never become [UNK]. WordPiece takes the longest match,
    so a text whose wordpieces are all kept is split into the same wordpieces by the smaller vocabulary.

    Args:
        tokenizer: has the vocabulary.
        texts: texts whose wordpieces are counted.
        vocab_size: number of wordpieces to keep; None keeps all that occur often enough.
        min_count: wordpieces that occur less often are not kept.
        keep_first: number of ids from which on wordpieces must occur. Those below are kept even if the texts do not use
            them: published vocabularies are sorted by frequency, so that their first words are the general ones. Unused
            entries and rare characters are not kept.

    Returns:
        The ids to keep, ascending.

    Raises:
        ValueError: if `vocab_size` is too small for what is always kept.

    Example:

    >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##a", "##b", "ab", "aba", "bb"]
    >>> kept = choose_wordpieces(BertTokenizer(vocabulary, lower_case=True), ["ab ab"])
    >>> [vocabulary[index] for index in kept]
    ['[PAD]', '[UNK]', '[CLS]', '[SEP]', 'a', 'b', '##a', '##b', 'ab']
    """
    vocabulary = tokenizer.vocabulary
    counts = count_wordpieces(tokenizer, texts)
    ids = {wordpiece: index for index, wordpiece in enumerate(vocabulary)}
    bodies = [wordpiece.removeprefix(_SUFFIX_INDICATOR) for wordpiece in vocabulary]
    kept = {ids[token] for token in SPECIAL_TOKENS if token in ids}

    first = [index for index in range(keep_first) if len(bodies[index]) > 1 and not vocabulary[index].startswith("[")]
    for index in {*first, *np.flatnonzero(counts).tolist()}:
        pieces = (piece for character in bodies[index] for piece in (character, _SUFFIX_INDICATOR + character))
        kept |= {ids[piece] for piece in pieces if piece in ids}
    kept |= set(first)
    if vocab_size is not None and len(kept) > vocab_size:
        raise ValueError(
            f"vocab_size={vocab_size} is too small: {len(kept)} wordpieces are always kept (special tokens, characters "
            f"and, with keep_first={keep_first}, {len(first)} others)"
        )
    frequent = [index for index in np.argsort(-counts, kind="stable").tolist() if counts[index] >= max(min_count, 1)]
    others = [index for index in frequent if index not in kept]
    return sorted([*kept, *others[: None if vocab_size is None else vocab_size - len(kept)]])
