"""What happens to rows that cannot be used: an error that names the place, or a count."""

import reprlib
from collections import Counter

from absl import logging

# Further ones are only counted: a file in another form than expected would fill the log.
_LOGGED_ROWS = 5
_LONGEST_QUOTATION = 80


class BadRowError(ValueError):
    """A row of a file that cannot be used.

    Args:
        file: str or Path. The file.
        line: int. The line on which the row begins, from 1.
        reason: str. What is wrong with the row.

    Example:

    >>> str(BadRowError("train.tsv", 3, "has 1 column instead of 2"))
    'train.tsv, line 3: has 1 column instead of 2'
    """

    def __init__(self, file, line, reason):
        super().__init__(str(file), line, reason)
        self.file = str(file)
        self.line = line
        self.reason = reason

    def __str__(self):
        return f"{self.file}, line {self.line}: {self.reason}"


class BadRows:
    """The policy for rows that cannot be used, and the count of those that were passed over.

    One object may serve several files and several passes over them: a row that is met again is not counted again, for
    a file is read from its beginning to its end.

    Args:
        skip: bool. Whether to pass over such rows; otherwise the first one is an error.

    Example:

    >>> bad_rows = BadRows(skip=True)
    >>> bad_rows.report("train.tsv", 3, "has 1 column instead of 2")
    >>> bad_rows.count, bad_rows.count_by_file
    (1, {'train.tsv': 1})
    """

    def __init__(self, skip=False):
        self.skip = skip
        self._counts = Counter()
        self._last_rows = {}

    @property
    def count(self):
        """int. The rows passed over so far."""
        return self._counts.total()

    @property
    def count_by_file(self):
        """dict of file name to the int number of its rows passed over so far."""
        return dict(self._counts)

    def report(self, file, line, reason, row=None):
        """Takes note of a row that cannot be used.

        Args:
            file: str or Path.
            line: int. The line on which the row begins, from 1.
            reason: str. What is wrong with the row.
            row: int. The number of the row, where several may be on one line; None takes the line for it.

        Raises:
            BadRowError: if such rows are not to be skipped.
        """
        if not self.skip:
            advice = "mend the row, or have such rows skipped (skip_bad_rows)"
            raise BadRowError(file, line, f"{reason}; {advice}") from None
        file, row = str(file), line if row is None else row
        if row <= self._last_rows.get(file, 0):
            return
        self._last_rows[file] = row
        self._counts[file] += 1
        if self.count <= _LOGGED_ROWS:
            logging.warning("skipped a row: %s, line %d: %s", file, line, reason)
        if self.count == _LOGGED_ROWS:
            logging.warning("further rows that are skipped are only counted")

    def log_total(self):
        """Says in the log how many rows of which files were skipped, if any were."""
        for file, count in self._counts.items():
            logging.warning("skipped %d rows of %s", count, file)


def quotation(value):
    """A value from a file, as an error message shows it: escaped, and not at full length.

    Args:
        value: anything.

    Returns:
        str, printable.

    Example:

    >>> quotation("a\\tb")
    "'a\\\\tb'"
    >>> len(quotation("a" * 1000))
    80
    """
    shortening = reprlib.Repr()
    shortening.maxstring = shortening.maxother = _LONGEST_QUOTATION
    return shortening.repr(value)


def plural(number, noun):
    """A number with its noun, as a message counts things.

    Args:
        number: int.
        noun: str. One whose plural ends in s.

    Returns:
        str.

    Example:

    >>> plural(1, "column"), plural(2, "column")
    ('1 column', '2 columns')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
