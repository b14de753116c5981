import csv
import gzip
import json

import pytest

from keras_bert.io.row_errors import BadRowError, BadRows
from tools.predict import _INPUT_FORMATS, infer_format
from tools.prediction_files import Row, count_lines, open_table, read_chunk, read_rows


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "txt", "tsv.gz", "jsonl.gz"])
def test_reads_every_format(tmp_path, suffix):
    texts = ["good film", 'the "plot"', "", "naïve\u2028ly"]
    content = {
        "tsv": "id\ttext\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(texts)),
        "csv": "id,text\n" + "".join(f'{i},"{text.replace(chr(34), chr(34) * 2)}"\n' for i, text in enumerate(texts)),
        "jsonl": "".join(json.dumps({"id": str(i), "text": text}) + "\n" for i, text in enumerate(texts)),
        "txt": "\n".join(texts),
    }[suffix.removesuffix(".gz")].encode()
    path = tmp_path / f"in.{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    file_format = infer_format(str(path), None, _INPUT_FORMATS, "--format")
    kept = [] if file_format == "txt" else ["id"]
    rows = list(read_rows(path, file_format, ["text"], kept, BadRows()))
    assert [row.texts for row in rows] == [(text,) for text in texts]
    assert [row.kept for row in rows] == [(str(i),) if kept else () for i in range(len(texts))]
    first = 1 if file_format in ("jsonl", "txt") else 2
    assert [row.line for row in rows] == list(range(first, first + len(texts)))
    assert count_lines(path) == rows[-1].line


@pytest.mark.parametrize(
    "name, content, reason",
    [
        ("in.tsv", b"id\ttext\n1\tgood\nx\n3\tbad\n", "line 3: has 1 column instead of 2"),
        ("in.csv", b"id,text\n1,good\n2,a,b\n3,bad\n", "line 3: has 3 columns instead of 2"),
        ("in.jsonl", b'\n{"text": "good"}\n{"text": 7}\n{"text": "bad"}\n', "line 3: 'text' must be a string, got 7"),
        ("in.jsonl", b'\n{"text": "good"}\n{"txt": ""}\n{"text": "bad"}\n', "line 3: has no 'text'; its keys are"),
        ("in.jsonl", b'\n{"text": "good"}\n{"text": "\\ud800"}\n{"text": "bad"}\n', "line 3: .* surrogate"),
        ("in.txt", b"\ngood\n\xff\nbad\n", "line 3: is not UTF-8"),
    ],
)
def test_bad_rows_are_errors_or_skipped(tmp_path, name, content, reason):
    path, file_format = tmp_path / name, name.removeprefix("in.")
    path.write_bytes(content)
    with pytest.raises(BadRowError, match=f"{name}, {reason}"):
        list(read_rows(path, file_format, ["text"], [], BadRows()))
    bad_rows = BadRows(skip=True)
    rows = [row for row in read_rows(path, file_format, ["text"], [], bad_rows) if row.texts != ("",)]
    assert [(row.line, *row.texts) for row in rows] == [(2, "good"), (4, "bad")]
    assert bad_rows.count == 1


def test_reads_several_texts_per_row(tmp_path):
    rows = [{"prompt": "a", "choices": ["b", "", "ü"], "id": 7}, {"prompt": "", "choices": ["c"], "id": None}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = list(read_rows(tmp_path / "in.jsonl", "jsonl", ["prompt", ("choices",)], ["id"], BadRows()))
    assert found == [(1, ("a", ("b", "", "ü")), (7,)), (2, ("", ("c",)), (None,))]
    (tmp_path / "in.csv").write_text('first,prompt,second\nb,a,"c,d"\n,a,e\n')
    found = list(read_rows(tmp_path / "in.csv", "csv", [("first", "second"), "prompt"], ["second"], BadRows()))
    assert found == [(2, (("b", "c,d"), "a"), ("c,d",)), (3, (("", "e"), "a"), ("e",))]


@pytest.mark.parametrize(
    "choices, reason",
    [
        ("good", "'choices' must be a list of strings, got 'good'"),
        (["good", 7], r"'choices\[1\]' must be a string, got 7"),
        (["\ud800"], r"'choices\[0\]' holds half of a surrogate pair"),
        ([], r"needs at least one text that is not empty, got \[\]"),
        (["", ""], "needs at least one text"),
    ],
)
def test_invalid_lists_of_texts_are_bad_rows(tmp_path, choices, reason):
    path, columns = tmp_path / "in.jsonl", ["prompt", ("choices",)]
    path.write_text("".join(json.dumps({"prompt": "a", "choices": each}) + "\n" for each in (["b", "c"], choices)))
    with pytest.raises(BadRowError, match=f"in.jsonl, line 2: {reason}"):
        list(read_rows(path, "jsonl", columns, [], BadRows()))
    bad_rows = BadRows(skip=True)
    assert [row.line for row in read_rows(path, "jsonl", columns, [], bad_rows)] == [1]
    assert bad_rows.count == 1


@pytest.mark.parametrize(
    "name, content", [("in.tsv", "text\n"), ("in.csv", "text\n"), ("in.jsonl", "\n"), ("in.txt", "")]
)
def test_rejects_files_without_rows(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"{name} has no rows"):
        list(read_rows(tmp_path / name, name.removeprefix("in."), ["text"], [], BadRows()))
    (tmp_path / "in.txt").write_bytes(b"\xff\n\xff\n")
    with pytest.raises(ValueError, match=r"in\.txt has no valid row; 2 were skipped"):
        list(read_rows(tmp_path / "in.txt", "txt", ["text"], [], BadRows(skip=True)))


def test_writes_every_format(tmp_path):
    columns, rows = ["line", "text", "labels", "value"], [[2, 'a "b", c', ["x", "y"], 0.5], [3, "ü", [], 1e-30]]
    for file_format in ("tsv", "csv", "jsonl", "tsv.gz"):
        with open_table(tmp_path / f"out.{file_format}", file_format.removesuffix(".gz"), columns) as write:
            for row in rows:
                write(row)
    fields = [columns, ["2", 'a "b", c', "x,y", "0.5"], ["3", "ü", "", "1e-30"]]
    assert [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()] == fields
    assert gzip.decompress((tmp_path / "out.tsv.gz").read_bytes()) == (tmp_path / "out.tsv").read_bytes()
    with open(tmp_path / "out.csv", newline="") as file:
        assert list(csv.reader(file)) == fields
    with open(tmp_path / "out.jsonl") as file:
        assert [json.loads(line) for line in file] == [dict(zip(columns, row, strict=True)) for row in rows]


def test_tsv_rejects_line_breaks(tmp_path):
    with (
        pytest.raises(ValueError, match=r"column 'text' has one in .*; write a \.csv"),
        open_table(tmp_path / "out.tsv", "tsv", ["text"]) as write,
    ):
        write(["two\nlines"])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="more than one column named 'line'"):
        open_table(tmp_path / "out.tsv", "tsv", ["line", "line"]).__enter__()


def test_chunks_are_bounded_by_rows_and_characters():
    rows = iter([Row(i, ("x" * length,), ()) for i, length in enumerate([1, 1, 1, 1, 9, 1])])
    chunks = iter(lambda: read_chunk(rows, 3, 10), [])
    assert [[row.line for row in chunk] for chunk in chunks] == [[0, 1, 2], [3, 4], [5]]
