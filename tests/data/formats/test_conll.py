import gzip

import pytest
from seqeval.metrics.sequence_labeling import get_entities

from keras_bert.data.formats.conll import TaggedSentence, read_conll, write_conll
from keras_bert.io.row_errors import BadRowError, BadRows
from keras_bert.text.tags import detect_scheme, find_invalid_tags
from tests.data.conftest import assert_bad_row

# Characters that Python's split(), strip() and splitlines() would split at or drop.
HOSTILE = ["\u00a0", "a\u00a0b", "\u2028", "\u0085", "\u200b", "x\u200b", "\u3000", "\x0b", "\x1c", "e\u0301", "\u0301"]
HOSTILE += ["#", "#tag", '"', "'", "-", "O", "\ufeff", "a\rb", "👍🏽", "-DOCSTART", "\\t"]


@pytest.fixture
def write(tmp_path):
    def write(content, name="train.conll"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def tokens_of(sentences):
    return [" ".join(sentence.tokens) for sentence in sentences]


@pytest.mark.parametrize(
    ("split", "sentences", "tokens", "entities"),
    [("train", 3394, 62730, 1975), ("dev", 1009, 15733, 836), ("test", 1287, 23394, 1079)],
)
def test_reads_and_writes_wnut_17(shared, tmp_path, split, sentences, tokens, entities):
    path = shared / "data" / "ner" / "wnut17" / f"{split}.conll"
    read = list(read_conll(path, scheme="IOB2"))
    assert len(read) == len({sentence.document for sentence in read}) == sentences
    assert sum(len(sentence.tokens) for sentence in read) == tokens
    assert detect_scheme(sentence.tags for sentence in read) == "IOB2"
    assert sum(len(get_entities(list(sentence.tags))) for sentence in read) == entities
    assert not any(find_invalid_tags(sentence.tags, "IOB2") for sentence in read)
    write_conll(tmp_path / "copy.conll", read)
    if split != "train":  # its blank lines contain tabs
        assert (tmp_path / "copy.conll").read_bytes().strip(b"\n") == path.read_bytes().strip(b"\n")


@pytest.mark.parametrize("separator", ["\t", " ", "   ", "\t \t"])
def test_columns_are_counted_from_both_ends(write, separator):
    path = write("".join(f"{separator.join(row)}\n" for row in (["a", "DT", "O"], ["b", "NN", "B-x"])))
    width = 5 if separator == "\t \t" else 3
    expected = {-1: ("O", "B-x"), width - 1: ("O", "B-x"), 1 if width == 3 else 2: ("DT", "NN")}
    for column, tags in expected.items():
        assert [(s.tokens, s.tags) for s in read_conll(path, column)] == [(("a", "b"), tags)]
    assert next(iter(read_conll(path, tag_column=0, token_column=-1))).tokens == ("O", "B-x")
    assert next(iter(read_conll(path, tag_column=None))) == TaggedSentence(("a", "b"), None, 0, 1)


@pytest.mark.parametrize("separator", ["\t", " "])
def test_tokens_are_not_stripped(write, separator):
    path = write("".join(f"{token}{separator}O\n" for token in ["first", *HOSTILE]))
    assert next(iter(read_conll(path))).tokens == ("first", *HOSTILE)
    path = write("".join(f"{token}\n" for token in ["first", *HOSTILE]))
    assert next(iter(read_conll(path, tag_column=None))).tokens == ("first", *HOSTILE)


def test_tokens_of_tab_separated_columns_keep_spaces(write):
    path = write("New York \t B-place\nis\tO\n")
    assert next(iter(read_conll(path))) == TaggedSentence(("New York", "is"), ("B-place", "O"), 0, 1)


@pytest.mark.parametrize("name", ["train.conll", "train.conll.gz"])
@pytest.mark.parametrize("blank", ["", "\t", "  ", "\t \t"])
def test_sentences_are_independent_of_line_ends(write, blank, name):
    content = f"{blank}\n\na\tO\nb\tO\n{blank}\n\nc\tO"
    for form in (content, content + "\n", "\ufeff" + content.replace("\n", "\r\n"), content + f"\n{blank}\n\n"):
        path = write(gzip.compress(form.encode()) if name.endswith("gz") else form, name)
        sentences = list(read_conll(path))
        assert [(s.tokens, s.line) for s in sentences] == [(("a", "b"), 3), (("c",), 7)]


def test_numbers_documents_by_their_marks(write):
    marked = write(
        "-DOCSTART- -X- O O\n\na O x O\n\nb O x O\n\n-DOCSTART- -X- O O\nc O x O\n-DOCSTART- (1)\n\nd O x O\n"
    )
    late = write("a\tO\n\nb\tO\n-DOCSTART-\tO\n\nc\tO\n\nd\tO\n", "late.conll")
    unmarked = write("a\tO\n\nb\tO\n", "unmarked.conll")
    for paths, expected in [
        (marked, [0, 0, 1, 2]),
        (late, [0, 1, 2, 2]),
        (unmarked, [0, 1]),
        ([marked, unmarked, late], [0, 0, 1, 2, 3, 4, 5, 6, 7, 7]),
    ]:
        assert [sentence.document for sentence in read_conll(paths)] == expected
    assert tokens_of(read_conll(marked)) == ["a", "b", "c", "d"]


def test_skips_comments_on_request(write):
    path = write("# id = 1\n# text = a\n1\ta\tNN\n2\t#\tNN\n# 3\tNN\tX\n\n# id = 2\n1\tb\tNN\n")
    sentences = list(read_conll(path, token_column=1, comment_prefix="# "))
    assert [(s.tokens, s.line) for s in sentences] == [(("a", "#", "NN"), 3), (("b",), 8)]
    with pytest.raises(BadRowError, match=r"line 3: has 3 columns, and the first line with a token 4"):
        list(read_conll(path, token_column=1))
    path = write("# O\n#tag O\n")
    assert tokens_of(read_conll(path)) == ["# #tag"]


BAD = [
    (b"c", "has 1 column, and the first line with a token 2"),
    (b"New York B-x", "has 3 columns, and the first"),
    (b"c\t\tO", "has 3 columns, and the first"),
    (b"c\t", "a tag must be printable and not empty"),
    (b"\tO", "the token, in column 0, is empty"),
    (b" -DOCSTART-\tO", "the token '-DOCSTART-', in column 0, starts with -DOCSTART-"),
    (b"c\tB_x", "'B_x' is not an IOB2 tag; allowed are O, and B-, I-"),
    (b"c\tS-x", "'S-x' is not an IOB2 tag"),
    (b"c\tB-", "'B-' is not an IOB2 tag"),
    (b"\xff\tO", "is not UTF-8"),
    (b"c\0\tO", "holds a NUL character"),
]


@pytest.mark.parametrize(("line", "message"), BAD)
def test_reports_an_invalid_line(write, line, message):
    path = write(b"a\tO\n\nb\tO\n" + line + b"\n\nd\tO\n")
    kept = [TaggedSentence(("a",), ("O",), 0, 1), TaggedSentence(("d",), ("O",), 1, 6)]
    assert_bad_row(lambda bad_rows: read_conll(path, scheme="IOB2", bad_rows=bad_rows), message, 4, kept)


def test_skips_sentences_with_invalid_lines(write):
    bad = b"\n".join(line for line, _ in BAD)
    path = write(b"a\tO\n\n" + bad + b"\nb\tO\n\n-DOCSTART-\tO\n\n" + bad + b"\n\nc\tO\n\nd\tO")
    bad_rows = BadRows(skip=True)
    sentences = read_conll(path, scheme="IOB2", bad_rows=bad_rows)
    assert [(s.tokens, s.document) for s in sentences] == [(("a",), 0), (("c",), 1), (("d",), 1)]
    assert bad_rows.count == 2 * len(BAD)


@pytest.mark.parametrize("line", ["1\t-DOCSTART-\tO", "1 -DOCSTART-(2) O", " 1 -DOCSTART- O"])
def test_refuses_a_document_mark_in_another_column(write, line):
    path = write(f"1 a O\n\n{line}\n\n1 b O\n")
    with pytest.raises(BadRowError, match=r"line 3: the token '-DOCSTART-.*, in column 1, starts with -DOCSTART-, "):
        list(read_conll(path, token_column=1))
    assert tokens_of(read_conll(write("a -DOCSTART- O\n"))) == ["a"]  # in a column that is not read


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        *((content, {}, "has no tokens") for content in ("", "\n\n", "-DOCSTART-\tO\n\n", "\t\n")),
        ("a\nb\n", {}, r"line 1: has 1 column, so columns 0 and -1 are the same"),
        ("a\nb\n", {"tag_column": 3}, r"has 1 column, and the tag is in column 3"),
        ("a\nb\n", {"tag_column": None, "token_column": -2}, r"has 1 column, and the token is in column -2"),
        ("a\tx\n", {"scheme": "IOB2", "bad_rows": BadRows(skip=True)}, "has no usable row"),
    ],
)
def test_refuses_unusable_files(write, content, arguments, message):
    paths = [write(content), *([write("a\tO\n", "more.conll")] if message == "has no tokens" else [])]
    with pytest.raises(ValueError, match=message):
        list(read_conll(paths, **arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tag_column": 0}, "must be in different columns"),
        ({"scheme": "BIO"}, "unknown scheme 'BIO'; allowed are"),
        ({"comment_prefix": ""}, "at least one character"),
    ],
)
def test_checks_arguments_at_once(write, arguments, message):
    with pytest.raises(ValueError, match=message):
        read_conll(write("a\tO\n"), **arguments)
    with pytest.raises(FileNotFoundError):
        read_conll("nowhere.conll")


