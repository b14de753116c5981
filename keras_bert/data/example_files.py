"""Examples from a user's own TSV, CSV and JSON Lines files."""

import functools
import glob
from pathlib import Path

from keras_bert.data.columns import PAIR_COLUMNS, TEXT_COLUMNS
from keras_bert.data.example_stream import ExampleStream
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

_FORMAT_BY_SUFFIX = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
FILE_FORMATS = ("tsv", "csv", "jsonl")


def read_examples(
    paths,
    text_columns="text",
    label_column=None,
    problem_type=SINGLE_LABEL,
    label_separator=",",
    file_format=None,
    bad_rows=None,
    known_labels=None,
):
    """Examples from files that name their columns.

    TSV has no quoting, as in GLUE; CSV has quotes around values that hold commas, quotes or line ends; both begin with
    a line of column names. JSON Lines have an object on every line. Files are read in order and one row at a time.

    Each example has the `line` on which it begins in its file, from 1. An empty text is a text. An empty label is a bad
    row, but for several labels at once, where it means that none applies. Labels are stripped of white space; the JSON
    labels 1 and true become "1" and "true".

    Args:
        paths: str or Path, or a list of them. A path that does not exist may be a glob pattern (`**` for any folders),
            whose files are read in alphabetical order.
        text_columns: str, the name of the column of texts, or a pair of names.
        label_column: str, or None for examples without labels.
        problem_type: str. One of `PROBLEM_TYPES`: whether a label is a name, several names, or a number.
        label_separator: str. What stands between several labels in a TSV or CSV file. In JSON they are a list.
        file_format: str, one of "tsv", "csv" and "jsonl". None goes by the files' names, of which `.gz` may be the end.
        bad_rows: a `BadRows`, told of rows that cannot be used. None takes the first one for an error.
        known_labels: collection of str, or None. A row with a label that is not among them cannot be used.

    Returns:
        `ExampleStream`.

    Raises:
        FileNotFoundError: if one of the files does not exist, or a pattern matches none.
        ValueError: if the format cannot be told by a file's name, a file lacks one of the columns, or has no rows.
        BadRowError: when a bad row is read, unless `bad_rows` skips it.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "train.csv"
    >>> _ = path.write_text('message,category\\n"Hello, you",greeting\\n')
    >>> list(read_examples(path, text_columns="message", label_column="category"))
    [{'text': 'Hello, you', 'label': 'greeting', 'line': 2}]
    """
    text_columns = _checked_text_columns(text_columns, label_column)
    if problem_type not in PROBLEM_TYPES:
        raise ValueError(f"unknown problem_type {problem_type!r}; allowed are {PROBLEM_TYPES}")
    if not label_separator:
        raise ValueError("label_separator must be at least one character, got an empty string")
    columns = [*text_columns, label_column] if label_column is not None else text_columns
    bad_rows = BadRows() if bad_rows is None else bad_rows
    readers = []
    for path in find_files(paths):
        path_format = _format_of(path, file_format)
        separator = None if path_format == "jsonl" else label_separator
        read_label = None if label_column is None else functools.partial(_label, problem_type, separator, known_labels)
        if path_format == "jsonl":
            rows = functools.partial(read_values, path, columns, bad_rows)
        else:
            check_columns(path, read_header(path, path_format), columns)
            rows = functools.partial(read_columns, path, columns, path_format, bad_rows)
        readers.append(functools.partial(_read_file, path, rows, text_columns, read_label, bad_rows))
    return ExampleStream(lambda: (example for read in readers for example in read()), str(paths))


def find_files(paths):
    """The files that a user means.

    Args:
        paths: str or Path, or a list of them; paths of files, or glob patterns.

    Returns:
        list of Path, in the order given, those of a pattern in alphabetical order.

    Raises:
        FileNotFoundError: if one does not exist, or a pattern matches no file.
        ValueError: if there are none, or one of them is given twice.

    Example:

    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.tsv", "a.tsv"):
    ...     _ = (folder / name).write_text("text\\n")
    >>> [path.name for path in find_files(f"{folder}/*.tsv")]
    ['a.tsv', 'b.tsv']
    """
    found = []
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        if glob.has_magic(str(path)) and not Path(path).exists():
            matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True)) if Path(match).is_file()]
            if not matches:
                raise FileNotFoundError(f"no file matches the pattern {path}")
            found += matches
        else:
            found.append(check_is_file(path))
    repeated = sorted({str(path) for path in found if found.count(path) > 1})
    if repeated:
        raise ValueError(f"these files would be read more than once: {repeated}")
    if not found:
        raise ValueError("no files are given")
    return found


def _checked_text_columns(text_columns, label_column):
    names = [text_columns] if isinstance(text_columns, str) else list(text_columns)
    if len(names) not in (1, 2) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"text_columns must be the name of a column, or two names; got {text_columns!r}")
    if len({*names, label_column}) != len(names) + 1:
        raise ValueError(f"texts and labels must stand in different columns; got {names} and {label_column!r}")
    return names


def _format_of(path, file_format):
    if file_format is None:
        suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
        file_format = _FORMAT_BY_SUFFIX.get(suffix.lower())
        if file_format is None:
            raise ValueError(
                f"the format of {path} cannot be told by its name, which ends in none of {list(_FORMAT_BY_SUFFIX)} "
                f"(with or without .gz after it); give file_format, one of {FILE_FORMATS}"
            )
    if file_format not in FILE_FORMATS:
        raise ValueError(f"unknown file_format {file_format!r}; allowed are {FILE_FORMATS}")
    return file_format


def _read_file(path, rows, text_columns, read_label, bad_rows):
    for line, values in rows():
        try:
            example = _texts(text_columns, values[: len(text_columns)])
            if read_label is not None:
                example["label"] = read_label(values[-1])
            example["line"] = line
        except ValueError as error:
            bad_rows.report(path, line, str(error))
        else:
            yield example


def _texts(columns, texts):
    for column, text in zip(columns, texts, strict=True):
        check_text(column, text)
    return dict(zip(TEXT_COLUMNS if len(texts) == 1 else PAIR_COLUMNS, texts, strict=True))


def _label(problem_type, separator, known_labels, value):
    if problem_type == REGRESSION:
        return label_number(value)
    label = label_list(value, separator) if problem_type == MULTI_LABEL else label_name(value)
    unknown = {*(label if isinstance(label, list) else [label])} - {*(known_labels or [])}
    if known_labels is not None and unknown:
        raise ValueError(f"the label {quotation(min(unknown))} is unknown; known are {sorted(known_labels)}")
    return label
