import csv
import gzip
import io
from collections import Counter

import pytest

from keras_bert.data.formats.swag_files import MultipleChoiceQuestion, read_codah, read_swag
from keras_bert.io.row_errors import BadRowError
from tests.data.conftest import assert_bad_row

# The first column has no name: it is the number of the row.
SWAG_COLUMNS = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
SWAG_COLUMNS += ["ending0", "ending1", "ending2", "ending3", "label"]


def swag_row(number=0, sent1="She is hungry.", sent2="She", label="2", endings="abcd"):
    return [number, "v", "7", f"{sent1} {sent2}", sent1, sent2, "gold", *endings, label]


@pytest.fixture
def write(tmp_path):
    def write(rows, name="val.csv"):
        content = io.StringIO(newline="")
        if isinstance(rows, str):
            content.write(rows)
        else:
            csv.writer(content, lineterminator="\n").writerows(rows)
        data = content.getvalue().encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def codah_row(*endings, category="o", prompt="She", label="1"):
    return "\t".join([category, prompt, *(endings or "abcd"), label]) + "\n"


@pytest.mark.parametrize("name", ["val.csv", "val.csv.gz"])
def test_reads_swag(write, name):
    rows = [swag_row(), swag_row(1, 'She says: "Hi,\nyou."', "", "0"), swag_row(2, "", "He", "3")]
    questions = list(read_swag(write([SWAG_COLUMNS, *rows], name)))
    assert questions == [
        MultipleChoiceQuestion("She is hungry.", ("She a", "She b", "She c", "She d"), 2, 2),
        MultipleChoiceQuestion('She says: "Hi,\nyou."', ("a", "b", "c", "d"), 0, 3),
        MultipleChoiceQuestion("", ("He a", "He b", "He c", "He d"), 3, 6),
    ]


@pytest.mark.parametrize("number", [2, 3, 12])
def test_reads_any_number_of_endings_in_order(write, number):
    names = sorted(f"ending{index}" for index in range(number))
    path = write([["label", *names, "sent2", "sent1"], [number - 1, *names, "She", "a"]])
    question = next(iter(read_swag(path)))
    assert question.choices == tuple(f"She ending{index}" for index in range(number))
    assert question.label == number - 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["sent1", "sent2", "ending0", "label"], "at least two; its columns are"),
        (["sent1", "sent2", "ending1", "ending2"], "columns ending0, ending1 and so on"),
        (["sent1", "sent2", "ending0", "ending01", "ending2"], "columns ending0, ending1 and so on"),
        (["sent1", "ending0", "ending1"], "has no column 'sent2'"),
        (["sent1", "sent2", "ending0", "ending1", "label", "label"], "several columns with the name 'label'"),
    ],
)
def test_refuses_missing_columns(write, columns, message):
    with pytest.raises(ValueError, match=message):
        read_swag(write([columns, ["a"] * len(columns)]))


BAD_LABELS = ["4", "-1", "", "2.0", "ending2", "\u0662", "00"]
BAD = [
    *(({"label": label}, r"the label must be the index of a choice, 0 to 3; got ") for label in BAD_LABELS),
    ({"endings": ["a", "b", "c", ""]}, "ending3 is empty, and every question has 4 choices"),
    ({"endings": ["a", " \u00a0", "c", "d"]}, "ending1 is empty"),
    ({"endings": ["a", "b", "c"]}, "has 11 columns instead of 12"),
    ({"endings": ["a", "b", "c", "d", "e"]}, "has 13 columns instead of 12"),
]


@pytest.mark.parametrize(("changed", "message"), BAD)
def test_reports_an_invalid_row(write, changed, message):
    # The first question contains two line feeds.
    path = write([SWAG_COLUMNS, swag_row(sent2="a\nb"), swag_row(**changed), swag_row()])
    choices = [(2, [f"a\nb {ending}" for ending in "abcd"]), (6, [f"She {ending}" for ending in "abcd"])]
    kept = [MultipleChoiceQuestion("She is hungry.", tuple(texts), 2, line) for line, texts in choices]
    assert_bad_row(lambda bad_rows: read_swag(path, bad_rows), message, 5, kept)


def test_reads_codah(shared):
    questions = list(read_codah(shared / "data" / "swag_like" / "codah.tsv"))
    assert [question.line for question in questions] == list(range(1, 2777))
    assert {len(question.choices) for question in questions} == {4}
    assert Counter(question.label for question in questions) == {3: 706, 2: 697, 0: 689, 1: 684}
    categories = {"o": 2080, "i": 244, "r": 133, "n": 115, "p": 108, "q": 86, "": 10}
    assert Counter(question.category for question in questions) == categories
    assert questions[2].prompt == "My brother is very good at math. He"
    assert questions[2].choices[questions[2].label] == "won a math competition when he was 5."


@pytest.mark.parametrize("label", ["", "-1", "?"])
def test_ignores_labels_of_questions_to_predict(tmp_path, label):
    swag, codah = tmp_path / "test.csv", tmp_path / "test.tsv"
    swag.write_text("sent1,sent2,ending0,ending1\na,b,c,d\n")
    assert [question.label for question in read_swag(swag)] == [None]
    swag.write_text(f"sent1,sent2,ending0,ending1,label\na,b,c,d,{label}\n")
    codah.write_text(f"o\ta\tb\tc\td\te\t{label}\n")
    for read, path in ((read_swag, swag), (read_codah, codah)):
        assert [question.label for question in read(path, with_labels=False)] == [None]
        with pytest.raises(BadRowError, match="the label must be the index of a choice"):
            list(read(path))


def test_codah_has_no_quoting(write):
    path = write(codah_row('"a', '""', "c,", "d\u2028", prompt=""), "codah.tsv")
    assert list(read_codah(path)) == [MultipleChoiceQuestion("", ('"a', '""', "c,", "d\u2028"), 1, 1, "o")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (codah_row("a", "b", "c"), r"has 6 columns instead of 7 \(category, prompt, ending0"),
        (codah_row("a", "b", "c", "d", "e"), "has 8 columns instead of 7"),
        (codah_row("a", "b", "c", ""), "ending3 is empty"),
        (codah_row(label="4"), "the label must be the index of a choice, 0 to 3; got '4'"),
        ("category\tprompt\ta\tb\tc\td\tlabel\n", "the label must be .* got 'label'"),
    ],
)
def test_reports_an_invalid_row_of_codah(write, row, message):
    path = write(codah_row() + row + codah_row(), "codah.tsv")
    kept = [MultipleChoiceQuestion("She", ("a", "b", "c", "d"), 1, line, "o") for line in (1, 3)]
    assert_bad_row(lambda bad_rows: read_codah(path, bad_rows), message, 2, kept)


@pytest.mark.parametrize("read", [read_swag, read_codah])
def test_refuses_missing_and_empty_files(write, read, tmp_path):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has no"):
        list(read(write("")))
