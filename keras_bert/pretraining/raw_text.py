"""Documents of sentences from files of any text."""

import codecs
import collections
import dataclasses
import itertools

from absl import logging

from keras_bert.data.example_files import find_files
from keras_bert.data.formats.json_lines import read_values
from keras_bert.data.formats.text_lines import FilePlace, check_text, decode_line, numbered_lines
from keras_bert.io.row_errors import BadRows
from keras_bert.pretraining.paragraphs import AUTO, BLANK_LINE, LINE, check_layout, join_paragraphs
from keras_bert.pretraining.sentences import check_language, split_sentences

TEXT = "text"
JSON_LINES = "jsonl"
FORMS = (TEXT, JSON_LINES)
FILE = "file"
DOCUMENT_PARTS = (FILE, LINE, BLANK_LINE)

_LOGGED_FILES = 5
_BYTE_ORDER_MARK = "\ufeff"


@dataclasses.dataclass
class CorpusCounts:
    """What was read and found.

    Attributes:
        files: int. Files read, also in part.
        empty_files: int. Those without any text.
        documents, paragraphs, sentences: int. What was found in them.
        empty_documents: int. JSON objects whose text holds nothing but white space.
        bytes_read: int. Bytes of the files, as they are stored.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "story.txt"
    >>> _ = path.write_text("Rain fell. Nobody came.")
    >>> counts = CorpusCounts()
    >>> for document in read_documents(path, counts=counts):
    ...     pass
    >>> counts.documents, counts.sentences, counts.bytes_read
    (1, 2, 23)
    """

    files: int = 0
    empty_files: int = 0
    documents: int = 0
    paragraphs: int = 0
    sentences: int = 0
    empty_documents: int = 0
    bytes_read: int = 0


def read_documents(
    paths,
    form=TEXT,
    text_field="text",
    document_per=FILE,
    language="en",
    encoding="utf-8",
    paragraph_end=AUTO,
    hyphens=AUTO,
    bad_rows=None,
    counts=None,
):
    """Documents of sentences, read as they are taken.

    Byte order marks and line ends of all kinds (LF, CRLF, CR) are removed, wrapped lines joined, white space becomes
    single spaces, paragraphs are split into sentences. In memory is one line of the file (an error if it is longer than
    64 MiB), one paragraph, and a block of 262,144 characters that shows how lines make paragraphs; of a JSON Lines file
    one object.

    Args:
        paths: str or Path, or a list of them; of files, decompressed if their names end in `.gz`, or glob patterns.
        form: str. "text", or "jsonl": a JSON object on every line, each a document.
        text_field: str. The key of an object's text.
        document_per: str. What of a text file is one document: "file", "line", or "blank_line", what stands between
            blank lines.
        language: str. The code of the texts' language, as for `split_sentences`.
        encoding: str. That of text files, one in which a line feed is the byte 0x0a; JSON Lines are UTF-8.
        paragraph_end, hyphens: str. How lines make paragraphs, as for `detect_layout`; "auto" finds out for each
            document.
        bad_rows: a `BadRows`, told of lines that are not in the encoding or hold a NUL character, and of JSON objects
            without a text; a paragraph ends there. None takes the first one for an error.
        counts: a `CorpusCounts` that is added to, or None.

    Returns:
        Iterator of documents, each an iterator of str, the sentences, none of them empty or with a line break. Each
        document holds at least one, and must be read before the next is taken: what is left of it then is lost.

    Raises:
        FileNotFoundError: if a file does not exist, or a pattern matches none.
        ValueError: if an argument is not one of the allowed, or, when it is read, if a file is UTF-16, a broken gzip
            file, or has too long a line.
        BadRowError: on a bad line or object, unless `bad_rows` skips it; with its place in the file.
        ImportError: if sentencex is not installed.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "story.txt"
    >>> _ = path.write_bytes("\\ufeffIt was a dark and\\r\\nstormy night. Rain\\r\\nfell.\\r\\n".encode())
    >>> [list(document) for document in read_documents(path)]
    [['It was a dark and stormy night.', 'Rain fell.']]
    """
    paths = find_files(paths)
    _check_form(form, document_per, encoding)
    check_layout(paragraph_end, hyphens)
    check_language(language)
    bad_rows = BadRows() if bad_rows is None else bad_rows
    counts = CorpusCounts() if counts is None else counts

    def documents_of(path):
        if form == JSON_LINES:
            return _object_lines(path, text_field, bad_rows, counts)
        return _parts(_text_lines(path, encoding, bad_rows, counts), document_per)

    def sentences_of(lines):
        for paragraph in join_paragraphs(lines, paragraph_end, hyphens):
            counts.paragraphs += 1
            for sentence in split_sentences(paragraph, language):
                counts.sentences += 1
                yield sentence

    return _read_files(paths, documents_of, sentences_of, counts)


