import gzip
import itertools

import pytest

from keras_bert.data.formats import text_lines
from keras_bert.data.formats.text_lines import FilePosition, decode_line, numbered_lines


def decoded(path):
    return [decode_line(line) for _, line in numbered_lines(path)]


def test_lines_end_at_the_line_feed_only(tmp_path):
    texts = ["a\u2028b", "c\u0085d\x0b\x0c\x1c", "e\rf", " spaces ", "\ta\t", "", "naïve 中文 😀"]
    for line_end, mark, last in itertools.product(("\n", "\r\n"), ("", "\ufeff"), (True, False)):
        content = (mark + line_end.join(texts) + (line_end if last else "")).encode()
        (tmp_path / "lines.txt").write_bytes(content)
        (tmp_path / "lines.txt.gz").write_bytes(gzip.compress(content))
        assert decoded(tmp_path / "lines.txt") == decoded(tmp_path / "lines.txt.gz") == texts
    (tmp_path / "lines.txt").write_bytes("\ufeff\ufeffa\n\ufeffb\n".encode())
    assert decoded(tmp_path / "lines.txt") == ["\ufeffa", "\ufeffb"]


# The time in a gzip header would give each process other test IDs, with which pytest-xdist does not start.
COMPRESSED = gzip.compress(b"a\nb\n" * 1000, mtime=0)


@pytest.mark.parametrize(
    "content", [COMPRESSED[:3], COMPRESSED[:-4], b"a\n"], ids=["header cut", "end cut", "plain text"]
)
def test_refuses_a_damaged_gzip_file(tmp_path, content):
    path = tmp_path / "lines.txt.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"lines.txt.gz is not a complete gzip file"):
        decoded(path)


@pytest.mark.parametrize(
    "line, message",
    [
        (b"caf\xe9 au lait\n", "is not UTF-8: byte 4 of the line, 0xe9"),
        (b"ab\xed\xa0\x80\n", "is not UTF-8: byte 3 of the line, 0xed"),
        (b"cut short \xe4\xb8\n", "is not UTF-8: byte 11"),
        (b"a\0b\n", "holds a NUL character at position 2"),
    ],
)
def test_refuses_lines_that_are_not_text(line, message):
    with pytest.raises(ValueError, match=message):
        decode_line(line)


def test_refuses_utf_16_and_endless_lines(tmp_path, monkeypatch):
    path = tmp_path / "lines.txt"
    path.write_bytes("text\tlabel\n".encode("utf-16"))
    with pytest.raises(ValueError, match=r"lines.txt is UTF-16; save it as UTF-8"):
        decoded(path)
    monkeypatch.setattr(text_lines, "_MAX_LINE_BYTES", 10)
    path.write_bytes(b"123456789\n" + b"x" * 100)
    with pytest.raises(ValueError, match=r"lines.txt, line 2: is longer than 10 bytes"):
        decoded(path)


def test_refuses_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing.txt"):
        decoded(tmp_path / "nothing.txt")
    with pytest.raises(FileNotFoundError, match="is a folder"):
        decoded(tmp_path)


def test_tracks_the_position_in_a_file(tmp_path):
    text = "\ufeffa\r\nü\n\nb".encode()
    path, compressed = tmp_path / "lines.txt", tmp_path / "lines.txt.gz"
    path.write_bytes(text)
    position = FilePosition()
    positions = [(position.line_offset, position.bytes_read) for _ in numbered_lines(path, position)]
    assert positions == [(3, 6), (6, 9), (9, 10), (10, 11)]
    compressed.write_bytes(gzip.compress(text))
    position = FilePosition()
    assert [position.line_offset for _ in numbered_lines(compressed, position)] == [3, 6, 9, 10]
    assert position.bytes_read == compressed.stat().st_size


def test_decodes_other_encodings():
    assert decode_line("中文\r\n".encode("gb18030"), "gb18030") == "中文"
    with pytest.raises(ValueError, match="is not GB18030: byte 3 of the line and 13 of the file, 0xff"):
        decode_line("中".encode("gb18030") + b"\xff\n", "gb18030", offset=10)
