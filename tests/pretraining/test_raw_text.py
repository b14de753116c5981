import gzip
import itertools
import json
import random
import tracemalloc

import pytest

from keras_bert.io.row_errors import BadRowError, BadRows
from keras_bert.pretraining import paragraphs
from keras_bert.pretraining.raw_text import CorpusCounts, CorpusFormat, check_encoding, read_documents
from tests.pretraining import stories


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def documents(paths, bad_rows=None, counts=None, **options):
    return [list(document) for document in read_documents(paths, CorpusFormat(**options), bad_rows, counts)]


@pytest.mark.parametrize("layout", stories.LAYOUTS)
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks_do_not_matter(tmp_path, layout, line_end, mark):
    path = write(tmp_path / "story.txt", mark + line_end.join(stories.LAYOUTS[layout]()))
    assert documents(path) == [stories.ALL_SENTENCES]


def test_removes_byte_order_marks_of_joined_files(tmp_path):
    story = "\ufeff" + "\r\n".join(stories.spaced())
    assert documents(write(tmp_path / "stories.txt", story + story)) == [stories.ALL_SENTENCES * 2]


def test_reads_chinese_and_korean(tmp_path):
    path = write(tmp_path / "zh.txt", "\n".join("　　" + text for text in stories.CHINESE))
    assert documents(path, language="zh") == [stories.CHINESE_SENTENCES]
    path = write(tmp_path / "zh.gb.txt", "\n".join(stories.CHINESE).encode("gb18030"))
    assert documents(path, language="zh", encoding="gb18030") == [stories.CHINESE_SENTENCES]
    path = write(tmp_path / "ko.txt", "\n".join(stories.wrapped(stories.KOREAN, 30)).encode("euc-kr"))
    assert documents(path, language="ko", encoding="euc-kr") == [stories.KOREAN_SENTENCES]


def test_files_are_documents_in_alphabetical_order(tmp_path):
    for name in ("c", "a", "b"):
        write(tmp_path / f"{name}.txt", f"This is {name}1. It is short.")
    expected = [[f"This is {name}1.", "It is short."] for name in "abc"]
    assert documents(f"{tmp_path}/*.txt") == expected
    assert documents([tmp_path / "c.txt", tmp_path / "a.txt"]) == [expected[2], expected[0]]


def test_lines_and_blocks_can_be_documents(tmp_path):
    path = write(tmp_path / "a.txt", "\nOne. Two.\nThree.\n \n\r\nFour.\n\n")
    assert documents(path, document_per="line") == [["One.", "Two."], ["Three."], ["Four."]]
    assert documents(path, document_per="blank_line") == [["One.", "Two.", "Three."], ["Four."]]
    assert documents(path, document_per="file") == [["One.", "Two.", "Three.", "Four."]]


def test_each_json_object_is_a_document(tmp_path):
    texts = ["\r\n".join(stories.wrapped()), " \n", "\n".join(stories.PARAGRAPHS), "One.\u2028Two."]
    path = tmp_path / "a.jsonl"
    write(path, "\n".join(json.dumps({"body": text, "id": 3}) for text in texts) + "\n\n")
    counts = CorpusCounts()
    expected = [stories.ALL_SENTENCES, stories.ALL_SENTENCES, ["One.", "Two."]]
    assert documents(path, file_format="jsonl", text_field="body", counts=counts) == expected
    assert (counts.documents, counts.empty_documents, counts.empty_files) == (3, 1, 0)
    assert counts.bytes_read == path.stat().st_size
    write(tmp_path / "a.jsonl.gz", gzip.compress(path.read_bytes()))
    assert documents(tmp_path / "a.jsonl.gz", file_format="jsonl", text_field="body") == expected


def test_reports_json_rows_without_text(tmp_path):
    rows = ['{"text": "One."}', '{"body": "Two."}', '{"text": 3}', '{"text": "\\ud800"}', "{", '{"text": "Five."}']
    path = write(tmp_path / "a.jsonl", "\n".join(rows))
    with pytest.raises(BadRowError, match=r"a.jsonl, line 2: has no 'text'; its keys are"):
        documents(path, file_format="jsonl")
    bad_rows = BadRows(skip=True)
    assert documents(path, file_format="jsonl", bad_rows=bad_rows) == [["One."], ["Five."]]
    assert bad_rows.count == 4


def test_everything_read_is_counted(tmp_path):
    write(tmp_path / "a.txt", "\n".join(stories.wrapped()))
    write(tmp_path / "b.txt", "")
    write(tmp_path / "c.txt", "\ufeff \r\n\t\n\u3000\n")
    write(tmp_path / "d.jsonl", "\n \n")
    counts = CorpusCounts()
    assert documents(f"{tmp_path}/*.txt", counts=counts) == [stories.ALL_SENTENCES]
    assert documents(tmp_path / "d.jsonl", file_format="jsonl", counts=counts) == []
    texts = {"paragraphs": len(stories.PARAGRAPHS), "sentences": len(stories.ALL_SENTENCES)}
    num_bytes = sum(path.stat().st_size for path in tmp_path.glob("*.txt"))
    assert counts == CorpusCounts(files=4, empty_files=3, documents=1, bytes_read=num_bytes, **texts)