def check_encoding(encoding):
    """Raises if lines of text cannot be found before they are decoded.

    Args:
        encoding: str. The name of an encoding.

    Raises:
        ValueError: if it is unknown, or a line feed is not the byte 0x0a in it.

    Example:

    >>> check_encoding("utf-16")
    Traceback (most recent call last):
    ValueError: lines cannot be told in the encoding 'utf-16'; convert the files to UTF-8
    """
    try:
        is_line_feed = b"\n".decode(encoding) == "\n"
    except LookupError:
        raise ValueError(
            f"unknown encoding {encoding!r}; give a name such as 'utf-8', 'latin-1' or 'gb18030'"
        ) from None
    except UnicodeError:
        is_line_feed = False
    if not is_line_feed:
        raise ValueError(f"lines cannot be told in the encoding {encoding!r}; convert the files to UTF-8")


def _check_form(form, document_per, encoding):
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r}; allowed are {FORMS}")
    if document_per not in DOCUMENT_PARTS:
        raise ValueError(f"unknown document_per {document_per!r}; allowed are {DOCUMENT_PARTS}")
    check_encoding(encoding)
    if form == JSON_LINES and (document_per != FILE or codecs.lookup(encoding).name != "utf-8"):
        raise ValueError(
            f"a row of JSON Lines is a document, and UTF-8; got document_per={document_per!r}, encoding={encoding!r}"
        )


def _read_files(paths, documents_of, sentences_of, counts):
    for path in paths:
        counts.files += 1
        is_empty = True
        for lines in documents_of(path):
            sentences = sentences_of(lines)
            first = next(sentences, None)
            if first is not None:
                is_empty = False
                counts.documents += 1
                yield itertools.chain([first], sentences)
                # What the caller left is read all the same, as the next document begins behind it.
                collections.deque(sentences, maxlen=0)
        if is_empty:
            counts.empty_files += 1
            if counts.empty_files <= _LOGGED_FILES:
                logging.warning("no text in %s", path)
            if counts.empty_files == _LOGGED_FILES:
                logging.warning("further files without text are only counted")


def _text_lines(path, encoding, bad_rows, counts):
    """The lines of a file, without their ends; a blank one for each that cannot be used."""
    place = FilePlace()
    for number, line in _counting_bytes(numbered_lines(path, place), place, counts):
        try:
            text = decode_line(line, encoding, place.line_offset)
        except ValueError as error:
            bad_rows.report(path, number, f"{error}; if the file is in another encoding, give it (encoding)")
            yield ""
        else:
            yield from _lines_of(text)


def _object_lines(path, text_field, bad_rows, counts):
    """The lines of each object's text; of none that holds nothing but white space."""
    if not any(line.strip() for _, line in numbered_lines(path)):
        return
    place = FilePlace()
    rows = read_values(path, [text_field], bad_rows, place)
    for number, (text,) in _counting_bytes(rows, place, counts):
        try:
            check_text(text_field, text)
        except ValueError as error:
            bad_rows.report(path, number, str(error))
            continue
        if text.strip():
            yield _lines_of(text)
        else:
            counts.empty_documents += 1


def _counting_bytes(rows, place, counts):
    counted = 0
    for row in rows:
        counts.bytes_read += place.bytes_read - counted
        counted = place.bytes_read
        yield row
    counts.bytes_read += place.bytes_read - counted


def _lines_of(text):
    """The lines of a text whose line ends are LF, CRLF or CR, without the byte order marks of joined files."""
    if _BYTE_ORDER_MARK in text:
        text = text.replace(_BYTE_ORDER_MARK, "")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.split("\n")


def _parts(lines, document_per):
    """Iterators over the lines of each document of a text file."""
    if document_per == FILE:
        return iter([lines])
    if document_per == LINE:
        return ([line] for line in lines if line and not line.isspace())
    groups = itertools.groupby(lines, key=lambda line: bool(line) and not line.isspace())
    return (group for is_filled, group in groups if is_filled)
