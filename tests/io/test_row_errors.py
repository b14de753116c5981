import pickle

import pytest
from absl import logging

from keras_bert.io.row_errors import BadRowError, BadRows, quotation


def test_raises_an_error_for_the_first_row():
    bad_rows = BadRows()
    with pytest.raises(BadRowError, match=r"^train.tsv, line 7: the label is empty; correct the row, or") as caught:
        bad_rows.report("train.tsv", 7, "the label is empty")
    assert (caught.value.file, caught.value.line, bad_rows.count) == ("train.tsv", 7, 0)
    assert isinstance(caught.value, ValueError)


def test_the_error_survives_pickling():
    error = pickle.loads(pickle.dumps(BadRowError("a.tsv", 2, "why")))
    assert (str(error), error.line, error.reason) == ("a.tsv, line 2: why", 2, "why")


def test_counts_skipped_rows_once_over_all_passes():
    bad_rows = BadRows(skip=True)
    for _ in range(3):
        bad_rows.report("a.tsv", 2, "why")
        bad_rows.report("a.tsv", 5, "why")
        bad_rows.report("b.tsv", 2, "why")
    assert bad_rows.count == 3
    assert bad_rows.count_by_file == {"a.tsv": 2, "b.tsv": 1}


def test_logs_only_the_first_rows(monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", lambda message, *values: logged.append(message % values))
    bad_rows = BadRows(skip=True)
    for line in range(2, 100):
        bad_rows.report("a.tsv", line, "why")
    assert len(logged) == 6
    assert logged[0] == "skipped a row: a.tsv, line 2: why"
    bad_rows.log_total()
    assert logged[6:] == ["skipped 98 rows of a.tsv"]


@pytest.mark.parametrize("value", ["\ud800\t\n\0\u2028" * 100, ["a" * 1000] * 1000, {"a": "b" * 1000}, 10**1000, None])
def test_quotations_are_short_and_printable(value):
    assert len(quotation(value)) < 600
    assert quotation(value).isprintable()
