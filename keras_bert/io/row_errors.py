"""Rows of input files that cannot be used: an error with file and line, or a count of skipped rows."""

import reprlib
from collections import Counter
from typing import Any

from absl import logging

from keras_bert.typing import PathLike

# Further rows are only counted: a file in the wrong format would fill the log.
_MAX_LOGGED_ROWS = 5
_MAX_QUOTED_LENGTH = 80


class BadRowError(ValueError):
    """A row of a file that cannot be used. `line` counts from 1."""

    def __init__(self, file: PathLike, line: int, reason: str) -> None:
        super().__init__(str(file), line, reason)
        self.file = str(file)
        self.line = line
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}"


class BadRows:
    """Policy for rows that cannot be used: raise an error for the first one, or skip and count them.

    One object may serve several files and several passes over them. A row that is reported again is not counted again,
    because files are always read from start to end.
    """

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self._counts: Counter[str] = Counter()
        self._last_rows: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Number of rows skipped so far."""
        return self._counts.total()

    @property
    def count_by_file(self) -> dict[str, int]:
        """Number of rows skipped so far, by file name."""
        return dict(self._counts)

    def report(self, file: PathLike, line: int, reason: str, row: int | None = None) -> None:
        """Reports a row that cannot be used; raises `BadRowError` unless such rows are skipped.

        `line` is the one on which the row starts, from 1; `row` is its index where several rows may be on one line.
        """
        if not self.skip:
            advice = "correct the row, or skip such rows (skip_bad_rows)"
            raise BadRowError(file, line, f"{reason}; {advice}") from None
        file, row = str(file), line if row is None else row
        if row <= self._last_rows.get(file, 0):
            return
        self._last_rows[file] = row
        self._counts[file] += 1
        if self.count <= _MAX_LOGGED_ROWS:
            logging.warning("skipped a row: %s, line %d: %s", file, line, reason)
        if self.count == _MAX_LOGGED_ROWS:
            logging.warning("further skipped rows are only counted")

    def log_total(self) -> None:
        """Logs the number of skipped rows of each file that has any."""
        for file, count in self._counts.items():
            logging.warning("skipped %d rows of %s", count, file)


def quotation(value: Any) -> str:
    """Formats a value from a file for an error message: escaped and abbreviated."""
    abbreviation = reprlib.Repr()
    abbreviation.maxstring = abbreviation.maxother = _MAX_QUOTED_LENGTH
    return abbreviation.repr(value)


def plural(count: int, noun: str) -> str:
    """Formats a count with its noun, whose plural ends in "s", as in "2 columns"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
