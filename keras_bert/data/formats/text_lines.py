"""Lines and values of UTF-8 text files."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from keras_bert.io.row_errors import BadRowError, BadRows, quotation
from keras_bert.typing import PathLike

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# Longer than any example of text: a file without line ends is not a text file, and would fill the memory.
_MAX_LINE_BYTES = 2**26


class FilePosition:
    """Position of a reader in a file; `numbered_lines` updates it before each line."""

    def __init__(self) -> None:
        self.line_offset = 0  # byte of the text at which the line starts; after decompression for a compressed file
        self.bytes_read = 0  # bytes of the file that have been read; before decompression for a compressed file


def check_is_file(path: PathLike) -> Path:
    """Returns the path; raises FileNotFoundError unless there is a file."""
    path = Path(path)
    if path.is_dir():
        raise FileNotFoundError(f"{path} is a folder; give the path of a file")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    return path


def numbered_lines(path: PathLike, position: FilePosition | None = None) -> Iterator[tuple[int, bytes]]:
    """Reads the lines of a file as pairs of a number, from 1, and bytes with the line end, one line at a time.

    Lines end at line feeds only: other Unicode line ends belong to the text. A leading byte order mark is dropped. A
    file whose name ends in `.gz` is decompressed. Raises ValueError if the file is a damaged gzip file, is UTF-16, or
    has a line of more than 64 MiB.
    """
    path = check_is_file(path)
    with open(path, "rb") as stored, gzip.open(stored) if path.suffix == ".gz" else stored as file:
        number = offset = 0
        try:
            while line := file.readline(_MAX_LINE_BYTES + 1):
                number += 1
                offset += len(line)
                if number == 1:
                    if line.startswith(_UTF_16_MARKS):
                        raise ValueError(f"{path} is UTF-16; save it as UTF-8")
                    line = line.removeprefix(_BYTE_ORDER_MARK)
                if position is not None:
                    position.line_offset = offset - len(line)
                    position.bytes_read = offset if file is stored else stored.tell()
                if len(line) > _MAX_LINE_BYTES:
                    raise ValueError(
                        f"{path}, line {number}: is longer than {_MAX_LINE_BYTES} bytes; is it a text file?"
                    )
                yield number, line
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is not a complete gzip file ({error}); line {number} is the last one") from error


def decode_line(line: bytes, encoding: str = "utf-8", offset: int | None = None) -> str:
    """Decodes a line and removes its line end; raises ValueError for invalid bytes and NUL characters.

    `offset` is the byte at which the line starts in its file, for the message. In `encoding`, a line feed must be the
    byte 0x0a and not part of another character.
    """
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = line.decode(encoding)
    except UnicodeDecodeError as error:
        in_file = "" if offset is None else f" and {offset + error.start + 1} of the file"
        byte = f"byte {error.start + 1} of the line{in_file}, 0x{line[error.start]:02x}"
        raise ValueError(f"is not {encoding.upper()}: {byte}, is invalid") from None
    if "\0" in text:
        raise ValueError(f"holds a NUL character at position {text.index(chr(0)) + 1}; is the file UTF-16, or damaged?")
    return text


def read_text_lines(path: PathLike, bad_rows: BadRows) -> Iterator[str]:
    """Reads the lines of a UTF-8 file without their line ends; lines that are not valid go to `bad_rows`."""
    for number, line in numbered_lines(path):
        try:
            text = decode_line(line)
        except ValueError as error:
            bad_rows.report(path, number, str(error))
        else:
            yield text


def check_text(column: str, text: Any) -> str:
    """Returns a value; raises ValueError with the column's name if it is not a string that UTF-8 can encode."""
    if not isinstance(text, str):
        raise ValueError(f"{column!r} must be a string, got {quotation(text)}")
    if not is_encodable(text):
        raise ValueError(f"{column!r} holds half of a surrogate pair or bytes that are not UTF-8: {quotation(text)}")
    return text


def is_encodable(text: str) -> bool:
    """Returns whether UTF-8 can encode a string; it cannot encode half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def parse_json(path: PathLike, text: str, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Parses the text of a JSON file; raises `BadRowError` with the line of a syntax error."""
    try:
        return json.loads(text, object_hook=object_hook)
    except json.JSONDecodeError as error:
        raise BadRowError(path, error.lineno, f"is not valid JSON ({error.msg}, column {error.colno})") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