@pytest.mark.parametrize("documents", [[0, 1, 2], [0, 0, 1], [3, 4, 4], [7, 7, 7]])
def test_reads_what_it_writes(tmp_path, documents):
    tokens = ("first", *HOSTILE)
    sentences = [TaggedSentence(tokens, ("B-a b",) * len(tokens), document, 1) for document in documents]
    path = tmp_path / "predictions.conll"
    assert write_conll(path, sentences) == 3
    read = list(read_conll(path, scheme="IOB2"))
    assert [(s.tokens, s.tags) for s in read] == [(s.tokens, s.tags) for s in sentences]
    assert [s.document - read[0].document for s in read] == [document - documents[0] for document in documents]
    assert ("-DOCSTART-" in path.read_text().split("\t")[0]) == (len({*documents}) < 3)


AMBIGUOUS = ["a\tb", "a\nb", " a", "", "a\0", "-DOCSTART-"]


@pytest.mark.parametrize(
    ("tokens", "tags", "message"),
    [
        *(((token,), ("O",), "would be read differently") for token in AMBIGUOUS),
        (("a",), ("O ",), "would be read differently"),
        (("a",), ("",), "a tag must be printable"),
        (("a",), ("O\n",), "a tag must be printable"),
        (("\ud800",), ("O",), "half of a surrogate pair"),
        (("a", "b"), ("O",), "tokens and a tag for each"),
        (("a",), None, "tokens and a tag for each"),
        ((), (), "tokens and a tag for each"),
    ],
)
def test_refuses_to_write_ambiguous_lines(tmp_path, tokens, tags, message):
    path = tmp_path / "predictions.conll"
    with pytest.raises(ValueError, match=message):
        write_conll(path, [TaggedSentence(("a",), ("O",), 0, 1), TaggedSentence(tokens, tags, 1, 3)])
    assert not path.exists()


def test_overwrites_only_on_request(tmp_path):
    sentences = [TaggedSentence(("a",), ("O",), 0, 1)]
    write_conll(tmp_path / "a.conll", sentences)
    with pytest.raises(FileExistsError):
        write_conll(tmp_path / "a.conll", sentences)
    assert write_conll(tmp_path / "a.conll", sentences, overwrite=True) == 1
    with pytest.raises(ValueError, match="no sentences"):
        write_conll(tmp_path / "b.conll", [])
