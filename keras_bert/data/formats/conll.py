"""CoNLL's column files: sentences of tagged tokens (CoNLL-2003, arXiv cs/0306050, and many others)."""

import functools
from itertools import chain, pairwise
from typing import NamedTuple

from keras_bert.data.example_files import find_files
from keras_bert.data.example_stream import ExampleStream
from keras_bert.data.formats.text_lines import check_text, decode_line, numbered_lines
from keras_bert.io.atomic_write import atomic_text_file
from keras_bert.io.row_errors import BadRows, plural, quotation
from keras_bert.text.tags import PLAIN, check_tag

DOCUMENT_MARK = "-DOCSTART-"


class TaggedSentence(NamedTuple):
    """A sentence of a CoNLL file.

    Args:
        tokens: tuple of str.
        tags: tuple of str, as many; None where they were not read.
        document: int, ascending: sentences of the same number stand one after the other in the same document.
        line: int. The line of the first token in its file, from 1.

    Example:

    >>> TaggedSentence(("In", "Paris"), ("O", "B-place"), document=0, line=1).tokens
    ('In', 'Paris')
    """

    tokens: tuple[str, ...]
    tags: tuple[str, ...] | None
    document: int
    line: int


def read_conll(paths, tag_column=-1, token_column=0, scheme=None, comment_prefix=None, bad_rows=None, known_tags=None):
    """Sentences from files with a token on every line.

    A line ends at the line feed only. Its columns are separated by a tab each, or, where the line holds no tab, by any
    number of spaces; whatever else Unicode takes for white space belongs to the token. All lines of a file have the
    same number of columns. A line with nothing but tabs and spaces ends a sentence.

    A line that begins with `-DOCSTART-` is no token: it begins a document. Sentences before the first such line of a
    file are documents of their own, and so are all of a file that has none: nothing says that they follow one another,
    as tweets do not.

    A "#" may be a token, so lines are taken for comments only if `comment_prefix` says how they begin, and only before
    the first token of a sentence. Multi-word tokens and empty nodes of CoNLL-U (1-2, 1.1) are taken for tokens.

    Args:
        paths: str or Path, or a list of them, as for `find_files`; files whose names end in `.gz` are decompressed.
        tag_column: int, from 0, or from the end if negative; None for files whose tags are not wanted, or not there.
        token_column: int, from 0, or from the end if negative.
        scheme: str, one of `keras_bert.text.tags.SCHEMES`, of which the tags must be; they are given as they are in the
            file. None takes anything printable for a tag.
        comment_prefix: str, what comments begin with, such as "# " in CoNLL-U. None for files without comments.
        bad_rows: a `BadRows`, told of lines that have another number of columns than the first one, lack a column, have
            an empty token, one that begins with the mark of documents or a tag that cannot be one, or are not UTF-8. If
            they are skipped, the whole sentence is left out, and each of its bad lines counts. None takes the first one
            for an error.
        known_tags: collection of str, or None. A tag that is not among them makes a bad line, too.

    Returns:
        `ExampleStream` of `TaggedSentence`.

    Raises:
        FileNotFoundError: if one of the files does not exist, or a pattern matches none.
        ValueError: if tokens and tags are wanted from the same column, the scheme is unknown, or, when it is read, a
            file has no tokens.
        BadRowError: when a bad line is read, unless `bad_rows` skips it.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "train.conll"
    >>> _ = path.write_text("In\\tO\\nParis\\tB-place\\n\\nYes\\tO\\n")
    >>> for sentence in read_conll(path, scheme="IOB2"):
    ...     print(sentence)
    TaggedSentence(tokens=('In', 'Paris'), tags=('O', 'B-place'), document=0, line=1)
    TaggedSentence(tokens=('Yes',), tags=('O',), document=1, line=4)
    """
    if token_column == tag_column:
        raise ValueError(f"tokens and tags must stand in different columns; both are wanted from {token_column}")
    if comment_prefix == "":
        raise ValueError('comment_prefix must be at least one character, got ""; give None for files without comments')
    scheme = PLAIN if scheme is None else scheme
    check_tag("O", scheme)  # raises for an unknown scheme
    files = find_files(paths)
    parse = functools.partial(_parse, token_column, tag_column, scheme, known_tags)
    bad_rows = BadRows() if bad_rows is None else bad_rows
    return ExampleStream(functools.partial(_read, files, parse, comment_prefix, bad_rows), str(paths))


