"""How a corpus of prepared text is cut into shards: ranges of bytes of its files, made of whole documents.

A shard is what one process holds in memory at a time, and what random next sentences are drawn from. The cut depends on
the files and the size of a shard, and on nothing else; finding it reads a few kilobytes a shard, not the corpus.
"""

import os
import re
from dataclasses import dataclass

import tensorflow as tf
from absl import logging

MEGABYTE = 1_000_000
SHARD_MEGABYTES = 8
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_BLANK_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")
_BLOCK = 1 << 16  # bytes that are read at once in search of a blank line


@dataclass(frozen=True)
class Shard:
    """A part of a corpus.

    Args:
        number: int, its place in the plan.
        pieces: tuple of (path, start, end), ranges of bytes; a document ends where a piece does.

    Example:

    >>> Shard(0, (("a.txt", 0, 100), ("b.txt", 0, 50))).size
    150
    """

    number: int
    pieces: tuple

    @property
    def size(self):
        """int. Its bytes."""
        return sum(end - start for _, start, end in self.pieces)


def plan_shards(paths, shard_bytes=SHARD_MEGABYTES * MEGABYTE):
    """Cuts a corpus into shards.

    A shard ends at the first blank line after `shard_bytes`, or where a file ends; small files share one. Where there
    is none before twice as many bytes, a document, which is then longer than `shard_bytes`, is cut after a line; the
    log says so.

    Args:
        paths: list of str. Files of prepared text; their order counts.
        shard_bytes: int.

    Returns:
        list of `Shard`. None of them has more than twice `shard_bytes`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if there are no files, all of them are empty, a file is compressed or UTF-16, one is given twice,
            or a line is longer than `shard_bytes`.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "corpus.txt"
    >>> _ = path.write_text("one\\ntwo\\n\\nthree\\n\\nfour\\n")
    >>> [shard.pieces[0][1:] for shard in plan_shards([str(path)], shard_bytes=5)]
    [(0, 9), (9, 16), (16, 21)]
    """
    if shard_bytes < 1:
        raise ValueError(f"shard_bytes must be at least 1, got {shard_bytes}")
    check_files(paths)
    _check_different(paths)
    shards, pieces, room, cut = [], [], shard_bytes, []
    for path in paths:
        with tf.io.gfile.GFile(path, "rb") as file:
            size, start = file.size(), 0
            _check_encoding(path, file)
            while start < size:
                end, is_whole = _end_of_piece(file, path, start, size, room, shard_bytes)
                pieces.append((path, start, end))
                if not is_whole:
                    cut.append(f"{path} at byte {end}")
                room -= end - start
                start = end
                if room <= 0:
                    shards.append(Shard(len(shards), tuple(pieces)))
                    pieces, room = [], shard_bytes
    if pieces:
        shards.append(Shard(len(shards), tuple(pieces)))
    if not shards:
        raise ValueError(f"all {len(paths)} files of the corpus are empty, such as {paths[0]}")
    if cut:
        logging.warning(
            "documents of more than %d bytes are cut into several, at %d places, such as %s. Larger shards keep them "
            "whole, and need more memory",
            shard_bytes,
            len(cut),
            cut[0],
        )
    return shards


def check_files(paths):
    """Refuses what cannot be read as text.

    Args:
        paths: list of str.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if there are no files, or one is compressed.
    """
    if not paths:
        raise ValueError("no files are given")
    for path in paths:
        if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
            raise FileNotFoundError(f"there is no file {path}; give files of prepared text")
        if path.endswith((".gz", ".bz2", ".zip", ".xz", ".zst")):
            raise ValueError(f"{path} is compressed: its parts cannot be read by themselves. Unpack it first")


def _check_different(paths):
    seen = set()
    for path in paths:
        real = path if "://" in path else os.path.realpath(path)
        if real in seen:
            raise ValueError(f"{path} is given twice; its sentences would be used twice as often")
        seen.add(real)


def _check_encoding(path, file):
    if file.read(2) in _UTF_16_MARKS:
        raise ValueError(f"{path} is UTF-16; prepared text is UTF-8 (python -m tools.prepare_corpus makes it)")


def _end_of_piece(file, path, start, size, room, shard_bytes):
    """Where the piece that begins at `start` ends, and whether a document does, too."""
    if start + room >= size:
        return size, True
    limit = start + room + shard_bytes
    blank_line = _find_blank_line(file, start + room, min(limit, size))
    if blank_line is not None:
        return blank_line, True
    if limit >= size:
        return size, True
    file.seek(start + room)
    last_line_end = file.read(shard_bytes).rfind(b"\n")
    if last_line_end < 0:
        raise ValueError(
            f"{path}: from byte {start + room} on there is no line end within {shard_bytes} bytes, the size of a "
            "shard. Prepared text has one sentence a line (python -m tools.prepare_corpus makes it)"
        )
    return start + room + last_line_end + 1, False


def _find_blank_line(file, start, end):
    """The end of the first blank line that ends between two positions, or None."""
    tail, position = b"", start
    file.seek(start)
    while position < end:
        block = file.read(min(_BLOCK, end - position))
        if not block:
            return None
        text = tail + block
        match = _BLANK_LINE.search(text)
        if match:
            return position - len(tail) + match.end()
        position += len(block)
        last_line = text.rfind(b"\n")
        # What has other characters than white space is no blank line, and need not be searched again.
        tail = text[last_line:] if last_line >= 0 and text[last_line:].isspace() else b""
    return None


def read_lines(shard):
    """The lines of a shard, one piece after the other.

    Args:
        shard: `Shard`.

    Yields:
        str, without line ends; an empty one after each piece, where its last document ends.

    Raises:
        ValueError: as `lines_of_range`.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "corpus.txt"
    >>> _ = path.write_text("one\\ntwo\\n")
    >>> list(read_lines(Shard(0, ((str(path), 0, 8),))))
    ['one', 'two', '']
    """
    for piece in shard.pieces:
        yield from lines_of_range(*piece)
        yield ""


def lines_of_range(path, start, end):
    """The lines of a part of a file.

    Args:
        path: str.
        start, end: int, bytes; where lines begin.

    Returns:
        list of str, without line feeds. A carriage return or a byte order mark is left: tokenizers drop both.

    Raises:
        ValueError: if the file is not UTF-8 or is shorter than that; the message names file and byte.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "corpus.txt"
    >>> _ = path.write_text("one\\ntwo\\n")
    >>> lines_of_range(str(path), 4, 8)
    ['two']
    """
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(start)
        data = file.read(end - start)
    if len(data) < end - start:
        raise ValueError(f"{path} has changed: it ends before byte {end}. Begin again, with an output of its own")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8: byte {start + error.start} cannot be decoded. Convert it "
            "(python -m tools.prepare_corpus --encoding)"
        ) from error
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines
