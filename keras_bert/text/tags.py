"""Tags of tokens: how they spell entities, and how to read, check and rewrite them."""

import re
from collections.abc import Iterable, Sequence

# IOB2 is also called BIO, and IOBES also BIOES. Plain tags, such as parts of speech, are of one token each.
PLAIN = "plain"
_PREFIXES = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES"}
SCHEMES = (*_PREFIXES, PLAIN)

# What comes after the first hyphen is the type, other hyphens included.
_ENTITY_TAG = re.compile(r"[BIES](-.+)?|O", re.DOTALL)


def check_tag(tag: str, scheme: str) -> None:
    """Refuses what cannot be a tag of a scheme.

    Args:
        tag: str.
        scheme: str. One of `SCHEMES`.

    Raises:
        ValueError: if the tag is empty or not printable, is not spelt as the scheme spells tags, or the scheme is
            unknown.

    Example:

    >>> check_tag("B-creative-work", "IOB2")
    >>> check_tag("S-person", "IOB2")
    Traceback (most recent call last):
    ValueError: 'S-person' is no tag of IOB2, which has O and B-, I- with a type behind
    """
    _check_scheme(scheme)
    if not tag or not tag.isprintable():
        raise ValueError(f"a tag must be printable, and at least one character; got {tag!r}")
    if scheme != PLAIN and not (_ENTITY_TAG.fullmatch(tag) and tag[0] in f"O{_PREFIXES[scheme]}"):
        prefixes = ", ".join(f"{prefix}-" for prefix in _PREFIXES[scheme])
        raise ValueError(f"{tag!r} is no tag of {scheme}, which has O and {prefixes} with a type behind")


def convert_tags(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """Spells the entities of tags in another scheme; broken sequences become whole ones.

    Source: the rules of conlleval (CoNLL-2000's and CoNLL-2003's evaluation), which are seqeval's when it is not
    strict. An entity begins at B- and S-, and also at an I- or E- that cannot go on with the entity before it, because
    there is none, it is of another type, or E- or S- has closed it. So every tag but O belongs to one entity.

    Args:
        tags: list of str, those of one sentence, whatever scheme they are of: O, or B, I, E or S, a hyphen and a type.
        scheme: str. "IOB1", "IOB2" or "IOBES".

    Returns:
        tuple of str, as long as `tags`.

    Raises:
        ValueError: if one is no tag of any scheme of entities, or the scheme is none.

    Example:

    >>> convert_tags(["I-place", "I-place", "B-place", "O"], "IOBES")
    ('B-place', 'E-place', 'S-place', 'O')
    """
    _check_scheme(scheme)
    if scheme == PLAIN:
        raise ValueError(f"plain tags are of one token each and spell no entities; the schemes are {list(_PREFIXES)}")
    converted = ["O"] * len(tags)
    before = None
    for suffix, first, last in _spans(tags):
        converted[first : last + 1] = [f"I{suffix}"] * (last + 1 - first)
        # IOB1 has B- only where an entity of the same type ends just before.
        if scheme != "IOB1" or before == (suffix, first - 1):
            converted[first] = f"B{suffix}"
        if scheme == "IOBES":
            converted[last] = f"S{suffix}" if first == last else f"E{suffix}"
        before = (suffix, last)
    return tuple(converted)


def broken_places(tags: Sequence[str], scheme: str) -> list[int]:
    """Where tags are not what a scheme writes for their entities, such as an I- that goes on with nothing in IOB2.

    Args:
        tags: list of str, those of one sentence.
        scheme: str. One of `SCHEMES`; plain tags are never broken.

    Returns:
        list of int, the numbers of the tokens, from 0; empty for tags of the scheme.

    Raises:
        ValueError: as `convert_tags` says.

    Example:

    >>> broken_places(["I-place", "I-place", "O"], "IOB2"), broken_places(["I-place", "I-place", "O"], "IOB1")
    ([0], [])
    """
    if scheme == PLAIN:
        return []
    return [place for place, pair in enumerate(zip(tags, convert_tags(tags, scheme), strict=True)) if len({*pair}) > 1]


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """The scheme that tags are of.

    Tags are plain if one of them is neither O nor B, I, E or S with or without a hyphen and a type. They are IOBES if
    there is an E or S. IOB1 and IOB2 have the same tags, and a sentence may be whole in one and broken in the other, so
    all of them count: they are of the scheme in which fewer tags are in a broken place, and IOB2 if it is the same
    number, as where there are no entities.

    Args:
        sentences: iterable of lists of str, the tags of sentences; gone through once.

    Returns:
        str, one of `SCHEMES`.

    Raises:
        ValueError: if there are no tags.

    Example:

    >>> detect_scheme([["O", "I-place", "I-place"], ["I-person", "O"]]), detect_scheme([["DET", "NOUN"]])
    ('IOB1', 'plain')
    """
    prefixes = set()
    broken = {"IOB2": 0, "IOB1": 0}
    for tags in sentences:
        if not all(map(_ENTITY_TAG.fullmatch, tags)):
            return PLAIN
        prefixes.update(tag[0] for tag in tags)
        for scheme in broken:
            broken[scheme] += len(broken_places(tags, scheme))
    if not prefixes:
        raise ValueError("there are no tags to tell the scheme by")
    return "IOBES" if prefixes & {"E", "S"} else min(broken, key=broken.get)


def _spans(tags):
    """Iterator of what stands behind the letter in an entity's tags, its first token and its last."""
    first, before, suffix_before = 0, "O", ""
    for place, tag in enumerate([*tags, "O"]):
        if not _ENTITY_TAG.fullmatch(tag):
            raise ValueError(f"{tag!r} is no tag of entities: it must be O, or B-, I-, E- or S- with a type behind")
        letter, suffix = tag[0], tag[1:]
        if letter in "IE" and before in "BI" and suffix == suffix_before:
            before = letter
            continue
        if before != "O":
            yield suffix_before, first, place - 1
        first, before, suffix_before = place, letter, suffix


def _check_scheme(scheme):
    if scheme not in SCHEMES:
        raise ValueError(
            f"unknown scheme {scheme!r}; allowed are {list(SCHEMES)}: IOB2 is also called BIO, and IOBES also BIOES"
        )
