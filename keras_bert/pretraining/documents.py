"""Prepared text, one sentence a line and a blank line between documents, to the ids of its tokens."""

from typing import NamedTuple

import numpy as np

COUNTS_OF_TEXT = ("documents", "one_sentence_documents", "tokens", "unknown_tokens")  # of `TokenizedDocuments.counts`
# What is tokenized at once: the tokenizer holds some 25 times as many bytes for a moment.
_LINES_AT_ONCE, _CHARACTERS_AT_ONCE = 4096, 1 << 20


class TokenizedDocuments(NamedTuple):
    """Documents of sentences of tokens.

    Args:
        token_ids: int32 array [tokens], of all documents one after the other.
        documents: list of lists of int. For each document the positions at which its sentences begin, and then that at
            which the last one ends.
    """

    token_ids: np.ndarray
    documents: list

    def counts(self, unknown_id):
        """How many there are of what.

        Args:
            unknown_id: int, the id of [UNK].

        Returns:
            dict of int: `documents`, `one_sentence_documents` (of which no sentence follows another), `tokens`, and
            `unknown_tokens`.
        """
        return {
            "documents": len(self.documents),
            "one_sentence_documents": sum(len(document) == 2 for document in self.documents),
            "tokens": len(self.token_ids),
            "unknown_tokens": int(np.count_nonzero(self.token_ids == unknown_id)),
        }


def tokenize_documents(lines, tokenize):
    """Tokenizes lines of prepared text.

    Source: the reading of `create_training_instances` in google-research/bert `create_pretraining_data.py`: a line
    without tokens is no sentence, a document without sentences is left out.

    Args:
        lines: iterable of str. A line of nothing but white space ends a document.
        tokenize: function of a list of str that gives their ids as a RaggedTensor, such as `BertTokenizer.tokenize`.

    Returns:
        `TokenizedDocuments`.

    Example:

    >>> tokenizer = keras_bert.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"], lower_case=True)
    >>> tokenize_documents(["a b", "b", "", "a"], tokenizer.tokenize)
    TokenizedDocuments(token_ids=array([4, 5, 5, 4], dtype=int32), documents=[[0, 2, 3], [3, 4]])
    """
    parts, documents, position = [], [[0]], 0
    for batch in _batches(lines):
        tokens = tokenize(batch)
        parts.append(tokens.flat_values.numpy())
        for line, length in zip(batch, tokens.row_lengths().numpy().tolist(), strict=True):
            if not line:
                documents.append([position])
            elif length:
                position += length
                documents[-1].append(position)
    token_ids = np.concatenate(parts) if parts else np.zeros([0], "int32")
    return TokenizedDocuments(token_ids, [document for document in documents if len(document) > 1])


def _batches(lines):
    batch, characters = [], 0
    for line in lines:
        batch.append(line.strip())
        characters += len(line)
        if len(batch) == _LINES_AT_ONCE or characters >= _CHARACTERS_AT_ONCE:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
