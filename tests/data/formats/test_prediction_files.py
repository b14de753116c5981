import json

import pytest

from keras_bert.data.formats.delimited import read_columns
from keras_bert.data.formats.prediction_files import write_predictions

ROWS = [
    {"line": 0, "label": "good", "probabilities": {"bad": 0.1, "good": 0.9}},
    {"line": 1, "label": "bad", "probabilities": {"bad": 1 / 3 * 2, "good": 1 / 3}},
]


def test_writes_tsv(tmp_path):
    path = tmp_path / "predictions.tsv"
    assert write_predictions(path, iter(ROWS)) == 2
    columns = ["line", "label", "probability of good"]
    assert [values for _, values in read_columns(path, columns)] == [["0", "good", "0.9"], ["1", "bad", str(1 / 3)]]


def test_writes_json_lines(tmp_path):
    path = tmp_path / "predictions.jsonl"
    rows = [*ROWS, {"line": 2, "label": "a\u2028\t\"'", "probabilities": {"bad": 0, "good": 1}}]
    assert write_predictions(path, rows) == 3
    assert path.read_bytes().isascii()
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows


def test_writes_lists_and_numbers(tmp_path):
    rows = [{"line": 0, "label": ["a", "b"]}, {"line": 1, "label": []}]
    write_predictions(tmp_path / "several.tsv", rows, label_separator="|")
    assert (tmp_path / "several.tsv").read_text() == "line\tlabel\n0\ta|b\n1\t\n"
    write_predictions(tmp_path / "several.jsonl", rows)
    assert (tmp_path / "several.jsonl").read_text() == '{"line": 0, "label": ["a", "b"]}\n{"line": 1, "label": []}\n'
    write_predictions(tmp_path / "scores.txt", [{"line": 0, "label": 2.5}], file_format="tsv")
    assert (tmp_path / "scores.txt").read_text() == "line\tlabel\n0\t2.5\n"


@pytest.mark.parametrize(
    "rows, message",
    [
        ([], "there are no predictions"),
        ([{"line": 0, "label": "a\tb"}], r"'a\\tb' cannot be written as TSV.*; write jsonl"),
        ([{"line": 0, "label": "a\nb"}], "cannot be written as TSV"),
        ([{"line": 0, "label": ["a,b"]}], "the label 'a,b' contains the separator ','"),
        ([{"line": 3, "label": float("nan")}], "line 3 has a number that is not finite: nan"),
        ([{"line": 0, "label": "a", "probabilities": {"a": float("inf")}}], "not finite: inf"),
        ([ROWS[0], {"line": 1, "label": "a"}], r"line 1 has probabilities of \[\], the first of \['bad', 'good'\]"),
        ([ROWS[0], {"line": 1, "label": "a", "probabilities": {"good": 1, "bad": 0}}], "line 1 has probabilities of"),
        ([{"line": 0, "label": "\ud800"}], "surrogates not allowed"),
    ],
)
def test_invalid_predictions_leave_no_file(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        write_predictions(tmp_path / "predictions.tsv", rows)
    assert not list(tmp_path.iterdir())


def test_checks_the_path_before_the_first_row(tmp_path):
    rows = (pytest.fail("no row may be read") for _ in range(1))
    (tmp_path / "predictions.tsv").write_text("mine")
    with pytest.raises(FileExistsError):
        write_predictions(tmp_path / "predictions.tsv", rows)
    message = r"written as tsv or jsonl; got the path .*predictions.csv and the format None"
    with pytest.raises(ValueError, match=message):
        write_predictions(tmp_path / "predictions.csv", rows)
    assert (tmp_path / "predictions.tsv").read_text() == "mine"
