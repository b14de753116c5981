"""Rows of TSV and CSV files, their columns found by name."""

import csv
import itertools

from keras_bert.data.formats.text_lines import decode_line, is_encodable, numbered_lines
from keras_bert.io.row_errors import BadRowError, BadRows, plural, quotation

# Longer than any example of text: a field beyond it is a quote that was never closed.
_LONGEST_CSV_FIELD = 2**24


def read_columns(path, columns, file_format="tsv", bad_rows=None, header=None):
    """The values of some columns, row by row; only one row is in memory at a time.

    In a TSV file there is no quoting: a quote is a character, and a value holds neither tabs nor line feeds. A CSV file
    has commas, and quotes around values that hold commas, quotes (written twice) or line ends. An empty line is no row,
    but in a TSV file of one column it is an empty value.

    Args:
        path: str or Path. A UTF-8 file, with or without a byte order mark; decompressed if its name ends in `.gz`.
        columns: list of str. The names of the columns wanted.
        file_format: str. "tsv" or "csv".
        bad_rows: a `BadRows`, told of rows that have another number of columns than the header, are not UTF-8 or hold
            NUL characters. None takes the first one for an error.
        header: list of str, the names of the columns of a file without a header. None reads them from the first line.

    Returns:
        Iterator of `(line, values)`: the line on which the row begins, from 1, and a list of str, one for each of
        `columns`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file has no rows, lacks one of the columns or names one twice, or a quote in a CSV file is
            not closed.
        BadRowError: on a bad row, unless `bad_rows` skips it.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "train.tsv"
    >>> _ = path.write_text("id\\ttext\\tlabel\\n7\\ta \\"text\\"\\tgood\\n")
    >>> list(read_columns(path, ["label", "text"]))
    [(2, ['good', 'a "text"'])]
    """
    bad_rows = BadRows() if bad_rows is None else bad_rows
    rows = _rows(path, file_format)
    names = _read_header(path, rows) if header is None else list(header)
    positions = _positions(path, names, columns)
    any_row = False
    for line, fields, reason in rows:
        if fields == [] or (fields == [""] and len(names) > 1):
            continue
        any_row = True
        if reason is None and len(fields) != len(names):
            reason = f"has {plural(len(fields), 'column')} instead of {len(names)} ({', '.join(names)})"
        if reason is None:
            yield line, [fields[position] for position in positions]
        else:
            bad_rows.report(path, line, reason)
    if not any_row:
        raise ValueError(_no_rows(path))


def read_header(path, file_format="tsv"):
    """The names of a file's columns, once it is known that rows follow.

    Args:
        path: str or Path.
        file_format: str. "tsv" or "csv".

    Returns:
        list of str.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if there is no header, no row after it, or a name stands twice in it.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "train.csv"
    >>> _ = path.write_text('text,"the label"\\na,b\\n')
    >>> read_header(path, "csv")
    ['text', 'the label']
    """
    rows = _rows(path, file_format)
    names = _read_header(path, rows)
    if next(rows, None) is None:
        raise ValueError(_no_rows(path))
    return names


def check_columns(path, names, columns):
    """Raises if a file lacks a column.

    Args:
        path: str or Path. The file, for the message.
        names: list of str. The columns that it has.
        columns: list of str. The columns that are wanted.

    Raises:
        ValueError: if one is missing; the message says which columns there are.

    Example:

    >>> check_columns("train.tsv", ["sentence", "label"], ["text"])
    Traceback (most recent call last):
    ValueError: train.tsv has no column 'text'; its columns are ['sentence', 'label']
    """
    for column in columns:
        if column not in names:
            raise ValueError(f"{path} has no column {column!r}; its columns are {names}")


def _positions(path, names, columns):
    check_columns(path, names, columns)
    return [names.index(column) for column in columns]


def _no_rows(path):
    return f"{path} has no rows"


def _read_header(path, rows):
    _line, names, reason = next(rows, (1, None, "there is nothing in the file"))
    if reason is None and not any(names):
        reason = "it is empty"
    if reason is not None:
        raise ValueError(f"{path} has no header, for its first line cannot be read: {reason}")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"{path} has more than one column of the name {quotation(repeated[0])}; its columns are {names}"
        )
    return names


def _rows(path, file_format):
    """Iterator of `(line, fields, None)`, or `(line, None, reason)` where the row cannot be read."""
    readers = {"tsv": _tsv_rows, "csv": _csv_rows}
    if file_format not in readers:
        raise ValueError(f"unknown file_format {file_format!r}; with columns there are {sorted(readers)}")
    return readers[file_format](path)


def _tsv_rows(path):
    for line, raw in numbered_lines(path):
        try:
            yield line, decode_line(raw).split("\t"), None
        except ValueError as error:
            yield line, None, str(error)


def _csv_rows(path):
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CSV_FIELD))
    # Bytes that are not UTF-8 become halves of surrogate pairs, which valid UTF-8 never gives: they are found again in
    # the fields, when it is known to which row they belong.
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
                # Never skipped: nobody knows which rows were lost.
                reason = f"a quote is not closed where it should be ({error}, at line {reader.line_num})"
                raise BadRowError(path, line, reason) from error
            if "new-line character" in str(error):
                yield line, None, "holds a carriage return outside of quotes"
            else:
                yield line, None, f"is not valid CSV ({error}); is a quote inside of quotes not written twice?"
        else:
            reason = next(filter(None, map(_why_unusable, fields)), None)
            yield line, fields if reason is None else None, reason


def _why_unusable(field):
    if "\0" in field:
        return "holds a NUL character; is the file UTF-16, or damaged?"
    if not field.isascii() and not is_encodable(field):
        return f"is not UTF-8: {quotation(field)}"
    return None