def write_conll(path, sentences, overwrite=False):
    """Writes tagged sentences as a CoNLL file: token, tab, tag, and an empty line after each sentence.

    Documents are marked by lines of `-DOCSTART-` if one of them has several sentences, so that `read_conll` reads the
    same sentences again.

    Args:
        path: str or Path. The file to write.
        sentences: list of `TaggedSentence`, with tags.
        overwrite: bool. Whether a file of that name may be replaced.

    Returns:
        int, the number of sentences.

    Raises:
        FileExistsError: if there is a file and it may not be replaced.
        ValueError: if there are no sentences, one has no tokens or not a tag for each, or a token or tag would be read
            as something else. The file is then not written.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "predictions.conll"
    >>> write_conll(path, [TaggedSentence(("In", "Paris"), ("O", "B-place"), 0, 1)])
    1
    >>> path.read_text()
    'In\\tO\\nParis\\tB-place\\n\\n'
    """
    sentences = list(sentences)
    if not sentences:
        raise ValueError("there are no sentences to write")
    documents = [sentence.document for sentence in sentences]
    has_marks = any(first == second for first, second in pairwise(documents))
    with atomic_text_file(path, overwrite) as file:
        for before, sentence in zip([None, *documents], sentences, strict=False):
            if has_marks and sentence.document != before:
                file.write(f"{DOCUMENT_MARK}\tO\n\n")
            file.writelines(_lines(sentence))
            file.write("\n")
    return len(sentences)


def _read(files, parse, comment_prefix, bad_rows):
    document = -1
    for file in files:
        for line, rows, begins_document in _sentences(file, parse, comment_prefix, bad_rows):
            document += begins_document
            tokens, tags = zip(*rows, strict=True)
            yield TaggedSentence(tokens, None if tags[0] is None else tags, document, line)


def _sentences(path, parse, comment_prefix, bad_rows):
    """Iterator of a sentence's first line, its rows of token and tag, and whether it begins a document."""
    has_marks, begins_document = False, True
    first, rows, is_bad = None, [], False  # of the sentence so far
    num_columns = None
    # An empty line more, for the last sentence of a file that ends without one.
    for line, raw in chain(numbered_lines(path), [(None, b"")]):
        try:
            text = decode_line(raw)
            is_mark = text.startswith(DOCUMENT_MARK)
            if is_mark or not text.strip("\t "):
                if rows and not is_bad:
                    yield first, rows, begins_document or not has_marks
                    begins_document = False
                first, rows, is_bad = None, [], False
                if is_mark:
                    has_marks = begins_document = True
            elif first is not None or comment_prefix is None or not text.startswith(comment_prefix):
                first = line if first is None else first
                columns = _columns(text)
                num_columns = num_columns or len(columns)
                rows.append(parse(columns, num_columns))
        except ValueError as error:
            first, is_bad = line if first is None else first, True
            bad_rows.report(path, line, str(error))
    if num_columns is None:
        raise ValueError(f"{path} has no tokens")


def _columns(text):
    if "\t" in text:
        return [column.strip(" ") for column in text.split("\t")]
    return [column for column in text.split(" ") if column]


def _parse(token_column, tag_column, scheme, known_tags, columns, num_columns):
    """The token and the tag of a line."""
    number = len(columns)
    if number != num_columns:
        raise ValueError(f"has {plural(number, 'column')}, and the first line with a token {num_columns}")
    place = _place(token_column, number, "the token")
    if not columns[place]:
        raise ValueError(f"the token, in column {token_column}, is empty")
    if columns[place].startswith(DOCUMENT_MARK):  # Written, it would be at the beginning of its line, and be a mark.
        raise ValueError(
            f"the token {quotation(columns[place])}, in column {token_column}, begins with {DOCUMENT_MARK}, the mark "
            "of documents, which belongs at the beginning of its line"
        )
    if tag_column is None:
        return columns[place], None
    place_of_tag = _place(tag_column, number, "the tag")
    if place_of_tag == place:
        raise ValueError(
            f"has {plural(number, 'column')}, so that columns {token_column} and {tag_column} are the same one; where "
            "there are no tags, tag_column must be None"
        )
    check_tag(columns[place_of_tag], scheme)
    if known_tags is not None and columns[place_of_tag] not in known_tags:
        raise ValueError(f"the tag {columns[place_of_tag]!r} is unknown; known are {sorted(known_tags)}")
    return columns[place], columns[place_of_tag]


def _place(column, number, what):
    place = column + number if column < 0 else column
    if not 0 <= place < number:
        raise ValueError(
            f"has {plural(number, 'column')}, and {what} is wanted from column {column} (they count from 0)"
        )
    return place


def _lines(sentence):
    if not sentence.tokens or sentence.tags is None or len(sentence.tags) != len(sentence.tokens):
        raise ValueError(f"a sentence must have tokens and a tag for each; got {quotation(sentence)}")
    for token, tag in zip(sentence.tokens, sentence.tags, strict=True):
        check_text("token", token)
        check_tag(tag, PLAIN)
        line = f"{token}\t{tag}"
        if (
            not token
            or _columns(line) != [token, tag]
            or "\n" in line
            or "\0" in line
            or line.startswith(DOCUMENT_MARK)
        ):
            raise ValueError(
                f"a line of the token {quotation(token)} and the tag {quotation(tag)} would be read as another"
            )
        yield f"{line}\n"
