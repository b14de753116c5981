"""Tagged sentences tokenized once: windows of ids, and the position at which each word is read."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.data.tokenized_examples import NO_LABEL, TokenizedExamples, flatten_rows
from keras_bert.text.word_preprocessor import BertWordPreprocessor

# Sequences tokenized at once: enough to keep all cores busy, few enough that their text takes little memory.
_CHUNK_SIZE = 1024


class TokenizedSentences(NamedTuple):
    """Windows of sentences, and the positions at which their words are read."""

    windows: TokenizedExamples  # rows `[CLS] window [SEP]`; labels, if any, are those of tokens
    lengths: np.ndarray  # int [sentences]: the number of words of each
    word_windows: np.ndarray  # int [words of all sentences]: the row in which a word is read
    word_positions: np.ndarray  # int [words of all sentences]: its position in that row

    def split_by_sentence(self, values: np.ndarray) -> list[np.ndarray]:
        """Splits an array [words of all sentences, ...] into one array per sentence."""
        return np.split(values, np.cumsum(self.lengths)[:-1])


def tokenize_sentences(
    sentences: Iterable[Sequence[str]],
    preprocessor: BertWordPreprocessor,
    labels: Sequence[Sequence[int]] | None = None,
    documents: Sequence[int] | None = None,
) -> TokenizedSentences:
    """Tokenizes sentences, each as a sequence of its own, or those of a document together.

    `labels` has a label for each word of each sentence. `documents` has the document number of each sentence:
    consecutive sentences of the same document are read with the text around them, up to the model's length (paper,
    section 5.3: "the maximal document context").
    """
    sentences = list(sentences)
    if not sentences:
        raise ValueError("there are no sentences")
    lengths = np.array([len(words) for words in sentences], "int64")
    if labels is not None:
        _check_labels(labels, lengths)
    if documents is not None and len(documents) != len(sentences):
        raise ValueError(f"`documents` needs a number for each sentence; got {len(documents)} for {len(sentences)}")
    parts, num_rows = [], 0
    sequences = _join_documents(sentences, documents)
    while chunk := list(itertools.islice(sequences, _CHUNK_SIZE)):
        prepared = preprocessor(tf.ragged.constant(chunk, tf.string, ragged_rank=1, inner_shape=()))
        rows = flatten_rows(prepared.inputs, preprocessor.tokenizer.vocab_size)
        parts.append((*rows, prepared.windows.numpy() + num_rows, prepared.positions.numpy()))
        num_rows += len(rows[1])
    ids, row_lengths, first_segments, word_windows, word_positions = map(np.concatenate, zip(*parts, strict=True))
    token_labels = None
    if labels is not None:
        token_labels = np.full(len(ids), NO_LABEL, "int32")
        row_starts = np.cumsum(row_lengths) - row_lengths
        token_labels[row_starts[word_windows] + word_positions] = list(itertools.chain.from_iterable(labels))
    windows = TokenizedExamples(
        ids, row_lengths, first_segments, labels=token_labels, pad_id=preprocessor.tokenizer.pad_id
    )
    return TokenizedSentences(windows, lengths, word_windows, word_positions)


def _check_labels(labels: Sequence[Sequence[int]], lengths: np.ndarray) -> None:
    num_labels = np.array([len(sentence_labels) for sentence_labels in labels], "int64")
    if len(num_labels) != len(lengths):
        raise ValueError(f"each sentence needs a list of labels; got {len(num_labels)} lists for {len(lengths)}")
    wrong = np.flatnonzero(num_labels != lengths)
    if len(wrong):
        row = wrong[0]
        raise ValueError(
            f"each word needs a label; sentence {row} has {lengths[row]} words and {num_labels[row]} labels"
        )


def _join_documents(sentences: Sequence[Sequence[str]], documents: Sequence[int] | None) -> Iterator[Sequence[str]]:
    """Yields the words to be read together, of a sentence or a document, in order."""
    if documents is None:
        yield from sentences
        return
    pairs = zip(documents, sentences, strict=True)
    for _, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        yield [word for _, words in group for word in words]
