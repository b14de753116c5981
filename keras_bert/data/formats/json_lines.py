"""Objects of JSON Lines files."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from keras_bert.data.formats.text_lines import FilePosition, decode_line, numbered_lines
from keras_bert.io.row_errors import BadRows, quotation
from keras_bert.typing import PathLike


def read_objects(
    path: PathLike, bad_rows: BadRows | None = None, position: FilePosition | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Reads a JSON Lines file as pairs of the line, from 1, and the object on it; empty lines are skipped.

    Raises ValueError for a file without rows.
    """
    bad_rows = BadRows() if bad_rows is None else bad_rows
    is_empty = True
    for number, line in numbered_lines(path, position):
        if not line.strip():
            continue
        is_empty = False
        try:
            value = _parse_object(decode_line(line, offset=None if position is None else position.line_offset))
        except ValueError as error:
            bad_rows.report(path, number, str(error))
        else:
            yield number, value
    if is_empty:
        raise ValueError(f"{path} has no rows")


def read_values(
    path: PathLike, columns: Sequence[str], bad_rows: BadRows | None = None, position: FilePosition | None = None
) -> Iterator[tuple[int, list[Any]]]:
    """Reads the values of some keys, as `read_columns` does for TSV and CSV; an object without a key is invalid."""
    bad_rows = BadRows() if bad_rows is None else bad_rows
    for line, row in read_objects(path, bad_rows, position):
        missing = [column for column in columns if column not in row]
        if missing:
            bad_rows.report(path, line, f"has no {missing[0]!r}; its keys are {quotation(list(row))}")
        else:
            yield line, [row[column] for column in columns]


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, got {quotation(value)}")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
