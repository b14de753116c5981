"""Fixtures and checks shared by the tests of data."""

import pytest
import tensorflow as tf

from keras_bert.io.row_errors import BadRowError, BadRows
from keras_bert.text.tokenizer import BertTokenizer
from keras_bert.text.vocabulary import load_vocabulary

# Texts that `str.strip`, `str.splitlines` or the quoting of CSV would change.
HOSTILE_TEXTS = [
    'a "quoted" word',
    '"',
    '""',
    "'",
    "a,b;c",
    "\u2028",
    "\u0085",
    " spaces ",
    "",
    "naïve 😀",
    "\\t",
    "\x0b\x1f",
]


@pytest.fixture(scope="session")
def uncased(shared):
    """The tokenizer of the released uncased models."""
    return BertTokenizer(load_vocabulary(shared / "data" / "vocab" / "bert-base-uncased-vocab.txt"), lower_case=True)


def assert_bad_row(read, message, line, kept):
    """Checks that `read` reports an invalid row, and that it can skip the row and keep the others."""
    with pytest.raises(BadRowError, match=message) as caught:
        list(read(BadRows()))
    bad_rows = BadRows(skip=True)
    assert list(read(bad_rows)) == kept
    assert (caught.value.line, bad_rows.count) == (line, 1)


def saved_and_restored(dataset, position, path):
    """Returns a new iterator that was restored from one saved after `position` elements."""
    iterator, restored = iter(dataset), iter(dataset)
    for _ in range(position):
        next(iterator)
    tf.train.Checkpoint(iterator=restored).read(tf.train.Checkpoint(iterator=iterator).write(str(path)))
    return restored
