"""The files of `tools.predict`: rows of texts read one at a time, and rows of predictions written as they come."""

import contextlib
import csv
import gzip
import json
import sys
from pathlib import Path
from typing import NamedTuple

from keras_bert.data.formats.delimited import read_columns
from keras_bert.data.formats.json_lines import read_values
from keras_bert.data.formats.text_lines import check_text, decode_line, numbered_lines
from keras_bert.io.atomic_write import atomic_path
from keras_bert.io.row_errors import quotation

_COUNTED_AT_ONCE = 2**20  # bytes


class Row(NamedTuple):
    """A row of an input file.

    Attributes:
        line: int. The line on which it begins, from 1.
        texts: tuple with a str for each input of the model, or a tuple of str where it takes several.
        kept: tuple of what stands in the columns that are copied to the output.
    """

    line: int
    texts: tuple
    kept: tuple


def read_rows(path, file_format, text_columns, kept_columns, bad_rows):
    """The rows of a file of texts; only one row is in memory at a time.

    Args:
        path: str or Path; decompressed if its name ends in `.gz`.
        file_format: str, "tsv", "csv", "jsonl", or "txt": a text on every line, where an empty line is an empty text.
        text_columns: list with the column of each text, a str. A tuple of columns is an input of several texts a row;
            of a single column, one of lists of texts. Not used for "txt", where the line is the only text.
        kept_columns: list of str. Columns that are copied to the output.
        bad_rows: a `BadRows`, told of rows that cannot be used.

    Returns:
        Iterator of `Row`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file has no rows, or none that can be used, or lacks a column.
        BadRowError: on a bad row, unless `bad_rows` skips it.
    """
    columns = [
        column for of_input in text_columns for column in ([of_input] if isinstance(of_input, str) else of_input)
    ]
    any_row = False
    for line, values in _numbered_values(path, file_format, [*columns, *kept_columns], bad_rows):
        try:
            texts = _texts(text_columns, iter(values))
        except ValueError as error:
            bad_rows.report(path, line, str(error))
        else:
            any_row = True
            yield Row(line, texts, tuple(values[len(columns) :]))
    if not any_row:
        raise ValueError(f"no row of {path} can be used; {bad_rows.count} were skipped, the log has the first ones")


def _texts(text_columns, values):
    """The texts of a row, checked, from an iterator of what stands in their columns."""
    texts = []
    for columns in text_columns:
        if isinstance(columns, str):
            text = next(values)
            check_text(columns, text)
        else:
            text = _several_texts(columns, [next(values) for _ in columns])
        texts.append(text)
    return tuple(texts)


def _several_texts(columns, values):
    if len(columns) == 1:
        (column,), (values,) = columns, values
        if not isinstance(values, list):
            raise ValueError(f"{column!r} must be a list of strings, got {quotation(values)}")
        columns = [f"{column}[{number}]" for number in range(len(values))]
    for column, text in zip(columns, values, strict=True):
        check_text(column, text)
    if not any(values):
        # An empty text is none to the models that take several, which then could not tell how many there are.
        raise ValueError(f"has no text but empty ones where there should be several: {quotation(values)}")
    return tuple(values)


def _numbered_values(path, file_format, columns, bad_rows):
    if file_format == "txt":
        return _read_lines(path, bad_rows)
    if file_format == "jsonl":
        return read_values(path, columns, bad_rows)
    return read_columns(path, columns, file_format, bad_rows)


def _read_lines(path, bad_rows):
    line = 0
    for line, raw in numbered_lines(path):
        try:
            yield line, [decode_line(raw)]
        except ValueError as error:
            bad_rows.report(path, line, str(error))
    if not line:
        raise ValueError(f"{path} has no rows")


def read_chunk(rows, most_rows, most_characters):
    """The next rows.

    Args:
        rows: iterator of `Row`.
        most_rows: int.
        most_characters: int. The row that reaches it is the last one, so that memory is bounded where a text is a book.

    Returns:
        list of `Row`, empty at the end.
    """
    chunk, characters = [], 0
    for row in rows:
        chunk.append(row)
        characters += sum(len(str(value)) for value in (*row.texts, *row.kept))
        if len(chunk) == most_rows or characters >= most_characters:
            break
    return chunk


def count_lines(path):
    """The lines of a file, so that a progress bar knows where the end is.

    Args:
        path: str or Path; decompressed if its name ends in `.gz`.

    Returns:
        int, or None for what can be read only once, such as a pipe.
    """
    path = Path(path)
    if not path.is_file():
        return None
    lines, block = 0, b"\n"
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        while following := file.read(_COUNTED_AT_ONCE):
            lines, block = lines + following.count(b"\n"), following
    return lines + (not block.endswith(b"\n"))


@contextlib.contextmanager
def open_table(path, file_format, columns):
    """Opens a table for writing, which gets its name when it is complete, and is removed after an error.

    Args:
        path: str or Path, compressed if its name ends in `.gz`; "-" is standard output, which cannot be taken back.
        file_format: str. "jsonl", an object on every line; "csv"; or "tsv", which has no quoting, lists of names being
            joined by commas in these two.
        columns: list of str. The names of the columns.

    Yields:
        A function that writes one row, given a list of values: str, numbers, None, or lists of str; for "jsonl" also
        whatever else JSON can hold.

    Raises:
        ValueError: if two columns bear one name; from the function, if a value holds what TSV cannot write.
    """
    repeated = sorted({name for name in columns if columns.count(name) > 1})
    if repeated:
        raise ValueError(f"the output would have more than one column of the name {repeated[0]!r}: {columns}")
    with complete_or_not_at_all(path) as file:
        if file_format == "jsonl":
            yield lambda values: file.write(
                json.dumps(dict(zip(columns, values, strict=True)), ensure_ascii=False) + "\n"
            )
            return
        write = csv.writer(file, lineterminator="\n").writerow if file_format == "csv" else _tsv_writer(file, columns)
        write(columns)
        yield lambda values: write([_as_field(value) for value in values])


def _tsv_writer(file, columns):
    def write(fields):
        fields = [str(field) for field in fields]
        for column, field in zip(columns, fields, strict=True):
            if "\t" in field or "\n" in field or "\r" in field:
                raise ValueError(
                    f"a TSV file cannot hold tabs and line ends, and there is one in {quotation(field)}, column "
                    f"{column!r}; write a .csv or .jsonl file instead, or do not keep that column"
                )
        file.write("\t".join(fields) + "\n")

    return write


def _as_field(value):
    """A value for TSV and CSV."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return ",".join(value)
    if isinstance(value, (list, dict, bool)) or value is None:
        return json.dumps(value, ensure_ascii=False)
    return value


@contextlib.contextmanager
def complete_or_not_at_all(path):
    """Opens a text file for writing, which gets its name when it is complete, and is removed after an error.

    Args:
        path: str or Path, compressed if its name ends in `.gz`; "-" is standard output, which cannot be taken back. A
            file that is there is replaced.

    Yields:
        The open file.
    """
    if str(path) == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(path)
    with (
        atomic_path(path, overwrite=True) as unfinished,
        (gzip.open if path.suffix == ".gz" else open)(unfinished, "wt", encoding="utf-8", newline="") as file,
    ):
        yield file
