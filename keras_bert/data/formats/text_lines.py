"""Lines of UTF-8 text files, one after the other."""

import gzip
import zlib
from pathlib import Path

from keras_bert.io.row_errors import quotation

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# Longer than any example of text: what has no line ends is no text file, and would fill the memory.
_LONGEST_LINE = 2**26


def check_is_file(path):
    """Raises if there is no file at a path.

    Args:
        path: str or Path.

    Returns:
        Path.

    Raises:
        FileNotFoundError: if there is none, or a folder.

    Example:

    >>> check_is_file("nowhere.tsv")
    Traceback (most recent call last):
    FileNotFoundError: there is no file nowhere.tsv
    """
    path = Path(path)
    if path.is_dir():
        raise FileNotFoundError(f"{path} is a folder; give the path of a file")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    return path


class FilePlace:
    """How far a file has been read, as `numbered_lines` writes it down with every line.

    Attributes:
        line_offset: int. The byte of the text at which the line begins, from 0; of a compressed file, after
            decompression.
        bytes_read: int. How many bytes of the file have been read; of a compressed file, before decompression.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "lines.txt"
    >>> _ = path.write_bytes(b"one\\ntwo")
    >>> place = FilePlace()
    >>> [place.line_offset for _ in numbered_lines(path, place)], place.bytes_read
    ([0, 4], 7)
    """

    def __init__(self):
        self.line_offset = 0
        self.bytes_read = 0


def numbered_lines(path, place=None):
    """The lines of a file as bytes, each with its number and its line end.

    Lines end at the line feed only: whatever else Unicode takes for a line end belongs to the text. A byte order mark
    at the beginning is dropped. Only one line is in memory at a time.

    Args:
        path: str or Path. One whose name ends in `.gz` is decompressed.
        place: a `FilePlace`, brought up to date before each line is given, or None.

    Returns:
        Iterator of `(int, bytes)`; numbers begin at 1.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is compressed and broken, is UTF-16, or has a line of more than 64 MiB.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "lines.txt"
    >>> _ = path.write_bytes(b"\\xef\\xbb\\xbfone\\r\\ntwo")
    >>> list(numbered_lines(path))
    [(1, b'one\\r\\n'), (2, b'two')]
    """
    path = check_is_file(path)
    with open(path, "rb") as stored, gzip.open(stored) if path.suffix == ".gz" else stored as file:
        number = offset = 0
        try:
            while line := file.readline(_LONGEST_LINE + 1):
                number += 1
                offset += len(line)
                if number == 1:
                    line = _without_byte_order_mark(path, line)
                if place is not None:
                    place.line_offset = offset - len(line)
                    place.bytes_read = offset if file is stored else stored.tell()
                if len(line) > _LONGEST_LINE:
                    raise ValueError(f"{path}, line {number}: is longer than {_LONGEST_LINE} bytes; is it a text file?")
                yield number, line
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is not a whole gzip file ({error}); line {number} is the last one") from error


def _without_byte_order_mark(path, line):
    if line.startswith(_UTF_16_MARKS):
        raise ValueError(f"{path} is UTF-16; save it as UTF-8")
    return line.removeprefix(_BYTE_ORDER_MARK)


def decode_line(line, encoding="utf-8", offset=None):
    """The text of a line, without its line end.

    Args:
        line: bytes.
        encoding: str. One in which a line feed is the byte 0x0a and no part of another character.
        offset: int or None. The byte at which the line begins in its file, from 0, for the message.

    Returns:
        str.

    Raises:
        ValueError: if it is not in that encoding or holds a NUL character.

    Example:

    >>> decode_line("naïve\\u2028\\r\\n".encode())
    'naïve\\u2028'
    """
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = line.decode(encoding)
    except UnicodeDecodeError as error:
        byte = line[error.start]
        place = "" if offset is None else f" and {offset + error.start + 1} of the file"
        raise ValueError(
            f"is not {encoding.upper()}: byte {error.start + 1} of the line{place}, 0x{byte:02x}, begins no character"
        ) from None
    if "\0" in text:
        raise ValueError(f"holds a NUL character at position {text.index(chr(0)) + 1}; is the file UTF-16, or damaged?")
    return text


def check_text(column, text):
    """Refuses a value that is not a text.

    Args:
        column: str. Where the value stands, for the message.
        text: the value.

    Raises:
        ValueError: if it is not a string, or one that UTF-8 cannot encode.

    Example:

    >>> check_text("review", 3)
    Traceback (most recent call last):
    ValueError: 'review' must be a string, got 3
    """
    if not isinstance(text, str):
        raise ValueError(f"{column!r} must be a string, got {quotation(text)}")
    if not text.isascii() and not is_encodable(text):
        raise ValueError(f"{column!r} holds half of a surrogate pair, which UTF-8 cannot encode: {quotation(text)}")


def is_encodable(text):
    """Whether UTF-8 can encode a string; half of a surrogate pair it cannot.

    Args:
        text: str.

    Returns:
        bool.

    Example:

    >>> is_encodable("ü"), is_encodable("\\ud800")
    (True, False)
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
