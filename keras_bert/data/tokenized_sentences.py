"""Tagged sentences that were tokenized once, as windows of ids with the place at which each of their words is read."""

import itertools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.data.tokenized_examples import NO_LABEL, TokenizedExamples, flatten_rows

# Sequences tokenized at once: enough to keep all cores busy, few enough that their text takes no memory to speak of.
_CHUNK_SIZE = 1024


class TokenizedSentences(NamedTuple):
    """Windows of sentences, and where their words are read.

    Args:
        windows: `TokenizedExamples` of `[CLS] window [SEP]`, one row each; labels, where there are any, are those of
            tokens.
        lengths: int array [sentences], the words of each.
        word_windows: int array [words of all sentences], the row in which a word is read.
        word_places: int array [words of all sentences], its place there.

    Example:

    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "in", "paris"], lower_case=True)
    >>> tokenized = tokenize_sentences([["In", "Paris"]], keras_bert.BertWordPreprocessor(tokenizer), [[0, 1]])
    >>> tokenized.windows.labels.tolist(), tokenized.word_places.tolist()
    ([-1, 0, 1, -1], [1, 2])
    """

    windows: TokenizedExamples
    lengths: np.ndarray
    word_windows: np.ndarray
    word_places: np.ndarray

    def of_sentences(self, values):
        """Values of words, as those of each sentence.

        Args:
            values: array [words of all sentences, ...].

        Returns:
            list of arrays, one for each sentence.
        """
        return np.split(values, np.cumsum(self.lengths)[:-1])


def tokenize_sentences(sentences, preprocessor, labels=None, documents=None):
    """Tokenizes sentences, each of which is a sequence of its own, or those of a document together.

    Args:
        sentences: list of lists of str, the words.
        preprocessor: a `BertWordPreprocessor`.
        labels: list of lists of int, the number of each word's label; or None.
        documents: list of int, which document each sentence is of, the same for sentences that follow one another: they
            are read with the text around them, as far as the model's length goes (paper, section 5.3: "the maximal
            document context"). None reads every sentence by itself.

    Returns:
        `TokenizedSentences`.

    Raises:
        ValueError: if there are no sentences, other numbers of labels than of words, or of documents than of sentences.

    Example: as for `TokenizedSentences`.
    """
    sentences = list(sentences)
    if not sentences:
        raise ValueError("there are no sentences")
    lengths = np.array([len(words) for words in sentences], "int64")
    if labels is not None:
        _check_labels(labels, lengths)
    if documents is not None and len(documents) != len(sentences):
        raise ValueError(
            f"`documents` says of every sentence which document it is of; got {len(documents)} for {len(sentences)} "
            "sentences"
        )
    parts, rows = [], 0
    sequences = _sequences(sentences, documents)
    while chunk := list(itertools.islice(sequences, _CHUNK_SIZE)):
        prepared = preprocessor(tf.ragged.constant(chunk, tf.string, ragged_rank=1, inner_shape=()))
        ids, row_lengths, first_segments = flatten_rows(prepared.inputs, preprocessor.tokenizer.vocab_size)
        parts.append((ids, row_lengths, first_segments, prepared.windows.numpy() + rows, prepared.positions.numpy()))
        rows += len(row_lengths)
    ids, row_lengths, first_segments, word_windows, word_places = map(np.concatenate, zip(*parts, strict=True))
    of_tokens = None
    if labels is not None:
        of_tokens = np.full(len(ids), NO_LABEL, "int32")
        begin = np.cumsum(row_lengths) - row_lengths
        of_tokens[begin[word_windows] + word_places] = [label for of_sentence in labels for label in of_sentence]
    windows = TokenizedExamples(
        ids,
        row_lengths,
        first_segments,
        labels=of_tokens,
        pad_id=preprocessor.tokenizer.pad_id,
    )
    return TokenizedSentences(windows, lengths, word_windows, word_places)


def _check_labels(labels, lengths):
    numbers = np.array([len(of_sentence) for of_sentence in labels], "int64")
    if len(numbers) != len(lengths):
        raise ValueError(f"every sentence must have its labels; got {len(numbers)} lists of them for {len(lengths)}")
    wrong = np.flatnonzero(numbers != lengths)
    if len(wrong):
        row = wrong[0]
        raise ValueError(
            f"every word must have a label; sentence {row} has {lengths[row]} words and {numbers[row]} labels"
        )


def _sequences(sentences, documents):
    """The words that are read together, sentence by sentence or document by document, in order."""
    if documents is None:
        yield from sentences
        return
    pairs = zip(documents, sentences, strict=True)
    for _, of_document in itertools.groupby(pairs, key=lambda pair: pair[0]):
        yield [word for _, words in of_document for word in words]
