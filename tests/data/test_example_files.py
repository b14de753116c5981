import csv
import json
import tracemalloc

import pytest

from keras_bert.data.example_files import find_files, read_examples
from keras_bert.data.label_values import discover_labels
from keras_bert.io.row_errors import BadRows
from tests.data.conftest import HOSTILE_TEXTS, assert_bad_row

LINES_AND_TABS = ["two\nlines", "two\r\nlines", "a,\rb", "tab\there", "\n\n"]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def content(examples):
    """Returns the examples without the numbers of their lines."""
    return [{name: value for name, value in example.items() if name != "line"} for example in examples]


def write_rows(path, texts):
    if path.suffix == ".tsv":
        return write(path, "label\ttext\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(texts)))
    if path.suffix == ".csv":
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("label", "text"), *enumerate(texts)])
        return path
    rows = [json.dumps({"label": i, "text": text}, ensure_ascii=i % 2 == 0) for i, text in enumerate(texts)]
    return write(path, "\n".join(rows))


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.ndjson"])
def test_all_formats_give_the_same_examples(tmp_path, name):
    texts = (
        HOSTILE_TEXTS if name == "a.tsv" else [*HOSTILE_TEXTS, *LINES_AND_TABS, *(["a\0b"] if "json" in name else [])]
    )
    path = write_rows(tmp_path / name, texts)
    examples = read_examples(path, label_column="label")
    expected = [{"text": text, "label": str(i)} for i, text in enumerate(texts)]
    assert content(examples) == content(examples) == expected
    assert discover_labels(examples) == [str(i) for i in range(len(texts))]
    assert content(read_examples(str(path), label_column="label", problem_type="regression")) == [
        {"text": text, "label": float(i)} for i, text in enumerate(texts)
    ]


def test_reads_pairs_and_examples_without_labels(tmp_path):
    path = write(tmp_path / "pairs.tsv", "id\thypothesis\tpremise\n1\tb\ta\n")
    assert content(read_examples(path, ("premise", "hypothesis"))) == [{"text_a": "a", "text_b": "b"}]
    assert content(read_examples(path, ["hypothesis"], "id")) == [{"text": "b", "label": "1"}]


