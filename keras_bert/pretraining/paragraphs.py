"""Reconstruction of the paragraphs of a document from its lines, in any layout."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from statistics import median_low
from typing import NamedTuple

LINE = "line"
BLANK_LINE = "blank_line"
SHORT_LINE = "short_line"
AUTO = "auto"
PARAGRAPH_ENDS = (AUTO, LINE, BLANK_LINE, SHORT_LINE)
KEEP = "keep"
DROP = "drop"
HYPHENS = (AUTO, KEEP, DROP)

_BLOCK_CHARACTERS = 2**18  # text from which a layout is detected
_MAX_PARAGRAPH = 2**18  # characters; longer ones are not prose, and are cut to bound the memory

_SENTENCE_ENDS = ".!?…。！？｡．؟۔।॥"
_CLOSING_MARKS = "\"'”’»›)]}」』）】》〉_* \t"
_CONTINUING_MARKS = ",;:.!?)]"
_DASHES = "-–—"
_SOFT_HYPHEN = "\xad"
_HYPHEN_MARKS = "-‐"
# Chinese characters, kana, and full-width forms and punctuation. Korean separates words by spaces.
_UNSPACED = re.compile(r"[\u2e80-\u312f\u31a0-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]")
_UNSPACED_MARKS = "“”‘’…—·"
_FIRST_WORD = re.compile(r"\s*(\w+)")
_MIN_HYPHENS = 10


class Layout(NamedTuple):
    """Layout of a document: how its lines form paragraphs.

    Every line is a paragraph ("line"), or lines are wrapped and paragraphs end with a blank line ("blank_line") or also
    with a short line ("short_line"). With `joins_broken_lines`, a line that starts with a lowercase letter continues a
    line that ended within a sentence. `drops_hyphens`: hyphens at line ends come from wrapping.
    """

    paragraph_end: str
    width: int
    joins_broken_lines: bool
    drops_hyphens: bool


def detect_layout(lines: Sequence[str], paragraph_end: str = AUTO, hyphens: str = AUTO) -> Layout:
    """Detects the layout of a sample of lines; arguments other than "auto" force a part of it.

    Lines are wrapped if most of those with another line directly after them end within a sentence, and these are at
    least a fifth of all lines and about as long as the longest. Then paragraphs end with short lines if more sentences
    end on a line shorter than three quarters of the width and directly followed by another than there are lines before
    a blank one. The rule is right for each of a hundred English novels. Hyphens at line ends come from wrapping if most
    of the parts after them are not words of the sample; fewer than ten are kept.
    """
    lines = [line.strip() for line in lines]
    filled = [line for line in lines if line]
    width = sorted(map(len, filled))[int(0.95 * len(filled))] if filled else 0
    pairs = [(a, b) for a, b in itertools.pairwise(lines) if a and b]
    broken = [a for a, _ in pairs if not _ends_sentence(a)]
    joins_broken_lines = False
    if paragraph_end == AUTO:
        are_most = 2 * len(broken) >= len(pairs) and 5 * len(broken) >= len(filled)
        if not broken or not are_most or median_low(map(len, broken)) < 0.6 * width:
            paragraph_end = LINE
            joins_broken_lines = 2 * sum(line[0].islower() for line in filled) < len(filled)
        else:
            ends_at_blank = sum(1 for a, b in itertools.pairwise(lines) if a and not b)
            short_ends = sum(1 for a, _ in pairs if len(a) < 0.75 * width and _ends_sentence(a))
            paragraph_end = SHORT_LINE if short_ends > ends_at_blank else BLANK_LINE
    drops_hyphens = hyphens == DROP or (hyphens == AUTO and _hyphens_come_from_wrapping(filled, pairs))
    return Layout(paragraph_end, width, joins_broken_lines, drops_hyphens)


def _ends_sentence(line: str) -> bool:
    end = line.rstrip(_CLOSING_MARKS)[-1:]
    return bool(end) and end in _SENTENCE_ENDS


def _hyphens_come_from_wrapping(filled: Sequence[str], pairs: Sequence[tuple[str, str]]) -> bool:
    matches = [_FIRST_WORD.match(b) for a, b in pairs if a[-1] in _HYPHEN_MARKS and a[-2:-1].isalpha()]
    parts = [match[1] for match in matches if match and match[1].islower()]
    if len(parts) < _MIN_HYPHENS:
        return False
    # Without the first word of a line, which may be such a part.
    words = {word for line in filled for word in re.findall(r"\w+", line.lower())[1:]}
    return 2 * sum(part in words for part in parts) < len(parts)


def join_paragraphs(lines: Iterable[str], paragraph_end: str = AUTO, hyphens: str = AUTO) -> Iterator[str]:
    """Yields the paragraphs of a document, each on one line with single spaces.

    Wrapped lines are joined with a space, except between Chinese or Japanese characters and after hyphens. The layout
    is detected for each block of 262,144 characters, which is also the maximum length of a paragraph.
    """
    check_layout(paragraph_end, hyphens)
    for group, layout in _group_lines(_detect_layouts(iter(lines), paragraph_end, hyphens)):
        yield from _clean(_join(group, layout.drops_hyphens))


def check_layout(paragraph_end: str, hyphens: str) -> None:
    """Raises a ValueError if one of the arguments of `join_paragraphs` is unknown."""
    if paragraph_end not in PARAGRAPH_ENDS:
        raise ValueError(f"paragraph_end must be one of {PARAGRAPH_ENDS}, got {paragraph_end!r}")
    if hyphens not in HYPHENS:
        raise ValueError(f"hyphens must be one of {HYPHENS}, got {hyphens!r}")


def _detect_layouts(lines: Iterator[str], paragraph_end: str, hyphens: str) -> Iterator[tuple[str, Layout]]:
    layout = None
    while block := _read_block(lines):
        # The rest at the end may be too short to detect a layout.
        if layout is None or sum(map(len, block)) + len(block) >= _BLOCK_CHARACTERS:
            layout = detect_layout(block, paragraph_end, hyphens)
        for line in block:
            yield line, layout


def _read_block(lines: Iterator[str]) -> list[str]:
    block, num_characters = [], 0
    for line in lines:
        block.append(line)
        num_characters += len(line) + 1
        if num_characters >= _BLOCK_CHARACTERS:
            break
    return block


def _group_lines(lines_with_layouts: Iterable[tuple[str, Layout]]) -> Iterator[tuple[list[str], Layout]]:
    """Yields the lines of each paragraph, with the layout of the line after them."""
    group: list[str] = []
    num_characters = 0
    for line, layout in lines_with_layouts:
        is_blank = not line or line.isspace()
        if group and (is_blank or num_characters > _MAX_PARAGRAPH or _starts_paragraph(group[-1], line, layout)):
            yield group, layout
            group, num_characters = [], 0
        if not is_blank:
            group.append(line)
            num_characters += len(line)
    if group:
        yield group, layout


def _starts_paragraph(before: str, line: str, layout: Layout) -> bool:
    if layout.paragraph_end == BLANK_LINE:
        return False
    is_indented = line[0].isspace() and not before[0].isspace()
    before, line = before.strip(), line.strip()
    continues = not _ends_sentence(before) and (line[0].islower() or line[0] in _CONTINUING_MARKS)
    if layout.paragraph_end == LINE:
        return not (layout.joins_broken_lines and continues)
    if _ends_sentence(before):
        needed = 1 if _UNSPACED.match(line) else 1 + len(line.split(None, 1)[0])
        return is_indented or len(before) + needed <= layout.width
    if is_indented:
        return not continues and line[0] not in _DASHES
    # A heading; a line of verse is longer, or is continued after a comma.
    return 2 * len(before) < layout.width and before[-1] not in ",;:" + _DASHES and not continues


def _join(group: list[str], drops_hyphens: bool) -> str:
    if len(group) == 1:
        return group[0]
    parts = [group[0].rstrip()]
    for line in itertools.islice(group, 1, None):
        line = line.strip()
        parts[-1], space = _join_line_end(parts[-1], line, drops_hyphens)
        parts += [space, line]
    return "".join(parts)


def _join_line_end(before: str, line: str, drops_hyphens: bool) -> tuple[str, str]:
    """Returns a line without a hyphen to be dropped, and the separator between it and the next line."""
    end = before[-1]
    if end == _SOFT_HYPHEN:
        return before[:-1], ""
    if end in _HYPHEN_MARKS and len(before) > 1 and before[-2].isalnum() and line[0].isalnum():
        return (before[:-1] if drops_hyphens and before[-2].isalpha() and line[0].islower() else before), ""
    return before, "" if _are_unspaced(end, line[0]) else " "


def _are_unspaced(end: str, start: str) -> bool:
    both = end + start
    return bool(_UNSPACED.search(both)) and all(_UNSPACED.match(mark) or mark in _UNSPACED_MARKS for mark in both)


def _clean(text: str) -> Iterator[str]:
    """Yields a paragraph with single spaces, in several parts if it is too long."""
    start = 0
    while start < len(text):
        part = text[start : start + _MAX_PARAGRAPH]
        if len(text) > start + len(part) and not part[-1].isspace():
            *whole_words, last = part.rsplit(None, 1)
            part = part[: -len(last)] if whole_words else part
        start += len(part)
        if words := part.split():
            yield " ".join(words)
