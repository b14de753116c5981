import csv
import io
import random

import pytest

from keras_bert.data.formats.delimited import read_columns, read_header
from keras_bert.io.row_errors import BadRowError, BadRows
from tests.data.conftest import HOSTILE_TEXTS, assert_bad_row


def write(tmp_path, content, name="rows.tsv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_finds_columns_by_name(tmp_path):
    path = write(tmp_path, "id\tlabel\ttext\n1\tx\tone\n2\ty\ttwo\n")
    assert list(read_columns(path, ["text", "label"])) == [(2, ["one", "x"]), (3, ["two", "y"])]
    assert list(read_columns(path, ["text", "text"])) == [(2, ["one", "one"]), (3, ["two", "two"])]
    path = write(tmp_path, "a\tb\nc\td\n")
    assert list(read_columns(path, ["y"], header=["x", "y"])) == [(1, ["b"]), (2, ["d"])]
    assert list(read_columns(path, ["x"], header=["x", "x"])) == [(1, ["a"]), (2, ["c"])]  # the first of a name


def test_tsv_has_no_quoting(tmp_path):
    rows = [[text, str(i)] for i, text in enumerate(HOSTILE_TEXTS)]
    path = write(tmp_path, "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    assert [values for _, values in read_columns(path, ["text", "label"])] == rows


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_csv_round_trip(tmp_path, line_end):
    texts = [*HOSTILE_TEXTS, "two\nlines", "two\r\nlines", "a,\rb", '"\n",\n', "\n\n\n", "x" * 200_000]
    rows = [[text, str(i)] for i, text in enumerate(texts)]
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator=line_end).writerows([["text", "a column"], *rows])
    path = write(tmp_path, "\ufeff" + buffer.getvalue(), "rows.csv")
    assert [values for _, values in read_columns(path, ["text", "a column"], "csv")] == rows


def test_csv_rows_have_the_line_on_which_they_start(tmp_path):
    path = write(tmp_path, 'text,label\n"one\nand\nmore",1\n"two",2\n\nthree,3\n', "rows.csv")
    assert list(read_columns(path, ["label"], "csv")) == [(2, ["1"]), (5, ["2"]), (7, ["3"])]


def test_empty_lines_are_values_only_of_a_single_column(tmp_path):
    assert list(read_columns(write(tmp_path, "text\na\n\nb\n"), ["text"])) == [(2, ["a"]), (3, [""]), (4, ["b"])]
    assert list(read_columns(write(tmp_path, "text\tlabel\na\t1\n\n"), ["text"])) == [(2, ["a"])]
    assert list(read_columns(write(tmp_path, 'text\n\n""\n'), ["text"], "csv")) == [(3, [""])]


@pytest.mark.parametrize("file_format, separator", [("tsv", b"\t"), ("csv", b",")])
@pytest.mark.parametrize(
    "row, message",
    [
        (b"1,2,3", r"rows.tsv, line 2: has 3 columns instead of 2 \(x, y\); correct the row"),
        (b"4", r"has 1 column instead of 2 \(x, y\)"),
        (b"\xff,1", "is not UTF-8"),
        (b"a\0b,1", "holds a NUL character"),
    ],
)
def test_reports_an_invalid_row(tmp_path, file_format, separator, row, message):
    path = write(tmp_path, (b"x,y\n" + row + b"\nfine,7\n").replace(b",", separator))
    kept = [(3, ["fine", "7"])]
    assert_bad_row(lambda bad_rows: read_columns(path, ["x", "y"], file_format, bad_rows), message, 2, kept)


@pytest.mark.parametrize(
    "content, file_formats, message",
    [
        (b"", ["tsv", "csv"], "rows.tsv has no header; .*: the file is empty"),
        (b"\n", ["tsv", "csv"], "has no header; .*: it is empty"),
        (b"te\xffxt\n", ["tsv", "csv"], "has no header; .*: is not UTF-8"),
        (b"text\r\n", ["tsv", "csv"], "rows.tsv has no rows"),
        (b"text\ttext\nb\tc\n", ["tsv"], r"several columns with the name 'text'; its columns are \['text', 'text'\]"),
        (b"sentence\tlabel\nb\tc\n", ["tsv"], r"has no column 'text'; its columns are \['sentence', 'label'\]"),
        (b"text\nb\n", ["xlsx"], r"unknown file_format 'xlsx'; formats with columns are \['csv', 'tsv'\]"),
    ],
)
def test_refuses_unusable_files(tmp_path, content, file_formats, message):
    for file_format in file_formats:
        with pytest.raises(ValueError, match=message):
            list(read_columns(write(tmp_path, content), ["text"], file_format, BadRows(skip=True)))


def test_reads_and_checks_the_header(tmp_path):
    assert read_header(write(tmp_path, '"a\nb",c\n1,2\n'), "csv") == ["a\nb", "c"]
    with pytest.raises(ValueError, match="has no rows"):
        read_header(write(tmp_path, "text\tlabel\n"))


def test_an_unclosed_quote_is_never_skipped(tmp_path):
    path = write(tmp_path, 'text,label\na,1\n"b,2\nc,3\nd,4\n', "rows.csv")
    with pytest.raises(BadRowError, match=r"rows.csv, line 3: a quote is not closed where it should be"):
        list(read_columns(path, ["text"], "csv", BadRows(skip=True)))


def test_a_stray_quote_makes_only_its_row_invalid(tmp_path):
    path = write(tmp_path, 'text,label\n"a "word" b",1\nc,2\n', "rows.csv")
    message = r"line 2: is not valid CSV .*is a quote within quotes not doubled"
    assert_bad_row(lambda bad_rows: read_columns(path, ["text"], "csv", bad_rows), message, 2, [(3, ["c"])])
    bad_rows = BadRows(skip=True)
    path = write(tmp_path, 'text,label\nc,2\ne\rf,3\n"d', "rows.csv")
    assert list(read_columns(path, ["text"], "csv", bad_rows)) == [(2, ["c"])]
    assert bad_rows.count == 2


def test_random_csv_files_equal_the_csv_module(tmp_path):
    generator = random.Random(5)
    for _ in range(200):
        content = "x,y\n" + "".join(generator.choices('ab,"\n\r\u2028', k=40)) + "\n1,2\n"
        path = write(tmp_path, content, "rows.csv")
        try:
            expected = [row for row in csv.reader(io.StringIO(content, newline=""), strict=True) if row][1:]
            good = all(len(row) == 2 for row in expected)
        except csv.Error:
            good = False
        if good:
            assert [values for _, values in read_columns(path, ["x", "y"], "csv")] == expected
        else:
            with pytest.raises(BadRowError):
                list(read_columns(path, ["x", "y"], "csv"))
