"""Tagging schemes: how tags of tokens encode entities, and how to check, convert and detect them."""

import re
from collections.abc import Iterable, Iterator, Sequence

# IOB2 is also called BIO, and IOBES also BIOES. A plain tag, such as a part of speech, belongs to one token.
PLAIN = "plain"
_PREFIXES = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES"}
SCHEMES = (*_PREFIXES, PLAIN)

# The type is all that follows the first hyphen, other hyphens included.
_ENTITY_TAG = re.compile(r"[BIES](-.+)?|O", re.DOTALL)


def check_tag(tag: str, scheme: str) -> None:
    """Raises a ValueError unless a tag is printable and belongs to a scheme."""
    _check_scheme(scheme)
    if not tag or not tag.isprintable():
        raise ValueError(f"a tag must be printable and not empty; got {tag!r}")
    if scheme != PLAIN and not (_ENTITY_TAG.fullmatch(tag) and tag[0] in f"O{_PREFIXES[scheme]}"):
        prefixes = ", ".join(f"{prefix}-" for prefix in _PREFIXES[scheme])
        raise ValueError(f"{tag!r} is not an {scheme} tag; allowed are O, and {prefixes} followed by a type")


def convert_tags(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """Converts the tags of one sentence, of any entity scheme, to another scheme, and repairs invalid sequences.

    An entity starts at B- and S-, and at an I- or E- that cannot continue the one before it, as in conlleval.
    """
    _check_scheme(scheme)
    if scheme == PLAIN:
        raise ValueError(f"plain tags do not encode entities; pass one of {list(_PREFIXES)}")
    converted = ["O"] * len(tags)
    previous = None
    for suffix, first, last in _find_spans(tags):
        converted[first : last + 1] = [f"I{suffix}"] * (last + 1 - first)
        # IOB1 has B- only where an entity of the same type ends just before.
        if scheme != "IOB1" or previous == (suffix, first - 1):
            converted[first] = f"B{suffix}"
        if scheme == "IOBES":
            converted[last] = f"S{suffix}" if first == last else f"E{suffix}"
        previous = (suffix, last)
    return tuple(converted)


def find_invalid_tags(tags: Sequence[str], scheme: str) -> list[int]:
    """Finds the tags of one sentence that differ from the scheme's encoding of their entities; plain tags never do."""
    if scheme == PLAIN:
        return []
    converted = convert_tags(tags, scheme)
    return [index for index, (tag, other) in enumerate(zip(tags, converted, strict=True)) if tag != other]


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """Detects the scheme of the tags of sentences, in one pass.

    Of IOB1 and IOB2, which have the same tags, the one with fewer invalid tags is chosen, and IOB2 on a tie.
    """
    prefixes: set[str] = set()
    num_invalid = {"IOB2": 0, "IOB1": 0}
    for tags in sentences:
        if not all(map(_ENTITY_TAG.fullmatch, tags)):
            return PLAIN
        prefixes.update(tag[0] for tag in tags)
        for scheme in num_invalid:
            num_invalid[scheme] += len(find_invalid_tags(tags, scheme))
    if not prefixes:
        raise ValueError("there are no tags to detect the scheme of")
    return "IOBES" if prefixes & {"E", "S"} else min(num_invalid, key=num_invalid.__getitem__)


def _find_spans(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yields the suffix of each entity's tags (what follows the letter), its first token and its last."""
    first, previous, previous_suffix = 0, "O", ""
    for index, tag in enumerate([*tags, "O"]):
        if not _ENTITY_TAG.fullmatch(tag):
            raise ValueError(f"{tag!r} is not an entity tag; allowed are O, and B-, I-, E-, S- followed by a type")
        letter, suffix = tag[0], tag[1:]
        if letter in "IE" and previous in "BI" and suffix == previous_suffix:
            previous = letter
            continue
        if previous != "O":
            yield previous_suffix, first, index - 1
        first, previous, previous_suffix = index, letter, suffix


def _check_scheme(scheme: str) -> None:
    if scheme not in SCHEMES:
        raise ValueError(
            f"unknown scheme {scheme!r}; allowed are {list(SCHEMES)} (IOB2 is also called BIO, and IOBES also BIOES)"
        )
