"""Examples from a user's own TSV, CSV and JSON Lines files."""

import glob
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS, TRIPLET_COLUMNS
from keras_bert.data.example_stream import Example, ExampleStream
from keras_bert.data.formats.delimited import check_columns, read_columns, read_header
from keras_bert.data.formats.json_lines import read_values
from keras_bert.data.formats.text_lines import check_is_file, check_text
from keras_bert.data.label_values import (
    MULTI_LABEL,
    PROBLEM_TYPES,
    REGRESSION,
    SINGLE_LABEL,
    label_list,
    label_name,
    label_number,
)
from keras_bert.io.row_errors import BadRows, quotation
from keras_bert.typing import PathLike

_FORMAT_BY_SUFFIX = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
FILE_FORMATS = ("tsv", "csv", "jsonl")

Rows = Iterable[tuple[int, list[Any]]]


def read_examples(
    paths: PathLike | Iterable[PathLike],
    text_columns: str | Sequence[str] = "text",
    label_column: str | None = None,
    problem_type: str = SINGLE_LABEL,
    label_separator: str = ",",
    file_format: str | None = None,
    bad_rows: BadRows | None = None,
    known_labels: Collection[str] | None = None,
) -> ExampleStream[Example]:
    """Reads examples from files with named columns.

    TSV has no quoting, as in GLUE; CSV has quotes around values with commas, quotes or line ends; both start with a
    line of column names. JSON Lines has an object on every line. Files are read in order, one row at a time.

    Each example is a dict `{"text", "label", "line"}`, or `{"text_a", "text_b", "label", "line"}` for pairs (with
    `anchor`, `positive` and `negative` for triplets), where `line` is the line on which it starts in its file, from 1.
    An empty text is valid. An empty label makes a row invalid, except in multi-label data, where it means that no label
    applies. Labels are stripped of white space; the JSON labels 1 and true become "1" and "true".

    Args:
        paths: File or files. A path that does not exist may be a glob pattern (`**` for any folders), whose files are
            read in alphabetical order.
        text_columns: Name of the column of texts, or two or three names.
        label_column: Name of the column of labels; None for examples without labels.
        problem_type: One of `PROBLEM_TYPES`: whether a label is a name, several names, or a number.
        label_separator: Separator between labels in a multi-label TSV or CSV file. JSON has lists of labels.
        file_format: "tsv", "csv" or "jsonl". None derives it from the file name, which may end in `.gz`.
        bad_rows: Policy for invalid rows; None raises BadRowError for the first one.
        known_labels: Allowed labels; a row with another label is invalid. None allows all labels.

    Raises FileNotFoundError if there is no such file, and ValueError if a file's format is unknown, or it lacks a
    column or has no rows.
    """
    text_names = _check_text_columns(text_columns, label_column)
    if problem_type not in PROBLEM_TYPES:
        raise ValueError(f"unknown problem_type {problem_type!r}; allowed are {PROBLEM_TYPES}")
    if not label_separator:
        raise ValueError("label_separator must be at least one character, got an empty string")
    columns = text_names if label_column is None else [*text_names, label_column]
    bad_rows = BadRows() if bad_rows is None else bad_rows
    known = None if known_labels is None else frozenset(known_labels)
    readers = []
    for path in find_files(paths):
        path_format = _format_of(path, file_format)
        separator = None if path_format == "jsonl" else label_separator
        parse_label = None if label_column is None else partial(_parse_label, problem_type, separator, known)
        rows: Callable[[], Rows]
        if path_format == "jsonl":
            rows = partial(read_values, path, columns, bad_rows)
        else:
            check_columns(path, read_header(path, path_format), columns)
            rows = partial(read_columns, path, columns, path_format, bad_rows)
        readers.append(partial(_read_file, path, rows, text_names, parse_label, bad_rows))
    return ExampleStream(lambda: (example for read in readers for example in read()), str(paths))


def find_files(paths: PathLike | Iterable[PathLike]) -> list[Path]:
    """Expands local files and glob patterns, in the given order; the files of a pattern are sorted.

    Raises FileNotFoundError if a file does not exist or a pattern matches none, and ValueError for a repeated file.
    """
    found: list[Path] = []
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        if glob.has_magic(str(path)) and not Path(path).exists():
            matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True)) if Path(match).is_file()]
            if not matches:
                raise FileNotFoundError(f"no file matches the pattern {path}")
            found += matches
        else:
            found.append(check_is_file(path))
    repeated = sorted(str(path) for path, count in Counter(found).items() if count > 1)
    if repeated:
        raise ValueError(f"these files would be read more than once: {repeated}")
    if not found:
        raise ValueError("no files are given")
    return found


def text_dict(texts: Sequence[str]) -> dict[str, str]:
    """Names the text of an example, or the texts of a pair or triplet, by the library's column names."""
    names = {len(names): names for names in (TEXT_COLUMNS, PAIR_COLUMNS, TRIPLET_COLUMNS)}
    return dict(zip(names[len(texts)], texts, strict=True))


def _check_text_columns(text_columns: str | Sequence[str], label_column: str | None) -> list[str]:
    names = [text_columns] if isinstance(text_columns, str) else list(text_columns)
    if len(names) not in (1, 2, 3) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"text_columns must be the name of a column, or two or three names; got {text_columns!r}")
    if len({*names, label_column}) != len(names) + 1:
        raise ValueError(f"texts and labels must be in different columns; got {names} and {label_column!r}")
    return names


def _format_of(path: Path, file_format: str | None) -> str:
    if file_format is None:
        suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
        file_format = _FORMAT_BY_SUFFIX.get(suffix.lower())
        if file_format is None:
            raise ValueError(
                f"the format of {path} is unknown: its name ends in none of {list(_FORMAT_BY_SUFFIX)} (with or without "
                f".gz after it); give file_format, one of {FILE_FORMATS}"
            )
    if file_format not in FILE_FORMATS:
        raise ValueError(f"unknown file_format {file_format!r}; allowed are {FILE_FORMATS}")
    return file_format


def _read_file(
    path: Path,
    rows: Callable[[], Rows],
    text_names: list[str],
    parse_label: Callable[[Any], Any] | None,
    bad_rows: BadRows,
) -> Iterator[Example]:
    for line, values in rows():
        texts = values[: len(text_names)]
        try:
            for name, text in zip(text_names, texts, strict=True):
                check_text(name, text)
            labels = {} if parse_label is None else {"label": parse_label(values[-1])}
        except ValueError as error:
            bad_rows.report(path, line, str(error))
        else:
            yield {**text_dict(texts), **labels, "line": line}


def _parse_label(
    problem_type: str, separator: str | None, known_labels: frozenset[str] | None, value: Any
) -> str | list[str] | float:
    if problem_type == REGRESSION:
        return label_number(value)
    label = label_list(value, separator) if problem_type == MULTI_LABEL else label_name(value)
    unknown = {*(label if isinstance(label, list) else [label])} - (known_labels or frozenset())
    if known_labels is not None and unknown:
        raise ValueError(f"the label {quotation(min(unknown))} is unknown; known are {sorted(known_labels)}")
    return label
