"""The paragraphs of a document from its lines, however the lines are laid out."""

import itertools
import re
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

_BLOCK_CHARACTERS = 2**18
# What is longer is no paragraph of prose. It is cut, so that memory is bounded.
_LONGEST_PARAGRAPH = 2**18  # characters

_SENTENCE_ENDS = ".!?…。！？｡．؟۔।॥"
_CLOSING_MARKS = "\"'”’»›)]}」』）】》〉_* \t"
_CONTINUING_MARKS = ",;:.!?)]"
_DASHES = "-–—"
_SOFT_HYPHEN = "\xad"
_HYPHEN_MARKS = "-‐"
# Chinese characters, kana, and the full-width forms and punctuation that stand among them; Korean has spaces.
_UNSPACED = re.compile(r"[\u2e80-\u312f\u31a0-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]")
_UNSPACED_MARKS = "“”‘’…—·"
_FIRST_WORD = re.compile(r"\s*(\w+)")
_FEWEST_HYPHENS = 10


class Layout(NamedTuple):
    """How the lines of a document make paragraphs.

    Args:
        paragraph_end: str. "line": every line is a paragraph. "blank_line": only blank lines part paragraphs, in which
            lines are wrapped. "short_line": lines are wrapped, too, and a paragraph ends with a line that had room for
            the next word and ends a sentence, after a heading, and before an indented line.
        width: int. The length up to which lines are filled, in characters.
        joins_broken_lines: bool. Whether, under "line", a line that begins with a small letter continues one that
            ended within a sentence.
        drops_hyphens: bool. Whether a hyphen at the end of a line was put there when the line was wrapped.

    Example:

    >>> detect_layout(["It was a dark night.", "The rain fell."])
    Layout(paragraph_end='line', width=20, joins_broken_lines=True, drops_hyphens=False)
    """

    paragraph_end: str
    width: int
    joins_broken_lines: bool
    drops_hyphens: bool


def detect_layout(lines, paragraph_end=AUTO, hyphens=AUTO):
    """Tells how lines make paragraphs, from a sample of them.

    Lines are wrapped if most of those that have another directly after them end within a sentence, those that do are a
    fifth of all lines or more, and about as long as the longest (in the middle at least 0.6 of the 95th percentile).
    Then, if more sentences end on lines shorter than three quarters of the width that have another line directly after
    them than there are lines before a blank one, paragraphs end with short lines, and otherwise with blank ones. The
    rule tells the layout of each of a hundred English novels: 44 have one paragraph a line (with and without blank
    lines between), 40 wrapped lines and blank lines between paragraphs, 16 wrapped lines and no blank ones.

    Lines under "line" are joined where one that ended within a sentence is continued by a small letter, unless half of
    all lines begin with small letters, where that says nothing.

    Hyphens at the ends of wrapped lines come from wrapping if most of the parts after them are no words of the sample
    (`protuber-ances`), and else belong to the words (`drawing-room`). Fewer than ten are kept.

    Args:
        lines: list of str, without line ends.
        paragraph_end: str, one of `PARAGRAPH_ENDS`; "auto" finds out. If it is given, "line" joins no lines.
        hyphens: str, one of `HYPHENS`; "auto" finds out.

    Returns:
        `Layout`.

    Example:

    >>> detect_layout(["It was a dark and", "stormy night; and", "the rain fell."]).paragraph_end
    'blank_line'
    >>> detect_layout(["It was a dark night.", "The rain fell."]).paragraph_end
    'line'
    """
    lines = [line.strip() for line in lines]
    filled = [line for line in lines if line]
    width = _width(filled)
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


def _width(lines):
    return sorted(map(len, lines))[int(0.95 * len(lines))] if lines else 0


def _ends_sentence(line):
    end = line.rstrip(_CLOSING_MARKS)[-1:]
    return bool(end) and end in _SENTENCE_ENDS


def _hyphens_come_from_wrapping(filled, pairs):
    parts = [_FIRST_WORD.match(b) for a, b in pairs if a[-1] in _HYPHEN_MARKS and a[-2:-1].isalpha()]
    parts = [match[1] for match in parts if match and match[1].islower()]
    if len(parts) < _FEWEST_HYPHENS:
        return False
    # The first word of a line is left out: it may be such a part.
    words = {word for line in filled for word in re.findall(r"\w+", line.lower())[1:]}
    return 2 * sum(part in words for part in parts) < len(parts)


