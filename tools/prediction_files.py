"""Input and output files of `tools.predict`, both processed row by row."""

import collections
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
from tools.parquet_tables import count_rows, open_parquet_table, read_parquet

_BLOCK_BYTES = 2**20


class Row(NamedTuple):
    """A row of an input file."""

    line: int  # the line on which the row begins, from 1; in Parquet the number of the row
    texts: tuple  # a str for each input of the model, or a tuple of str for an input that takes several
    kept: tuple  # values of the columns that are copied to the output


def read_rows(path, file_format, text_columns, kept_columns, bad_rows):
    """Reads a file of texts row by row; yields `Row`s.

    `text_columns` has a column name for each input, or a tuple of names for an input that takes several texts per row;
    a tuple of one name is a column of lists.
    """
    columns = [name for names in text_columns for name in ([names] if isinstance(names, str) else names)]
    is_empty = True
    for line, values in _read_values(path, file_format, [*columns, *kept_columns], bad_rows):
        try:
            texts = _collect_texts(text_columns, iter(values))
        except ValueError as error:
            bad_rows.report(path, line, str(error))
        else:
            is_empty = False
            yield Row(line, texts, tuple(values[len(columns) :]))
    if is_empty:
        raise ValueError(f"{path} has no valid row; {bad_rows.count} were skipped, see the log for the first ones")


def _collect_texts(text_columns, values):
    """Checks and groups the texts of a row, from an iterator over the values of their columns."""
    texts = []
    for columns in text_columns:
        if isinstance(columns, str):
            text = next(values)
            check_text(columns, text)
        else:
            text = _collect_several(columns, [next(values) for _ in columns])
        texts.append(text)
    return tuple(texts)


def _collect_several(columns, values):
    if len(columns) == 1:
        (column,), (values,) = columns, values
        if not isinstance(values, list):
            raise ValueError(f"{column!r} must be a list of strings, got {quotation(values)}")
        columns = [f"{column}[{number}]" for number in range(len(values))]
    for column, text in zip(columns, values, strict=True):
        check_text(column, text)
    if not any(values):  # empty texts are padding to the models that take several
        raise ValueError(f"needs at least one text that is not empty, got {quotation(values)}")
    return tuple(values)


def _read_values(path, file_format, columns, bad_rows):
    if file_format == "txt":
        return _read_lines(path, bad_rows)
    if file_format == "jsonl":
        return read_values(path, columns, bad_rows)
    if file_format == "parquet":
        return read_parquet(path, columns)
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


def read_chunk(rows, max_rows, max_characters):
    """Returns the next rows; empty at the end. The row that reaches `max_characters` is the last, to bound the memory
    where a text is a book."""
    chunk, num_characters = [], 0
    for row in rows:
        chunk.append(row)
        num_characters += sum(len(str(value)) for value in (*row.texts, *row.kept))
        if len(chunk) == max_rows or num_characters >= max_characters:
            break
    return chunk


def count_lines(path, file_format=None):
    """Counts the lines of a file, or the rows of a Parquet file, for a progress bar; None for what can be read only
    once, such as a pipe."""
    path = Path(path)
    if not path.is_file():
        return None
    if file_format == "parquet":
        return count_rows(path)
    num_lines, block = 0, b"\n"
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        while next_block := file.read(_BLOCK_BYTES):
            num_lines, block = num_lines + next_block.count(b"\n"), next_block
    return num_lines + (not block.endswith(b"\n"))


@contextlib.contextmanager
def open_table(path, file_format, columns, schema=None):
    """Opens a table for writing. The file appears under its name when it is complete, and not at all after an error.

    A Parquet file needs a schema of these columns.
    """
    duplicates = sorted(name for name, count in collections.Counter(columns).items() if count > 1)
    if duplicates:
        raise ValueError(f"the output would have more than one column named {duplicates[0]!r}: {columns}")
    if file_format == "parquet":
        with open_parquet_table(path, schema) as write:
            yield write
        return
    with open_output(path) as file:
        if file_format == "jsonl":
            yield lambda values: file.write(
                # Parquet has dates and decimals, which JSON has not.
                json.dumps(dict(zip(columns, values, strict=True)), ensure_ascii=False, default=str) + "\n"
            )
            return
        write = csv.writer(file, lineterminator="\n").writerow if file_format == "csv" else _tsv_writer(file, columns)
        write(columns)
        yield lambda values: write([_format_field(value) for value in values])


def _tsv_writer(file, columns):
    def write(fields):
        fields = [str(field) for field in fields]
        for column, field in zip(columns, fields, strict=True):
            if "\t" in field or "\n" in field or "\r" in field:
                raise ValueError(
                    f"TSV cannot hold tabs and line breaks, and column {column!r} has one in {quotation(field)}; write "
                    "a .csv or .jsonl file instead, or do not keep that column"
                )
        file.write("\t".join(fields) + "\n")

    return write


def _format_field(value):
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return ",".join(value)
    if isinstance(value, (list, dict, bool)) or value is None:
        return json.dumps(value, ensure_ascii=False)
    return value


@contextlib.contextmanager
def open_output(path):
    """Opens a text file that appears under its name when the block ends without an error, replacing an existing file.
    It is compressed if the name ends in `.gz`; "-" is standard output."""
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
