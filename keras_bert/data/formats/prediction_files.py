"""Predictions for a user's own examples, as TSV or JSON Lines."""

import json
import math
import numbers
from pathlib import Path

from keras_bert.io.atomic_write import atomic_text_file
from keras_bert.io.row_errors import quotation

_FORMAT_BY_SUFFIX = {".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def write_predictions(path, rows, file_format=None, label_separator=",", overwrite=False):
    """Writes predictions one row at a time, in the order in which they come; the file appears when it is whole.

    A TSV file has the columns `line` and `label`, and, if the rows have probabilities, one named
    `probability of <label>` for each label. A line of a JSON Lines file has the keys `line`, `label` and
    `probabilities`, an object.

    Args:
        path: str or Path. The file to write.
        rows: iterable of dicts: `line` (int), `label` (str, a list of str, or a number), and in all rows or in none
            `probabilities` (dict of label to float, with the same labels in every row).
        file_format: str, "tsv" or "jsonl". None goes by the file's name.
        label_separator: str. What stands between several labels in a TSV file; read them again with the same one.
        overwrite: bool. Whether a file of that name may be replaced.

    Returns:
        int, the number of rows.

    Raises:
        FileExistsError: if there is a file and it may not be replaced; before a row is asked for.
        ValueError: if the format is unknown, a row has other probabilities than the first, a number is not finite, or a
            label cannot be written in TSV. The file is then not written.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "predictions.tsv"
    >>> write_predictions(path, [{"line": 0, "label": "good", "probabilities": {"bad": 0.25, "good": 0.75}}])
    1
    >>> path.read_text()
    'line\\tlabel\\tprobability of bad\\tprobability of good\\n0\\tgood\\t0.25\\t0.75\\n'
    """
    file_format = _FORMAT_BY_SUFFIX.get(Path(path).suffix.lower()) if file_format is None else file_format
    if file_format not in ("tsv", "jsonl"):
        raise ValueError(f"predictions are written as tsv or jsonl; got the path {path} and the format {file_format!r}")
    count, names = 0, None
    with atomic_text_file(path, overwrite) as file:
        for row in rows:
            probabilities = _probabilities(row)
            if count == 0:
                names = list(probabilities)
                if file_format == "tsv":
                    file.write(_tsv_line(["line", "label", *(f"probability of {name}" for name in names)]))
            elif list(probabilities) != names:
                raise ValueError(f"line {row['line']} has probabilities of {list(probabilities)}, the first of {names}")
            file.write(_tsv_row(row, probabilities, label_separator) if file_format == "tsv" else _json_row(row))
            count += 1
        if count == 0:
            raise ValueError("there are no predictions to write")
    return count


def _probabilities(row):
    return {name: _finite(value, row) for name, value in row.get("probabilities", {}).items()}


def _finite(value, row):
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"line {row['line']} has a number that is not finite: {value}")
    return value


def _json_row(row):
    written = {"line": int(row["line"]), "label": _json_label(row)}
    if "probabilities" in row:
        written["probabilities"] = _probabilities(row)
    # Escaped to ASCII: some readers of lines take U+2028, U+0085 and the like for line ends.
    return json.dumps(written) + "\n"


def _json_label(row):
    label = row["label"]
    return _finite(label, row) if isinstance(label, numbers.Real) else label


def _tsv_row(row, probabilities, label_separator):
    return _tsv_line([int(row["line"]), _tsv_label(row, label_separator), *probabilities.values()])


def _tsv_label(row, label_separator):
    label = row["label"]
    if isinstance(label, numbers.Real):
        return _finite(label, row)
    if isinstance(label, str):
        return label
    for name in label:
        if label_separator in name:
            raise ValueError(
                f"the label {name!r} holds the separator {label_separator!r}; give another, or write jsonl"
            )
    return label_separator.join(label)


def _tsv_line(values):
    values = [str(value) for value in values]
    for value in values:
        if any(character in value for character in "\t\n\r"):
            raise ValueError(
                f"{quotation(value)} cannot be written in TSV, for it holds a tab or a line end; write jsonl"
            )
    return "\t".join(values) + "\n"