def test_invalid_bytes_are_reported_or_counted(tmp_path):
    lines = ["\ufeffÜber alles.".encode(), b"Fine.", b"A caf\xe9 au lait.", b"The end."]
    path = write(tmp_path / "a.txt", b"\r\n".join(lines))
    offset = path.read_bytes().index(b"\xe9") + 1
    message = rf"a.txt, line 3: is not UTF-8: byte 6 of the line and {offset} of the file, 0xe9, is invalid"
    with pytest.raises(BadRowError, match=message):
        documents(path)
    bad_rows = BadRows(skip=True)
    assert documents(path, bad_rows=bad_rows) == [["Über alles.", "Fine.", "The end."]]
    assert bad_rows.count_by_file == {str(path): 1}
    assert documents(path, encoding="latin-1")[0][2] == "A café au lait."


@pytest.mark.parametrize(
    "options, message",
    [
        ({"file_format": "xml"}, r"file_format must be one of text, jsonl; got 'xml'"),
        ({"document_per": "page"}, "document_per must be one of .*; got 'page'"),
        ({"language": "English"}, "language must be a language code"),
        ({"paragraph_end": "tab"}, "paragraph_end must be one of .*; got 'tab'"),
        ({"hyphens": "no"}, "hyphens must be one of .*; got 'no'"),
        ({"encoding": "utf-9"}, "unknown encoding 'utf-9'; give a name such as"),
        ({"encoding": "utf-16-le"}, "line ends cannot be found in the encoding 'utf-16-le'"),
        ({"file_format": "jsonl", "encoding": "latin-1"}, "got document_per='file', encoding='latin-1'"),
        ({"file_format": "jsonl", "document_per": "line"}, "got document_per='line', encoding='utf-8'"),
    ],
)
def test_invalid_formats_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CorpusFormat(**options)


def test_encodings_need_single_byte_line_feeds():
    for encoding in ("utf-8", "UTF8", "latin-1", "cp1252", "gb18030", "big5", "shift_jis", "euc-kr"):
        check_encoding(encoding)
    for encoding in ("utf-16", "utf-32", "utf-16-be", "cp037", "rot13", "base64", ""):
        with pytest.raises(ValueError, match="encoding"):
            check_encoding(encoding)


def test_documents_are_read_lazily(tmp_path):
    path = write(tmp_path / "a.txt", "\n\n".join(f"This is sentence {number}." for number in range(100_000)))
    counts = CorpusCounts()
    document = next(read_documents(path, counts=counts))
    assert list(itertools.islice(document, 3)) == [f"This is sentence {number}." for number in range(3)]
    assert counts.bytes_read < path.stat().st_size / 3


def test_the_rest_of_a_document_is_skipped(tmp_path):
    path = write(tmp_path / "a.txt", "One. Two.\nThree.\n\nFour. Five.\n")
    counts = CorpusCounts()
    read = read_documents(path, CorpusFormat(document_per="blank_line"), counts=counts)
    first = [next(document) for document in read]
    assert first == ["One.", "Four."]
    assert counts.sentences == 5


def test_sentences_stay_in_their_paragraphs(tmp_path):
    sentences = ["A title without an end", "And a paragraph without", "- one", "- two"]
    assert documents(write(tmp_path / "a.txt", "\n\n".join(sentences))) == [sentences]


@pytest.mark.parametrize("seed", range(5))
def test_nothing_but_white_space_is_lost(tmp_path, seed):
    generator = random.Random(seed)
    characters = "aB9.,!?-'\"“”中。かé가ß😀\u0301 \t\u3000\x0b\x0c\x1c\u2028\u2029\x85\xa0\r\n\n"
    text = "".join(generator.choices([*characters, "Mr. ", "\r\n", "the "], k=5000))
    path = write(tmp_path / "a.txt", text)
    for language, end in itertools.product(("en", "zh"), ("auto", "line", "blank_line", "short_line")):
        sentences = documents(path, language=language, paragraph_end=end, hyphens="keep")[0]
        assert "".join("".join(sentences).split()) == "".join(text.split())
        assert all(sentence.splitlines() == [sentence] and sentence == sentence.strip() for sentence in sentences)
        assert sentences == documents(path, language=language, paragraph_end=end, hyphens="keep")[0]


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["line", "blank_line", "short_line"])
def test_memory_does_not_grow_with_the_file(tmp_path, layout):
    story = "\n".join([*stories.LAYOUTS[layout](), ""])
    path = write(tmp_path / "a.txt", story * (4_000_000 // len(story)))
    for document in read_documents(path):
        for _ in itertools.islice(document, 1000):
            pass
        tracemalloc.start()
        count = sum(1 for _ in document)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert count > 20_000
    assert peak < 4_000_000


@pytest.mark.slow
@pytest.mark.parametrize("text", ["word " * 400_000, "x" * 2_000_000])
def test_memory_is_bounded_for_a_long_line(tmp_path, monkeypatch, text):
    monkeypatch.setattr(paragraphs, "_MAX_PARAGRAPH", 2**14)
    path = write(tmp_path / "a.txt", text)
    tracemalloc.start()
    num_characters = sum(len("".join(sentence.split())) for document in read_documents(path) for sentence in document)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_characters == len("".join(text.split()))
    assert peak < 3 * len(text) + 2**20  # the line as bytes and as text, and a paragraph
