"""A caller's texts - lists, tuples, dicts, pandas Series and DataFrames - as named columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from keras_bert.data.formats.text_lines import is_encodable
from keras_bert.io.row_errors import quotation

TEXT_COLUMNS = ("text",)
PAIR_COLUMNS = ("text_a", "text_b")
TRIPLET_COLUMNS = ("anchor", "positive", "negative")


def to_mapping(x: Any) -> Any:
    """Converts a DataFrame to a dict of lists and a Series to a list, without importing pandas; keeps anything else."""
    if hasattr(x, "iloc") and hasattr(x, "columns"):
        return {str(name): x[name].tolist() for name in x.columns}
    return x.tolist() if hasattr(x, "iloc") and hasattr(x, "tolist") else x


def text_columns(x: Any) -> dict[str, np.ndarray] | None:
    """Returns the texts in `x` as object arrays by column name, or None if `x` holds no texts.

    Texts are a list, array or Series of strings (single texts); a tuple of two of them, a list of pairs of strings, or
    an array [pairs, 2] (pairs); or a dict or DataFrame with `text`, or with `text_a` and `text_b`. A tuple of any other
    length than two is read as a list. Raises ValueError if the two columns of pairs differ in length, or a single text
    is given instead of a list, and TypeError if some items are not strings.
    """
    x = to_mapping(x)
    if isinstance(x, tuple) and len(x) != 2:  # two texts could be meant as a pair
        x = list(x)
    elif getattr(x, "ndim", None) == 2 and x.shape[1] == 2:
        x = tuple(np.asarray(x).T)
    if isinstance(x, Mapping):
        names = next((names for names in (TEXT_COLUMNS, PAIR_COLUMNS) if set(x) == set(names)), None)
        if names is None:
            return None
        columns = {name: text_column(x[name], name) for name in names}
    elif isinstance(x, tuple) and len(x) == 2 and all(_holds_strings(to_mapping(values)) for values in x):
        columns = {name: text_column(values, name) for name, values in zip(PAIR_COLUMNS, x, strict=True)}
    elif isinstance(x, (str, bytes)) or _holds_strings(x):
        columns = {"text": text_column(x, "text")}
    elif isinstance(x, list) and all(_is_pair(item) for item in x):
        columns = {
            name: text_column(values, name) for name, values in zip(PAIR_COLUMNS, zip(*x, strict=True), strict=True)
        }
    else:
        return None
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"text_a and text_b must have the same number of texts, got {lengths}")
    return columns


def text_column(values: Iterable[str | bytes], name: str) -> np.ndarray:
    """Checks str or UTF-8 bytes, which error messages call `name`, and returns them as an object array [texts].

    A single text is refused: it would be split into letters.
    """
    values = to_mapping(values)
    if isinstance(values, (str, bytes)):
        raise ValueError(f"{name} must be a list of texts, got a single one; pass [{quotation(values)}]")
    if hasattr(values, "__iter__") and not hasattr(values, "__len__"):
        values = list(values)
    array = np.asarray(values, dtype=object)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, a text per example; got the shape {array.shape}")
    for i, value in enumerate(array):
        if not isinstance(value, (str, bytes)):
            raise TypeError(f"{name}[{i}] must be a string, got {value!r} ({type(value).__name__})")
        if isinstance(value, str) and not is_encodable(value):
            raise ValueError(f"{name}[{i}] holds half of a surrogate pair, which UTF-8 cannot encode: {value!r}")
    return array


def _is_pair(item: Any) -> bool:
    return isinstance(item, (tuple, list)) and len(item) == 2 and all(isinstance(part, (str, bytes)) for part in item)


def _holds_strings(values: Any) -> bool:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        return False
    if hasattr(values, "dtype"):
        values = np.asarray(values)
        return values.dtype.kind in "UST" or (values.dtype.kind == "O" and _any_string(values.flat))
    return isinstance(values, list) and (not values or _any_string(values))


def _any_string(values: Iterable[Any]) -> bool:
    # Any item, not only the first: a missing text among texts must be reported as such.
    return any(isinstance(value, (str, bytes)) for value in values)
