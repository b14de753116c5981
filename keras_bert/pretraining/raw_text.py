"""Documents of sentences from files of raw text."""

import codecs
import collections
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from keras_bert.data.example_files import find_files
from keras_bert.data.formats.json_lines import read_values
from keras_bert.data.formats.text_lines import FilePosition, check_text, decode_line, numbered_lines
from keras_bert.io.row_errors import BadRows
from keras_bert.pretraining.paragraphs import AUTO, BLANK_LINE, HYPHENS, LINE, PARAGRAPH_ENDS, join_paragraphs
from keras_bert.pretraining.sentences import check_language, split_sentences
from keras_bert.settings import Settings, setting
from keras_bert.typing import PathLike

TEXT = "text"
JSON_LINES = "jsonl"
FILE_FORMATS = (TEXT, JSON_LINES)
FILE = "file"
DOCUMENT_UNITS = (FILE, LINE, BLANK_LINE)

_MAX_LOGGED_FILES = 5
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, kw_only=True)
class CorpusFormat(Settings):
    """Settings for reading files of raw text."""

    file_format: str = setting(TEXT, "Format of the input; jsonl is JSON Lines.", choices=FILE_FORMATS)
    text_field: str = setting("text", "Key of the text in the objects of JSON Lines.")
    document_per: str = setting(FILE, "Part of a text file that is a document.", choices=DOCUMENT_UNITS)
    language: str = setting("en", "Language code, such as en, zh or ko.")
    encoding: str = setting("utf-8", "Encoding of text files; JSON Lines are UTF-8.")
    paragraph_end: str = setting(AUTO, "What ends a paragraph, in addition to blank lines.", choices=PARAGRAPH_ENDS)
    hyphens: str = setting(AUTO, "Treatment of hyphens at the ends of wrapped lines.", choices=HYPHENS)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_encoding(self.encoding)
        is_utf_8 = codecs.lookup(self.encoding).name == "utf-8"
        if self.file_format == JSON_LINES and not (self.document_per == FILE and is_utf_8):
            raise ValueError(
                "in JSON Lines every line is a document, in UTF-8: document_per and encoding must keep their defaults, "
                f"got document_per={self.document_per!r}, encoding={self.encoding!r}"
            )
        check_language(self.language)


@dataclass
class CorpusCounts:
    """Numbers of files, documents, paragraphs, sentences and bytes read, and of files and JSON objects without text."""

    files: int = 0
    empty_files: int = 0
    documents: int = 0
    paragraphs: int = 0
    sentences: int = 0
    empty_documents: int = 0
    bytes_read: int = 0


def read_documents(
    paths: PathLike | Iterable[PathLike],
    corpus_format: CorpusFormat | None = None,
    bad_rows: BadRows | None = None,
    counts: CorpusCounts | None = None,
) -> Iterator[Iterator[str]]:
    """Reads documents of sentences lazily, with at most one line and one block of text in memory.

    A document must be read before the next one is taken.
    """
    settings = CorpusFormat() if corpus_format is None else corpus_format
    counts = CorpusCounts() if counts is None else counts
    bad_rows = BadRows() if bad_rows is None else bad_rows

    def split(lines: Iterable[str]) -> Iterator[str]:
        for paragraph in join_paragraphs(lines, settings.paragraph_end, settings.hyphens):
            counts.paragraphs += 1
            for sentence in split_sentences(paragraph, settings.language):
                counts.sentences += 1
                yield sentence

    def read(paths: Iterable[Path]) -> Iterator[Iterator[str]]:
        for path in paths:
            counts.files += 1
            num_documents = counts.documents
            for lines in _read_document_lines(path, settings, bad_rows, counts):
                sentences = split(lines)
                first = next(sentences, None)
                if first is not None:
                    counts.documents += 1
                    yield itertools.chain([first], sentences)
                    # The next document starts after the sentences that the caller has not taken.
                    collections.deque(sentences, maxlen=0)
            if counts.documents == num_documents:
                _count_empty_file(path, counts)

    return read(find_files(paths))


def check_encoding(encoding: str) -> None:
    """Raises a ValueError if an encoding is unknown, or a line feed is not the byte 0x0a in it."""
    try:
        has_line_feeds = b"\n".decode(encoding) == "\n"
    except LookupError:
        raise ValueError(
            f"unknown encoding {encoding!r}; give a name such as 'utf-8', 'latin-1' or 'gb18030'"
        ) from None
    except UnicodeError:
        has_line_feeds = False
    if not has_line_feeds:
        raise ValueError(f"line ends cannot be found in the encoding {encoding!r}; convert the files to UTF-8")


def _read_document_lines(
    path: Path, settings: CorpusFormat, bad_rows: BadRows, counts: CorpusCounts
) -> Iterator[Iterable[str]]:
    """Yields the lines of each document of a file."""
    if settings.file_format == JSON_LINES:
        yield from _read_objects(path, settings.text_field, bad_rows, counts)
        return
    lines = _read_text_lines(path, settings.encoding, bad_rows, counts)
    if settings.document_per == FILE:
        yield lines
    elif settings.document_per == LINE:
        yield from ([line] for line in lines if line and not line.isspace())
    else:
        for is_filled, group in itertools.groupby(lines, key=lambda line: bool(line) and not line.isspace()):
            if is_filled:
                yield group


def _count_empty_file(path: Path, counts: CorpusCounts) -> None:
    counts.empty_files += 1
    if counts.empty_files <= _MAX_LOGGED_FILES:
        logging.warning("no text in %s", path)
    if counts.empty_files == _MAX_LOGGED_FILES:
        logging.warning("further files without text are only counted")


def _read_text_lines(path: Path, encoding: str, bad_rows: BadRows, counts: CorpusCounts) -> Iterator[str]:
    """Yields the lines of a file without their ends; a blank line for each one that cannot be used."""
    position = FilePosition()
    for number, line in _count_bytes(numbered_lines(path, position), position, counts):
        try:
            text = decode_line(line, encoding, position.line_offset)
        except ValueError as error:
            bad_rows.report(path, number, f"{error}; if the file has another encoding, specify it (encoding)")
            yield ""
        else:
            yield from _split_lines(text)


def _read_objects(path: Path, text_field: str, bad_rows: BadRows, counts: CorpusCounts) -> Iterator[list[str]]:
    """Yields the lines of the text of each object, except white space."""
    if not any(line.strip() for _, line in numbered_lines(path)):
        return
    position = FilePosition()
    rows = read_values(path, [text_field], bad_rows, position)
    for number, (text,) in _count_bytes(rows, position, counts):
        try:
            check_text(text_field, text)
        except ValueError as error:
            bad_rows.report(path, number, str(error))
            continue
        if text.strip():
            yield _split_lines(text)
        else:
            counts.empty_documents += 1


def _count_bytes(rows: Iterable[tuple], position: FilePosition, counts: CorpusCounts) -> Iterator[tuple]:
    counted = 0
    for row in rows:
        counts.bytes_read += position.bytes_read - counted
        counted = position.bytes_read
        yield row
    counts.bytes_read += position.bytes_read - counted


def _split_lines(text: str) -> list[str]:
    """Splits a text at LF, CRLF and CR, and removes the byte order marks of concatenated files."""
    if _BYTE_ORDER_MARK in text:
        text = text.replace(_BYTE_ORDER_MARK, "")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.split("\n")
