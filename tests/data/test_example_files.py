import csv
import gzip
import json
import tracemalloc

import pytest

from keras_bert.data.example_files import find_files, read_examples
from keras_bert.data.label_values import discover_labels
from keras_bert.io.row_errors import BadRowError, BadRows

# What tears files apart that are read or written carelessly.
HOSTILE = [
    'a "quoted" word',
    '"',
    '""',
    "a,b",
    "\u2028",
    "\u0085",
    " spaces ",
    "",
    "naïve 😀",
    "\\n",
    "\x0b\x1f",
    "\ufeff",
]
LINES_AND_TABS = ["two\nlines", "two\r\nlines", "a,\rb", "tab\there", "\n\n"]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def content(examples):
    """The examples without the numbers of their lines."""
    return [{name: value for name, value in example.items() if name != "line"} for example in examples]


def write_in_form(path, texts):
    if path.suffix == ".tsv":
        return write(path, "label\ttext\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(texts)))
    if path.suffix == ".csv":
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("label", "text"), *enumerate(texts)])
        return path
    rows = [json.dumps({"label": i, "text": text}, ensure_ascii=i % 2 == 0) for i, text in enumerate(texts)]
    return write(path, "\n".join(rows))


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.ndjson"])
@pytest.mark.parametrize("compress", [False, True])
def test_all_formats_give_the_same_examples(tmp_path, name, compress):
    texts = HOSTILE if name == "a.tsv" else [*HOSTILE, *LINES_AND_TABS, *(["a\0b"] if "json" in name else [])]
    path = write_in_form(tmp_path / name, texts)
    if compress:
        path = write(tmp_path / f"{name}.gz", gzip.compress(path.read_bytes()))
    examples = read_examples(path, label_column="label")
    expected = [{"text": text, "label": str(i)} for i, text in enumerate(texts)]
    assert content(examples) == content(examples) == expected
    assert discover_labels(examples) == [str(i) for i in range(len(texts))]
    assert content(read_examples(str(path), label_column="label", problem_type="regression")) == [
        {"text": text, "label": float(i)} for i, text in enumerate(texts)
    ]


def test_pairs_and_examples_without_labels(tmp_path):
    path = write(tmp_path / "pairs.tsv", "id\thypothesis\tpremise\n1\tb\ta\n")
    assert content(read_examples(path, ("premise", "hypothesis"))) == [{"text_a": "a", "text_b": "b"}]
    assert content(read_examples(path, ["hypothesis"], "id")) == [{"text": "b", "label": "1"}]


