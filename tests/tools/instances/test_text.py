"""Instances are shown with what stood at their masked places, and do nothing to a terminal."""

import pytest

from tests.tools.instances.test_counts import CLS, GAME, MASK, PLAY, SEP, THE, VOCABULARY, instances
from tools.instances.text import describe_instance, printable

PAIR = ([CLS, PLAY, MASK, SEP, MASK, PLAY, GAME, SEP], 4, [(2, GAME), (4, THE), (5, THE)])
SINGLE = ([CLS, PLAY, THE, SEP], 4, [(2, THE)])


def describe(row, **options):
    made = instances([SINGLE, row])
    return describe_instance(made, 1, **{"vocabulary": VOCABULARY, "mask_id": MASK, **options})


def test_a_pair():
    assert describe(PAIR) == [
        "  8 tokens of 10: 2 in a, 3 in b; next sentence: random",
        "  3 masked: 2 by [MASK], 1 by another token, 0 kept",
        "  a  [CLS] play [game → [MASK]] [SEP]",
        "  b  [the → [MASK]] [the → play] game [SEP]",
    ]


@pytest.mark.parametrize("task, words", [("nsp", "next sentence: random"), ("sop", "sentence order: swapped")])
def test_labels_are_said_in_words(task, words):
    assert describe(PAIR, next_sentence=task)[0].endswith(words)
    first = describe_instance(instances([PAIR]), 0, task, VOCABULARY, MASK)
    assert first[0].endswith({"nsp": ": next", "sop": ": in order"}[task])


def test_a_single_segment():
    assert describe(SINGLE, next_sentence="none") == [
        "  4 tokens of 10: 2 in one segment",
        "  1 masked: 0 by [MASK], 0 by another token, 1 kept",
        "  a  [CLS] play [the → the] [SEP]",
    ]


def test_ids_without_a_vocabulary():
    lines = describe(PAIR, vocabulary=None, mask_id=None)
    assert lines[1:3] == ["  3 masked: 3 replaced, 0 kept", "  a  2 5 [9 → 4] 3"]


def test_lines_are_wrapped_where_words_end():
    text = [CLS, *[PLAY, THE, GAME] * 60, SEP, *[GAME] * 60, SEP]
    made = instances([(text, 182, [(2, PLAY), (50, THE), (200, GAME)])], length=300)
    for width in (55, 100):
        lines = describe_instance(made, 0, "nsp", VOCABULARY, MASK, width)
        assert width - 20 < max(map(len, lines[2:])) <= width
        a, b = (number for number, line in enumerate(lines) if line[:4] in ("  a ", "  b "))
        assert all(line.startswith("     ") for number, line in enumerate(lines[2:], 2) if number not in (a, b))
        assert " ".join(line[5:] for line in lines[a:b]).split() == [
            *["[CLS]", "play", "[play", "→", "the]", "game"],
            *["play", "the", "game"] * 15,
            *["play", "[the", "→", "the]", "game"],
            *["play", "the", "game"] * 43,
            "[SEP]",
        ]


def test_chinese_characters_take_two_columns():
    vocabulary = [*VOCABULARY[:5], *"天地玄黄宇"]
    made = instances([([CLS, *[5, 6, 7] * 30, SEP], 92, [])], length=100)
    lines = describe_instance(made, 0, "none", vocabulary, MASK, 60)[2:]
    assert max(map(len, lines[1:])) == 5 + 18 + 17
    assert all(len(line) + sum(char in "天地玄" for char in line) <= 60 for line in lines)


def test_what_a_terminal_would_obey_is_escaped():
    assert printable("a\x1b[2Jb") == "a\\x1b[2Jb"
    assert printable("\r\n\t\x00\x9b") == "\\r\\n\\t\\x00\\x9b"
    assert printable("\u202eabc\u200b") == "\\u202eabc\\u200b"
    assert printable("élan 天 🙂") == "élan 天 🙂"


def test_long_tokens_are_shortened():
    assert printable("x" * 40) == "x" * 40
    assert printable("x" * 1000) == "x" * 40 + "…(+960)"
    assert printable("天" * 100) == "天" * 20 + "…(+80)"
    assert printable("\x1b" * 100) == "\\x1b" * 10 + "…(+90)"
    vocabulary = [*VOCABULARY[:5], "y" * 5000, "\x07" * 5000, *VOCABULARY[7:]]
    lines = describe((([CLS, 5, 6, SEP, 5, SEP]), 4, [(1, 6), (2, 5)]), vocabulary=vocabulary, width=55)
    assert max(map(len, lines[2:])) <= 55
    assert all(line.isprintable() for line in lines)
