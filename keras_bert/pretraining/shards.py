"""Division of a prepared corpus into shards: byte ranges of its files that consist of whole documents.

A shard is what a process holds in memory at a time; the division depends only on the files and the shard size.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tensorflow as tf
from absl import logging

from keras_bert.data.worker_records import check_positive

MEGABYTE = 1_000_000
SHARD_MEGABYTES = 8
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_COMPRESSED_SUFFIXES = (".gz", ".bz2", ".zip", ".xz", ".zst")
_BLANK_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")
_BLOCK_SIZE = 1 << 16  # bytes read at once in search of a blank line


@dataclass(frozen=True)
class Shard:
    """A part of a corpus: its number in the plan, and byte ranges (path, start, end). A document ends with a range."""

    number: int
    ranges: tuple[tuple[str, int, int], ...]

    @property
    def size(self) -> int:
        """Size in bytes."""
        return sum(end - start for _, start, end in self.ranges)


def plan_shards(paths: Sequence[str], shard_bytes: int = SHARD_MEGABYTES * MEGABYTE) -> list[Shard]:
    """Divides files of prepared text, whose order matters, into shards.

    A shard ends at the first blank line after `shard_bytes`, or at the end of a file; small files share one. If there
    is no blank line within twice that size, the document is cut after a line, which is logged. Raises FileNotFoundError
    if a file does not exist, and ValueError if there are no files, all are empty, a file is compressed or UTF-16 or
    given twice, or a line is longer than `shard_bytes`.
    """
    check_positive(shard_bytes=shard_bytes)
    check_files(paths)
    _check_distinct(paths)
    shards: list[Shard] = []
    ranges: list[tuple[str, int, int]] = []
    room, cuts = shard_bytes, []
    for path in paths:
        with tf.io.gfile.GFile(path, "rb") as file:
            size, start = file.size(), 0
            if file.read(2) in _UTF_16_MARKS:
                raise ValueError(f"{path} is UTF-16; convert it to UTF-8 (python -m tools.prepare_corpus --encoding)")
            while start < size:
                end, is_whole = _find_end(file, path, start, room, shard_bytes)
                ranges.append((path, start, end))
                if not is_whole:
                    cuts.append(f"{path} at byte {end}")
                room -= end - start
                start = end
                if room <= 0:
                    shards.append(Shard(len(shards), tuple(ranges)))
                    ranges, room = [], shard_bytes
    if ranges:
        shards.append(Shard(len(shards), tuple(ranges)))
    if not shards:
        raise ValueError(f"all {len(paths)} files of the corpus are empty, such as {paths[0]}")
    if cuts:
        logging.warning(
            "documents longer than %d bytes are cut at %d positions, such as %s. Larger shards keep them whole, but "
            "need more memory",
            shard_bytes,
            len(cuts),
            cuts[0],
        )
    return shards


def check_files(paths: Sequence[str]) -> None:
    """Raises an error if there are no files, or one is missing or compressed."""
    if not paths:
        raise ValueError("no files are given")
    for path in paths:
        if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
            raise FileNotFoundError(f"{path} does not exist or is a folder; give files of prepared text")
        if path.endswith(_COMPRESSED_SUFFIXES):
            raise ValueError(f"{path} is compressed, so parts of it cannot be read; decompress it first")


def _check_distinct(paths: Sequence[str]) -> None:
    seen = set()
    for path in paths:
        real = path if "://" in path else os.path.realpath(path)
        if real in seen:
            raise ValueError(f"{path} is given twice; its sentences would be used twice as often")
        seen.add(real)


def _find_end(file: tf.io.gfile.GFile, path: str, start: int, room: int, shard_bytes: int) -> tuple[int, bool]:
    """Returns the end of the range that starts at `start`, and whether it is the end of a document."""
    size = file.size()
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
            f"{path}: there is no line end within {shard_bytes} bytes, the size of a shard, after byte {start + room}. "
            "Prepared text has one sentence per line (python -m tools.prepare_corpus writes it)"
        )
    return start + room + last_line_end + 1, False


def _find_blank_line(file: tf.io.gfile.GFile, start: int, end: int) -> int | None:
    """Returns the end of the first blank line that ends between two positions, or None."""
    tail, position = b"", start
    file.seek(start)
    while position < end:
        block = file.read(min(_BLOCK_SIZE, end - position))
        if not block:
            return None
        text = tail + block
        match = _BLANK_LINE.search(text)
        if match:
            return position - len(tail) + match.end()
        position += len(block)
        last_line = text.rfind(b"\n")
        # A line with other characters than white space is not blank, and need not be searched again.
        tail = text[last_line:] if last_line >= 0 and text[last_line:].isspace() else b""
    return None


def read_lines(shard: Shard) -> Iterator[str]:
    """Yields the lines of a shard, and an empty line after each range, where its last document ends."""
    for byte_range in shard.ranges:
        yield from read_range(*byte_range)
        yield ""


def read_range(path: str, start: int, end: int) -> list[str]:
    """Reads the lines in a byte range of a file, split at line feeds only."""
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(start)
        data = file.read(end - start)
    if len(data) < end - start:
        raise ValueError(f"{path} has changed: it ends before byte {end}. Start again with a new output folder")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8: byte {start + error.start} cannot be decoded. Convert it "
            "(python -m tools.prepare_corpus --encoding)"
        ) from error
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines
