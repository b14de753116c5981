"""Tokenization of prepared text: one sentence per line and a blank line between documents."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

COUNT_NAMES = ("documents", "one_sentence_documents", "tokens", "unknown_tokens")  # keys of `TokenizedDocuments.counts`
# Limits of one call of the tokenizer, which briefly needs about 25 times as many bytes.
_LINES_PER_CALL, _CHARACTERS_PER_CALL = 4096, 1 << 20


class TokenizedDocuments(NamedTuple):
    """Token ids of all documents, int32 `[tokens]`, and per document the starts of its sentences and its end."""

    token_ids: np.ndarray
    documents: list[list[int]]

    def counts(self, unknown_id: int) -> dict[str, int]:
        """Counts documents, documents of one sentence, tokens and unknown tokens."""
        return {
            "documents": len(self.documents),
            "one_sentence_documents": sum(len(document) == 2 for document in self.documents),
            "tokens": len(self.token_ids),
            "unknown_tokens": int(np.count_nonzero(self.token_ids == unknown_id)),
        }


def tokenize_documents(lines: Iterable[str], tokenize: Callable[[list[str]], tf.RaggedTensor]) -> TokenizedDocuments:
    """Tokenizes lines of prepared text; lines and documents without tokens are left out.

    Source: `create_training_instances` in google-research/bert `create_pretraining_data.py`.
    """
    token_ids, documents, position = [np.zeros([0], "int32")], [[0]], 0
    for batch in _batch_lines(lines):
        tokens = tokenize(batch)
        token_ids.append(tokens.flat_values.numpy())
        for line, length in zip(batch, tokens.row_lengths().numpy().tolist(), strict=True):
            if not line:
                documents.append([position])
            elif length:
                position += length
                documents[-1].append(position)
    return TokenizedDocuments(np.concatenate(token_ids), [document for document in documents if len(document) > 1])


def _batch_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    num_characters = 0
    for line in lines:
        batch.append(line.strip())
        num_characters += len(line)
        if len(batch) == _LINES_PER_CALL or num_characters >= _CHARACTERS_PER_CALL:
            yield batch
            batch, num_characters = [], 0
    if batch:
        yield batch
