"""Texts as a caller may write them, as named columns."""

from collections.abc import Mapping

import numpy as np

from keras_bert.data.formats.text_lines import is_encodable
from keras_bert.io.row_errors import quotation

TEXT_COLUMNS = ("text",)
PAIR_COLUMNS = ("text_a", "text_b")


def text_columns(x):
    """The texts in `x` as columns, or None if `x` holds no texts.

    Args:
        x: a list or array of strings (single texts), a tuple of two of them (pairs), or a dict with `text`, or with
            `text_a` and `text_b`. Anything else is taken for something other than texts.

    Returns:
        dict of column name to NumPy object array of strings, or None.

    Raises:
        ValueError: if there are no texts, or the two columns of pairs differ in length.
        TypeError: if some of the items are not strings.

    Example:

    >>> list(text_columns(["a text", "another"]))
    ['text']
    >>> list(text_columns((["a question"], ["an answer"])))
    ['text_a', 'text_b']
    >>> text_columns({"token_ids": np.zeros([1, 2])}) is None
    True
    """
    if isinstance(x, Mapping):
        if set(x) not in ({*TEXT_COLUMNS}, {*PAIR_COLUMNS}):
            return None
        columns = {name: text_column(values, name) for name, values in x.items()}
    elif isinstance(x, tuple) and len(x) == 2 and all(_holds_strings(values) for values in x):
        columns = {name: text_column(values, name) for name, values in zip(PAIR_COLUMNS, x, strict=True)}
    elif _holds_strings(x):
        columns = {"text": text_column(x, "text")}
    else:
        return None
    lengths = {name: len(values) for name, values in columns.items()}
    if not all(lengths.values()):
        raise ValueError(f"there are no texts; the lengths are {lengths}")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"text_a and text_b must have the same number of texts, got {lengths}")
    return columns


def text_column(values, name):
    """Texts as an array, after checking that they are several and not a single one, which would be parted into letters.

    Args:
        values: list, array or other iterable of str, or of bytes.
        name: str, what error messages call the texts.

    Returns:
        NumPy object array [texts].

    Raises:
        ValueError: if it is a single text, has another shape than [texts], or UTF-8 cannot encode a text.
        TypeError: if one is not a string.

    Example:

    >>> text_column(["a text", b"another"], "texts").tolist()
    ['a text', b'another']
    >>> text_column("a text", "texts")
    Traceback (most recent call last):
    ValueError: texts must be a list of texts, got a single one; write ['a text']
    """
    if isinstance(values, (str, bytes)):
        raise ValueError(f"{name} must be a list of texts, got a single one; write [{quotation(values)}]")
    if hasattr(values, "__iter__") and not hasattr(values, "__len__"):
        values = list(values)
    values = np.asarray(values, dtype=object)
    if values.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, a text for each example; got the shape {values.shape}")
    for i, value in enumerate(values):
        if not isinstance(value, (str, bytes)):
            raise TypeError(f"{name}[{i}] must be a string, got {value!r} ({type(value).__name__})")
        if isinstance(value, str) and not is_encodable(value):
            raise ValueError(f"{name}[{i}] holds half of a surrogate pair, which UTF-8 cannot encode: {value!r}")
    return values


def _holds_strings(values):
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        return False
    if hasattr(values, "dtype"):
        values = np.asarray(values)
        return values.dtype.kind in "UST" or (values.dtype.kind == "O" and _any_string(values.flat))
    return isinstance(values, list) and (not values or _any_string(values))


def _any_string(values):
    # Any, not the first: a missing text among texts is to be named, not taken for something else than texts.
    return any(isinstance(value, (str, bytes)) for value in values)
