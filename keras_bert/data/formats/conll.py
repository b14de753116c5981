"""Column files in CoNLL format: sentences of tagged tokens (CoNLL-2003, arXiv cs/0306050, and many others)."""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

from keras_bert.data.example_files import find_files
from keras_bert.data.example_stream import ExampleStream
from keras_bert.data.formats.text_lines import check_text, decode_line, numbered_lines
from keras_bert.io.atomic_write import atomic_text_file
from keras_bert.io.row_errors import BadRows, plural, quotation
from keras_bert.text.tags import PLAIN, check_tag
from keras_bert.typing import PathLike

DOCUMENT_MARK = "-DOCSTART-"

# A token with its tag, or None if tags are not read.
_Row = tuple[str, str | None]


class TaggedSentence(NamedTuple):
    """A sentence of a CoNLL file."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...] | None  # None if they were not read
    document: int  # ascending; consecutive sentences with the same number follow one another
    line: int  # line of the first token in its file, from 1


def read_conll(
    paths: PathLike | Iterable[PathLike],
    tag_column: int | None = -1,
    token_column: int = 0,
    scheme: str | None = None,
    comment_prefix: str | None = None,
    bad_rows: BadRows | None = None,
    known_tags: Collection[str] | None = None,
) -> ExampleStream[TaggedSentence]:
    """Reads sentences from files with one token per line.

    A line ends at the line feed only. Its columns are separated by a tab each, or, if it has no tab, by spaces; other
    Unicode white space belongs to the token. All lines of a file have the same number of columns. A line that contains
    only tabs and spaces ends a sentence.

    A line that starts with `-DOCSTART-` starts a document. Sentences before the first such line of a file are documents
    of their own, and so are all sentences of a file without one: they need not be consecutive (tweets are not).

    "#" may be a token, so lines are comments only if they start with `comment_prefix`, and only before the first token
    of a sentence. Multi-word tokens and empty nodes of CoNLL-U (1-2, 1.1) are read as tokens.

    Columns are counted from 0, or from the end if negative; `tag_column=None` does not read tags. The tags must be in
    the `scheme`, one of `keras_bert.text.tags.SCHEMES` (None accepts any printable tag), and among `known_tags`, if
    given. They are returned as written. `paths` are files or glob patterns; `.gz` files are decompressed.

    A line is invalid if it has another number of columns than the first, lacks a column, has an empty token or one that
    starts with the document mark or an invalid tag, or is not UTF-8. If `bad_rows` skips them, each counts, and its
    sentence is skipped as a whole. Raises ValueError for a file without tokens.
    """
    if token_column == tag_column:
        raise ValueError(f"tokens and tags must be in different columns; both are read from column {token_column}")
    if comment_prefix == "":
        raise ValueError('comment_prefix must be at least one character, got ""; give None for files without comments')
    scheme = PLAIN if scheme is None else scheme
    check_tag("O", scheme)  # raises for an unknown scheme
    files = find_files(paths)
    known = None if known_tags is None else frozenset(known_tags)
    parse = partial(_parse_row, token_column, tag_column, scheme, known)
    bad_rows = BadRows() if bad_rows is None else bad_rows
    return ExampleStream(partial(_read_files, files, parse, comment_prefix, bad_rows), str(paths))


def write_conll(path: PathLike, sentences: Iterable[TaggedSentence], overwrite: bool = False) -> int:
    """Writes tagged sentences as a CoNLL file (token, tab, tag) and returns their number.

    Documents are marked by `-DOCSTART-` lines if one of them has several sentences, so that `read_conll` reads the same
    sentences again. Raises ValueError, and writes nothing, if there are no sentences, a sentence does not have a tag
    for each token, or a token or tag would be read differently.
    """
    sentences = list(sentences)
    if not sentences:
        raise ValueError("there are no sentences to write")
    documents = [sentence.document for sentence in sentences]
    has_marks = any(first == second for first, second in pairwise(documents))
    with atomic_text_file(path, overwrite) as file:
        for previous, sentence in zip([None, *documents], sentences, strict=False):
            if has_marks and sentence.document != previous:
                file.write(f"{DOCUMENT_MARK}\tO\n\n")
            file.writelines(_format_rows(sentence))
            file.write("\n")
    return len(sentences)


def _read_files(
    files: list[Path], parse: Callable[[list[str], int], _Row], comment_prefix: str | None, bad_rows: BadRows
) -> Iterator[TaggedSentence]:
    document = -1
    for file in files:
        for line, rows, starts_document in _read_sentences(file, parse, comment_prefix, bad_rows):
            document += starts_document
            tags = tuple(tag for _, tag in rows if tag is not None)
            yield TaggedSentence(tuple(token for token, _ in rows), tags or None, document, line)


def _read_sentences(
    path: Path, parse: Callable[[list[str], int], _Row], comment_prefix: str | None, bad_rows: BadRows
) -> Iterator[tuple[int, list[_Row], bool]]:
    """Yields the first line of each sentence, its rows, and whether it starts a document."""
    has_marks, starts_document = False, True
    # The sentence so far.
    first_line = 0
    rows: list[_Row] = []
    is_bad = False
    num_columns = 0
    # An additional empty line, for the last sentence of a file that ends without one.
    for line, raw in chain(numbered_lines(path), [(0, b"")]):
        try:
            text = decode_line(raw)
            is_mark = text.startswith(DOCUMENT_MARK)
            if is_mark or not text.strip("\t "):
                if rows and not is_bad:
                    yield first_line, rows, starts_document or not has_marks
                    starts_document = False
                first_line, rows, is_bad = 0, [], False
                if is_mark:
                    has_marks = starts_document = True
            elif first_line or comment_prefix is None or not text.startswith(comment_prefix):
                first_line = first_line or line
                columns = _split_columns(text)
                num_columns = num_columns or len(columns)
                rows.append(parse(columns, num_columns))
        except ValueError as error:
            first_line, is_bad = first_line or line, True
            bad_rows.report(path, line, str(error))
    if not num_columns:
        raise ValueError(f"{path} has no tokens")


def _split_columns(text: str) -> list[str]:
    if "\t" in text:
        return [column.strip(" ") for column in text.split("\t")]
    return [column for column in text.split(" ") if column]


def _parse_row(
    token_column: int,
    tag_column: int | None,
    scheme: str,
    known_tags: frozenset[str] | None,
    columns: list[str],
    num_columns: int,
) -> _Row:
    if len(columns) != num_columns:
        raise ValueError(f"has {plural(len(columns), 'column')}, and the first line with a token {num_columns}")
    token_index = _column_index(token_column, num_columns, "the token")
    token = columns[token_index]
    if not token:
        raise ValueError(f"the token, in column {token_column}, is empty")
    if token.startswith(DOCUMENT_MARK):  # `write_conll` would write it at the start of its line, as a mark
        raise ValueError(
            f"the token {quotation(token)}, in column {token_column}, starts with {DOCUMENT_MARK}, the document mark, "
            "which belongs at the start of its line"
        )
    if tag_column is None:
        return token, None
    tag_index = _column_index(tag_column, num_columns, "the tag")
    if tag_index == token_index:
        raise ValueError(
            f"has {plural(num_columns, 'column')}, so columns {token_column} and {tag_column} are the same; for files "
            "without tags, tag_column must be None"
        )
    tag = columns[tag_index]
    check_tag(tag, scheme)
    if known_tags is not None and tag not in known_tags:
        raise ValueError(f"the tag {tag!r} is unknown; known are {sorted(known_tags)}")
    return token, tag


def _column_index(column: int, num_columns: int, name: str) -> int:
    index = column + num_columns if column < 0 else column
    if not 0 <= index < num_columns:
        raise ValueError(f"has {plural(num_columns, 'column')}, and {name} is in column {column} (counting from 0)")
    return index


def _format_rows(sentence: TaggedSentence) -> Iterator[str]:
    if not sentence.tokens or sentence.tags is None or len(sentence.tags) != len(sentence.tokens):
        raise ValueError(f"a sentence must have tokens and a tag for each; got {quotation(sentence)}")
    for token, tag in zip(sentence.tokens, sentence.tags, strict=True):
        check_text("token", token)
        check_tag(tag, PLAIN)
        line = f"{token}\t{tag}"
        is_ambiguous = not token or _split_columns(line) != [token, tag] or line.startswith(DOCUMENT_MARK)
        if is_ambiguous or "\n" in line or "\0" in line:
            raise ValueError(
                f"a line of the token {quotation(token)} and the tag {quotation(tag)} would be read differently"
            )
        yield f"{line}\n"
