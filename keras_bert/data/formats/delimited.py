"""Rows of TSV and CSV files, with columns found by name."""

import csv
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from keras_bert.data.formats.text_lines import decode_line, is_encodable, numbered_lines
from keras_bert.io.row_errors import BadRowError, BadRows, plural, quotation
from keras_bert.typing import PathLike

# Longer than any example of text: a longer field is a quote that was never closed.
_MAX_CSV_FIELD = 2**24

# The line on which a row starts, and its fields, or the reason why it cannot be read.
_Row = tuple[int, list[str] | None, str | None]


def read_columns(
    path: PathLike,
    columns: Sequence[str],
    file_format: str = "tsv",
    bad_rows: BadRows | None = None,
    header: Sequence[str] | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """Reads some columns of a file, row by row, as pairs of the line on which the row starts, from 1, and the values.

    A TSV file has no quoting: a quote is a character, and a value has no tabs or line feeds. A CSV file has commas, and
    quotes around values with commas, quotes (doubled) or line ends. Empty lines are skipped, but in a TSV file with one
    column they are empty values. A byte order mark is skipped, and a `.gz` file is decompressed.

    A row is invalid if its number of columns differs from the header's, it has NUL characters, or it is not UTF-8.
    Raises ValueError if the file has no rows, lacks a column or repeats one, or a CSV quote is not closed. `header` has
    the names of the columns of a file without a header.
    """
    bad_rows = BadRows() if bad_rows is None else bad_rows
    rows = _read_rows(path, file_format)
    names = _read_names(path, rows) if header is None else list(header)
    check_columns(path, names, columns)
    position_of = {name: position for position, name in reversed([*enumerate(names)])}  # the first of a name
    positions = [position_of[column] for column in columns]
    is_empty = True
    for line, fields, reason in rows:
        if fields == [] or (fields == [""] and len(names) > 1):
            continue
        is_empty = False
        if fields is not None and len(fields) != len(names):
            reason = f"has {plural(len(fields), 'column')} instead of {len(names)} ({', '.join(names)})"
        if reason is not None:
            bad_rows.report(path, line, reason)
        elif fields is not None:
            yield line, [fields[position] for position in positions]
    if is_empty:
        raise ValueError(f"{path} has no rows")


def read_header(path: PathLike, file_format: str = "tsv") -> list[str]:
    """Reads the names of a file's columns; raises ValueError if there is no header, or no row after it."""
    rows = _read_rows(path, file_format)
    names = _read_names(path, rows)
    if next(rows, None) is None:
        raise ValueError(f"{path} has no rows")
    return names


def check_columns(path: PathLike, names: Sequence[str], columns: Sequence[str]) -> None:
    """Raises ValueError if one of `columns` is not among the `names` of a file's columns."""
    known = set(names)
    for column in columns:
        if column not in known:
            raise ValueError(f"{path} has no column {column!r}; its columns are {names}")


def _read_names(path: PathLike, rows: Iterator[_Row]) -> list[str]:
    _line, names, reason = next(rows, (1, None, "the file is empty"))
    if names is None or not any(names):
        raise ValueError(f"{path} has no header; its first line cannot be read: {reason or 'it is empty'}")
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ValueError(f"{path} has several columns with the name {quotation(repeated[0])}; its columns are {names}")
    return names


def _read_rows(path: PathLike, file_format: str) -> Iterator[_Row]:
    readers = {"tsv": _read_tsv, "csv": _read_csv}
    if file_format not in readers:
        raise ValueError(f"unknown file_format {file_format!r}; formats with columns are {sorted(readers)}")
    return readers[file_format](path)


def _read_tsv(path: PathLike) -> Iterator[_Row]:
    for line, raw in numbered_lines(path):
        try:
            yield line, decode_line(raw).split("\t"), None
        except ValueError as error:
            yield line, None, str(error)


def _read_csv(path: PathLike) -> Iterator[_Row]:
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_CSV_FIELD))
    # Invalid bytes become halves of surrogate pairs, which valid UTF-8 never contains: they are found again in the
    # fields, when it is known to which row they belong.
    lines = (raw.decode("utf-8", "surrogateescape") for _, raw in numbered_lines(path))
    reader = csv.reader(lines, strict=True)
    for _ in itertools.count():
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if reader.line_num > line:
                # Never skipped: it is unknown which rows were lost.
                reason = f"a quote is not closed where it should be ({error}, at line {reader.line_num})"
                raise BadRowError(path, line, reason) from error
            if "new-line character" in str(error):
                yield line, None, "has a carriage return outside of quotes"
            else:
                yield line, None, f"is not valid CSV ({error}); is a quote within quotes not doubled?"
        else:
            reasons = filter(None, map(_find_problem, fields))
            problem = next(reasons, None)
            yield line, fields if problem is None else None, problem


def _find_problem(field: str) -> str | None:
    if "\0" in field:
        return "holds a NUL character; is the file UTF-16, or damaged?"
    return None if is_encodable(field) else f"is not UTF-8: {quotation(field)}"