def test_reads_several_labels_per_example(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tlabels\na\tx, y\nb\t\nc\tz\n")
    arguments = {"label_column": "labels", "problem_type": "multi_label_classification"}
    expected = [["x", "y"], [], ["z"]]
    assert [example["label"] for example in read_examples(path, **arguments)] == expected
    path = write(tmp_path / "b.csv", "text,labels\na,x|y\nb,\nc,z\n")
    assert [example["label"] for example in read_examples(path, label_separator="|", **arguments)] == expected
    path = write(tmp_path / "c.jsonl", '{"text": "a", "labels": ["x,y", 1]}\n{"text": "b", "labels": []}\n')
    assert [example["label"] for example in read_examples(path, **arguments)] == [["x,y", "1"], []]


@pytest.mark.parametrize(
    "row, reason",
    [
        (
            '{"text": "a\\ud800", "label": "x"}',
            "'text' holds half of a surrogate pair or bytes that are not UTF-8: 'a.ud800'",
        ),
        ('{"text": 3, "label": "x"}', "'text' must be a string, got 3"),
        ('{"text": ["a"], "label": "x"}', r"'text' must be a string, got \['a'\]"),
        ('{"label": "x", "txt": "a"}', r"has no 'text'; its keys are \['label', 'txt'\]"),
        ('{"text": "a"}', "has no 'label'"),
        ('{"text": "a", "label": null}', "the label must be a string or a number, got None"),
        ('"text"', "must be a JSON object"),
    ],
)
def test_reports_an_invalid_json_row(tmp_path, row, reason):
    rows = ['{"text": "good", "label": true}', row, '{"text": "\\ud83d\\ude00", "label": 1}']
    path = write(tmp_path / "a.jsonl", "\n".join(rows))
    kept = [{"text": "good", "label": "true", "line": 1}, {"text": "😀", "label": "1", "line": 3}]
    message = rf"a.jsonl, line 2: {reason}.*; correct the row"
    assert_bad_row(lambda bad_rows: read_examples(path, label_column="label", bad_rows=bad_rows), message, 2, kept)


@pytest.mark.parametrize(
    "label, arguments, reason",
    [
        (" ", {}, "the label is empty"),
        ("", {"problem_type": "regression"}, "the label must be a finite number, got ''"),
        ("a,,b", {"problem_type": "multi_label_classification"}, "the label is empty"),
        ("ugly", {"known_labels": ["1", "bad"]}, r"the label 'ugly' is unknown; known are \['1', 'bad'\]"),
    ],
)
def test_reports_an_invalid_label(tmp_path, label, arguments, reason):
    path = write(tmp_path / "a.tsv", f"text\tlabel\ngood\t1\nbad\t{label}\n")

    def lines(bad_rows):
        return [example["line"] for example in read_examples(path, "text", "label", bad_rows=bad_rows, **arguments)]

    assert_bad_row(lines, f"a.tsv, line 3: {reason}", 3, [2])


def test_expands_files_and_patterns(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "b.tsv").mkdir()
    for name in ("inner/2.tsv", "1.tsv", "3.tsv"):
        write(tmp_path / name, f"text\n{name}\n")
    write(tmp_path / "4.csv", "other,text\nx,4.csv\n")
    write(tmp_path / "odd[1].tsv", "text\nodd\n")

    def texts(paths):
        return [example["text"] for example in read_examples(paths)]

    assert texts([tmp_path / "4.csv", tmp_path / "3.tsv"]) == ["4.csv", "3.tsv"]
    assert texts(f"{tmp_path}/?.tsv") == ["1.tsv", "3.tsv"]
    assert texts(f"{tmp_path}/**/?.tsv") == ["1.tsv", "3.tsv", "inner/2.tsv"]
    assert texts(tmp_path / "odd[1].tsv") == ["odd"]
    with pytest.raises(FileNotFoundError, match=r"no file matches the pattern .*\*.txt"):
        find_files(tmp_path / "*.txt")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*5.tsv"):
        find_files([tmp_path / "1.tsv", tmp_path / "5.tsv"])
    names = ["1.tsv", "3.tsv", "4.csv", "3.tsv", "1.tsv", "3.tsv"]
    with pytest.raises(ValueError, match=r"would be read more than once: \['[^ ]*/1.tsv', '[^ ]*/3.tsv'\]$"):
        find_files([tmp_path / name for name in names])
    with pytest.raises(ValueError, match=r"would be read more than once: .*1.tsv"):
        find_files([f"{tmp_path}/?.tsv", tmp_path / "1.tsv"])
    with pytest.raises(ValueError, match="no files are given"):
        find_files([])


FORMATS = r"\('tsv', 'csv', 'jsonl'\)"


@pytest.mark.parametrize(
    "name, content, arguments, message",
    [
        ("a.tsv", "text\nb\n", {"label_column": "label"}, r"a.tsv has no column 'label'; its columns are \['text'\]"),
        ("a.tsv", "text\tlabel\n", {}, "has no rows"),
        ("a.txt", "text\nb\n", {}, r"the format of .*a.txt is unknown: its name ends.*give file_format"),
        ("a.gz", "text\nb\n", {}, "is unknown"),
        ("a.tsv", "text\nb\n", {"file_format": "xml"}, f"unknown file_format 'xml'; allowed are {FORMATS}"),
        ("a.tsv", "text\nb\n", {"problem_type": "x"}, "unknown problem_type 'x'; allowed are"),
        ("a.tsv", "text\nb\n", {"text_columns": "ab", "label_column": "ab"}, "must be in different columns"),
        ("a.tsv", "text\nb\n", {"text_columns": ("a", "a")}, "must be in different columns"),
        ("a.tsv", "text\nb\n", {"text_columns": ()}, "must be the name of a column, or two or three names"),
        ("a.tsv", "text\nb\n", {"label_separator": ""}, "label_separator must be at least one character"),
    ],
)
def test_checks_arguments_and_headers_at_once(tmp_path, name, content, arguments, message):
    with pytest.raises(ValueError, match=message):
        read_examples(write(tmp_path / name, content), **arguments)


def test_file_format_overrides_the_file_name(tmp_path):
    path = write(tmp_path / "a.txt", '{"text": "b"}\n')
    assert content(read_examples(path, file_format="jsonl")) == [{"text": "b"}]


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_reads_one_row_at_a_time(tmp_path, suffix):
    path = write_rows(tmp_path / f"big.{suffix}", ["word " * 1000] * 4000)
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_examples(path, label_column="label"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 4000
    assert peak < 1_000_000 < 20_000_000 < path.stat().st_size


def test_lines_count_skipped_rows(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\ngood,a\n"two\nlines",a\nbad row\n\nfine,b\n')
    examples = read_examples(path, label_column="label", bad_rows=BadRows(skip=True))
    assert [example["line"] for example in examples] == [2, 3, 7]
    path = write(tmp_path / "a.csv", "text,label\na\nb\n")
    with pytest.raises(ValueError, match=r"a.csv.* has no usable row"):
        list(read_examples(path, label_column="label", bad_rows=BadRows(skip=True)))