def join_paragraphs(lines, paragraph_end=AUTO, hyphens=AUTO):
    """The paragraphs of a document, each on one line.

    Wrapped lines are joined with a space; without one where Chinese or Japanese stands on both sides, and after a
    hyphen between letters. All white space becomes single spaces. Blank lines part paragraphs in every layout. What is
    longer than 262,144 characters is cut at white space.

    Args:
        lines: iterable of str, without line ends. They are read in blocks of 262,144 characters, as paragraphs are
            taken, and each whole block shows its own layout: a file may hold texts of different layouts.
        paragraph_end, hyphens: as for `detect_layout`.

    Returns:
        Iterator of str without line breaks of any kind, none of them empty.

    Raises:
        ValueError: if `paragraph_end` or `hyphens` is unknown; when the first paragraph is taken.

    Example:

    >>> list(join_paragraphs(["It was a dark and", "stormy night; and", "the rain fell.", "", "  The  end."]))
    ['It was a dark and stormy night; and the rain fell.', 'The end.']
    """
    check_layout(paragraph_end, hyphens)
    for group, layout in _line_groups(_with_layouts(iter(lines), paragraph_end, hyphens)):
        yield from _clean(_join(group, layout.drops_hyphens))


def check_layout(paragraph_end, hyphens):
    """Raises if one of the arguments of `join_paragraphs` is unknown.

    Args:
        paragraph_end, hyphens: as for `join_paragraphs`.

    Raises:
        ValueError: with what is allowed.

    Example:

    >>> check_layout("tab", "auto")
    Traceback (most recent call last):
    ValueError: unknown paragraph_end 'tab'; allowed are ('auto', 'line', 'blank_line', 'short_line')
    """
    if paragraph_end not in PARAGRAPH_ENDS:
        raise ValueError(f"unknown paragraph_end {paragraph_end!r}; allowed are {PARAGRAPH_ENDS}")
    if hyphens not in HYPHENS:
        raise ValueError(f"unknown hyphens {hyphens!r}; allowed are {HYPHENS}")


def _with_layouts(lines, paragraph_end, hyphens):
    layout = None
    while block := _read_block(lines):
        # What is left at the end may be too little to show a layout.
        if layout is None or sum(map(len, block)) + len(block) >= _BLOCK_CHARACTERS:
            layout = detect_layout(block, paragraph_end, hyphens)
        for line in block:
            yield line, layout


def _read_block(lines):
    block, characters = [], 0
    for line in lines:
        block.append(line)
        characters += len(line) + 1
        if characters >= _BLOCK_CHARACTERS:
            break
    return block


def _line_groups(lines_with_layouts):
    """Lists of lines that make one paragraph each, with the layout of their last line."""
    group, characters, layout = [], 0, None
    for line, layout in lines_with_layouts:
        is_blank = not line or line.isspace()
        if group and (is_blank or characters > _LONGEST_PARAGRAPH or _begins_paragraph(group[-1], line, layout)):
            yield group, layout
            group, characters = [], 0
        if not is_blank:
            group.append(line)
            characters += len(line)
    if group:
        yield group, layout


def _begins_paragraph(before, line, layout):
    if layout.paragraph_end == BLANK_LINE:
        return False
    is_indented = line[0].isspace() and not before[0].isspace()
    before, line = before.strip(), line.strip()
    goes_on = not _ends_sentence(before) and (line[0].islower() or line[0] in _CONTINUING_MARKS)
    if layout.paragraph_end == LINE:
        return not (layout.joins_broken_lines and goes_on)
    if _ends_sentence(before):
        return is_indented or len(before) + _room_for_first_word(line) <= layout.width
    if is_indented:
        return not goes_on and line[0] not in _DASHES
    # A heading; a line of verse is longer, or goes on after a comma.
    return 2 * len(before) < layout.width and before[-1] not in ",;:" + _DASHES and not goes_on


def _room_for_first_word(line):
    return 1 if _UNSPACED.match(line) else 1 + len(line.split(None, 1)[0])


def _join(group, drops_hyphens):
    if len(group) == 1:
        return group[0]
    parts = [group[0].rstrip()]
    for line in itertools.islice(group, 1, None):
        line = line.strip()
        parts[-1], space = _junction(parts[-1], line, drops_hyphens)
        parts += [space, line]
    return "".join(parts)


def _junction(before, line, drops_hyphens):
    """What becomes of a line's end, and what stands between it and the next line."""
    end = before[-1]
    if end == _SOFT_HYPHEN:
        return before[:-1], ""
    if end in _HYPHEN_MARKS and len(before) > 1 and before[-2].isalnum() and line[0].isalnum():
        return (before[:-1] if drops_hyphens and before[-2].isalpha() and line[0].islower() else before), ""
    return before, "" if _are_unspaced(end, line[0]) else " "


def _are_unspaced(end, begin):
    both = end + begin
    return bool(_UNSPACED.search(both)) and all(_UNSPACED.match(mark) or mark in _UNSPACED_MARKS for mark in both)


def _clean(text):
    """A paragraph with single spaces, in pieces if it is too long."""
    begin = 0
    while begin < len(text):
        piece = text[begin : begin + _LONGEST_PARAGRAPH]
        if len(text) > begin + len(piece) and not piece[-1].isspace():
            *whole_words, last = piece.rsplit(None, 1)
            piece = piece[: -len(last)] if whole_words else piece
        begin += len(piece)
        if words := piece.split():
            yield " ".join(words)
