"""Objects of JSON Lines files."""

import json

from keras_bert.data.formats.text_lines import decode_line, numbered_lines
from keras_bert.io.row_errors import BadRows, quotation


def read_objects(path, bad_rows=None, place=None):
    """The objects of a JSON Lines file, one after the other; empty lines hold none.

    Args:
        path: str or Path. A UTF-8 file with a JSON object on every line; decompressed if its name ends in `.gz`.
        bad_rows: a `BadRows`, told of lines that hold something else. None takes the first one for an error.
        place: a `FilePlace`, brought up to date with every line, or None.

    Returns:
        Iterator of `(int, dict)`, the number of the line, from 1, and the object.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file has no rows.
        BadRowError: on a bad row, unless `bad_rows` skips it.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "train.jsonl"
    >>> _ = path.write_text('{"text": "a", "label": 1}\\n')
    >>> list(read_objects(path))
    [(1, {'text': 'a', 'label': 1})]
    """
    bad_rows = BadRows() if bad_rows is None else bad_rows
    any_row = False
    for number, line in numbered_lines(path, place):
        if not line.strip():
            continue
        any_row = True
        try:
            value = _parse(decode_line(line, offset=place and place.line_offset))
        except ValueError as error:
            bad_rows.report(path, number, str(error))
        else:
            yield number, value
    if not any_row:
        raise ValueError(f"{path} has no rows")


def read_values(path, columns, bad_rows=None, place=None):
    """The values of some keys of a JSON Lines file's objects: what `read_columns` is for TSV and CSV.

    Args:
        path, bad_rows, place: as for `read_objects`; an object without one of the keys is a bad row.
        columns: list of str. The keys.

    Returns:
        Iterator of `(int, list)`, the number of the line, from 1, and the values in the order of the keys.

    Raises:
        FileNotFoundError, ValueError, BadRowError: as for `read_objects`.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "train.jsonl"
    >>> _ = path.write_text('{"text": "a", "label": 1}\\n')
    >>> list(read_values(path, ["label", "text"]))
    [(1, [1, 'a'])]
    """
    bad_rows = BadRows() if bad_rows is None else bad_rows
    for line, row in read_objects(path, bad_rows, place):
        missing = [column for column in columns if column not in row]
        if missing:
            bad_rows.report(path, line, f"has no {missing[0]!r}; its keys are {quotation(list(row))}")
        else:
            yield line, [row[column] for column in columns]


def _parse(text):
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, got {quotation(value)}")
    return value


def _refuse_constant(name):
    raise ValueError(f"{name} is no JSON number")