def test_multi_label_examples(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tlabels\na\tx, y\nb\t\nc\tz\n")
    arguments = {"label_column": "labels", "problem_type": "multi_label_classification"}
    expected = [["x", "y"], [], ["z"]]
    assert [example["label"] for example in read_examples(path, **arguments)] == expected
    path = write(tmp_path / "b.csv", "text,labels\na,x|y\nb,\nc,z\n")
    assert [example["label"] for example in read_examples(path, label_separator="|", **arguments)] == expected
    path = write(tmp_path / "c.jsonl", '{"text": "a", "labels": ["x,y", 1]}\n{"text": "b", "labels": []}\n')
    assert [example["label"] for example in read_examples(path, **arguments)] == [["x,y", "1"], []]


JSON_CASES = [
    ('{"text": "a\\ud800"}', "'text' holds half of a surrogate pair or bytes that are not UTF-8: 'a.ud800'"),
    ('{"text": 3, "label": "x"}', "'text' must be a string, got 3"),
    ('{"text": ["a"], "label": "x"}', r"'text' must be a string, got \['a'\]"),
    ('{"label": "x", "txt": "a"}', r"has no 'text'; its keys are \['label', 'txt'\]"),
    ('{"text": "a"}', "has no 'label'"),
    ('{"text": "a", "label": null}', "the label must be a string or a number, got None"),
    ('"text"', "must be a JSON object"),
]


@pytest.mark.parametrize("line, reason", JSON_CASES)
def test_invalid_json_rows(tmp_path, line, reason):
    line = line.replace('"a\\ud800"}', '"a\\ud800", "label": "x"}')
    path = write(
        tmp_path / "a.jsonl", '{"text": "good", "label": true}\n' + line + '\n{"text": "\\ud83d\\ude00", "label": 1}'
    )
    with pytest.raises(BadRowError, match=rf"a.jsonl, line 2: {reason}.*; correct the row"):
        content(read_examples(path, label_column="label"))
    bad_rows = BadRows(skip=True)
    examples = read_examples(path, label_column="label", bad_rows=bad_rows)
    assert content(examples) == content(examples) == [{"text": "good", "label": "true"}, {"text": "😀", "label": "1"}]
    assert bad_rows.count == 1


@pytest.mark.parametrize(
    "problem_type, label, reason",
    [
        ("single_label_classification", " ", "the label is empty"),
        ("regression", "", "the label must be a finite number, got ''"),
        ("multi_label_classification", "a,,b", "the label is empty"),
    ],
)
def test_invalid_labels(tmp_path, problem_type, label, reason):
    path = write(tmp_path / "a.tsv", f"text\tlabel\ngood\t1\nbad\t{label}\n")
    with pytest.raises(BadRowError, match=rf"a.tsv, line 3: {reason}"):
        content(read_examples(path, label_column="label", problem_type=problem_type))
    bad_rows = BadRows(skip=True)
    examples = read_examples(path, label_column="label", problem_type=problem_type, bad_rows=bad_rows)
    assert [example["text"] for example in examples] == ["good"]
    assert bad_rows.count_by_file == {str(path): 1}


def test_raises_an_error_if_no_row_is_usable(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tlabel\na\nb\n")
    with pytest.raises(ValueError, match=r"a.tsv.* has no usable row"):
        content(read_examples(path, label_column="label", bad_rows=BadRows(skip=True)))


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
    with pytest.raises(ValueError, match=r"would be read more than once: .*1.tsv"):
        find_files([f"{tmp_path}/?.tsv", tmp_path / "1.tsv"])
    with pytest.raises(ValueError, match="no files are given"):
        find_files([])


@pytest.mark.parametrize(
    "name, content, arguments, message",
    [
        ("a.tsv", "text\nb\n", {"label_column": "label"}, r"a.tsv has no column 'label'; its columns are \['text'\]"),
        ("a.tsv", "text\tlabel\n", {}, "has no rows"),
        ("a.csv", "", {}, "has no header"),
        ("a.txt", "text\nb\n", {}, r"the format of .*a.txt is unknown: its name ends.*give file_format"),
        ("a.gz", "text\nb\n", {}, "is unknown"),
        (
            "a.tsv",
            "text\nb\n",
            {"file_format": "xml"},
            r"unknown file_format 'xml'; allowed are \('tsv', 'csv', 'jsonl'\)",
        ),
        ("a.tsv", "text\nb\n", {"problem_type": "x"}, "unknown problem_type 'x'; allowed are"),
        ("a.tsv", "text\nb\n", {"text_columns": "ab", "label_column": "ab"}, "must be in different columns"),
        ("a.tsv", "text\nb\n", {"text_columns": ("a", "a")}, "must be in different columns"),
        ("a.tsv", "text\nb\n", {"text_columns": ()}, "must be the name of a column, or two names"),
        ("a.tsv", "text\nb\n", {"label_separator": ""}, "label_separator must be at least one character"),
    ],
)
def test_checks_arguments_and_headers_at_once(tmp_path, name, content, arguments, message):
    path = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=message):
        read_examples(path, **arguments)


def test_file_format_overrides_the_file_name(tmp_path):
    path = write(tmp_path / "a.txt", '{"text": "b"}\n')
    assert content(read_examples(path, file_format="jsonl")) == [{"text": "b"}]


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_reads_one_row_at_a_time(tmp_path, suffix):
    text = "word " * 1000
    path = tmp_path / f"big.{suffix}"
    with open(path, "w") as file:
        if suffix == "jsonl":
            file.writelines(f'{{"text": "{text}", "label": {i}}}\n' for i in range(4000))
        else:
            separator = "\t" if suffix == "tsv" else ","
            file.write(f"text{separator}label\n")
            file.writelines(f"{text}{separator}{i}\n" for i in range(4000))
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_examples(path, label_column="label"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 4000
    assert peak < 1_000_000


def test_lines_count_skipped_rows(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\ngood,a\n"two\nlines",a\nbad row\n\nfine,b\n')
    examples = read_examples(path, label_column="label", bad_rows=BadRows(skip=True))
    assert [example["line"] for example in examples] == [2, 3, 7]


def test_an_unknown_label_makes_a_row_invalid(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("text\tlabel\na\tgood\nb\tugly\nc\tbad\n")
    with pytest.raises(BadRowError, match=r"dev.tsv, line 3: the label 'ugly' is unknown; known are \['bad', 'good'\]"):
        list(read_examples(path, label_column="label", known_labels=["good", "bad"]))
    bad_rows = BadRows(skip=True)
    examples = read_examples(path, label_column="label", bad_rows=bad_rows, known_labels=["good", "bad"])
    assert [example["line"] for example in examples] == [2, 4]
    assert bad_rows.count == 1
