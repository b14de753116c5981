"""Predictions for a user's own examples, as TSV or JSON Lines."""

import json
import math
import numbers
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from keras_bert.io.atomic_write import atomic_text_file
from keras_bert.io.row_errors import quotation
from keras_bert.typing import PathLike

_FORMAT_BY_SUFFIX = {".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def write_predictions(
    path: PathLike,
    rows: Iterable[Mapping[str, Any]],
    file_format: str | None = None,
    label_separator: str = ",",
    overwrite: bool = False,
) -> int:
    """Writes predictions atomically, one row at a time, in the given order; returns the number of rows.

    Rows are dicts with `line` (int), `label` (str, a list of str, or a number), and in all rows or in none
    `probabilities` (dict of label to float, with the same labels in every row). The columns of a TSV file are `line`,
    `label`, and `probability of <label>` for each label; a JSON Lines file has the dicts. The format is inferred from
    the file name unless given.

    Raises FileExistsError before the first row is requested, and ValueError, with nothing written, if a row has other
    probabilities than the first, a number is not finite, or a label cannot be written as TSV.
    """
    file_format = _FORMAT_BY_SUFFIX.get(Path(path).suffix.lower()) if file_format is None else file_format
    if file_format not in ("tsv", "jsonl"):
        raise ValueError(f"predictions are written as tsv or jsonl; got the path {path} and the format {file_format!r}")
    num_rows, names = 0, None
    with atomic_text_file(path, overwrite) as file:
        for row in rows:
            probabilities = {
                name: _check_finite(value, row["line"]) for name, value in row.get("probabilities", {}).items()
            }
            if names is None:
                names = list(probabilities)
                if file_format == "tsv":
                    file.write(_tsv_line(["line", "label", *(f"probability of {name}" for name in names)]))
            elif list(probabilities) != names:
                raise ValueError(f"line {row['line']} has probabilities of {list(probabilities)}, the first of {names}")
            label = row["label"]
            if isinstance(label, numbers.Real):
                label = _check_finite(label, row["line"])
            if file_format == "tsv":
                file.write(_tsv_line([int(row["line"]), _tsv_label(label, label_separator), *probabilities.values()]))
            else:
                written = {"line": int(row["line"]), "label": label}
                if "probabilities" in row:
                    written["probabilities"] = probabilities
                # Escaped to ASCII: some readers take U+2028, U+0085 and others for line ends.
                file.write(json.dumps(written) + "\n")
            num_rows += 1
        if not num_rows:
            raise ValueError("there are no predictions to write")
    return num_rows


def _check_finite(value: Any, line: int) -> float:
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"line {line} has a number that is not finite: {value}")
    return value


def _tsv_label(label: str | Iterable[str] | float, label_separator: str) -> str | float:
    if isinstance(label, (str, float)):
        return label
    for name in label:
        if label_separator in name:
            raise ValueError(
                f"the label {name!r} contains the separator {label_separator!r}; give another, or write jsonl"
            )
    return label_separator.join(label)


def _tsv_line(values: Iterable[Any]) -> str:
    texts = [str(value) for value in values]
    for text in texts:
        if any(character in text for character in "\t\n\r"):
            raise ValueError(f"{quotation(text)} cannot be written as TSV: it has a tab or a line end; write jsonl")
    return "\t".join(texts) + "\n"
