import random
import re

import pytest

from keras_bert.pretraining import paragraphs
from keras_bert.pretraining.paragraphs import detect_layout, join_paragraphs
from tests.pretraining.stories import CHINESE, KOREAN, LAYOUTS, PARAGRAPHS, wrapped, wrapped_closely


@pytest.mark.parametrize("layout", LAYOUTS)
def test_paragraphs_are_the_same_in_every_layout(layout):
    lines = LAYOUTS[layout]()
    assert detect_layout(lines).paragraph_end == {"spaced": "line"}.get(layout, layout)
    assert list(join_paragraphs(lines)) == PARAGRAPHS


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [40, 72])
def test_layouts_of_longer_texts_are_detected(layout, width):
    generator = random.Random(width)
    chosen = [generator.choice(PARAGRAPHS) for _ in range(60)]
    lines = LAYOUTS[layout](chosen, width) if layout in ("blank_line", "short_line") else LAYOUTS[layout](chosen)
    joined = list(join_paragraphs(lines))
    if layout == "short_line":
        # A paragraph whose last line is full by chance runs into the next.
        assert "\n".join(joined).replace("\n", " ") == " ".join(chosen)
        assert len(joined) > 0.7 * len(chosen)
    else:
        assert joined == chosen


def test_lists_titles_and_single_lines_are_not_joined():
    for lines in (
        ["Lemons"],
        ["The Ferry", "The ferry left the island before sunrise, and nobody on the quay had noticed it."],
        ["- eggs", "- lemons from the island, four hundred of them", "- cards"],
        ["no one saw", "nothing was said until the ferry had passed the lighthouse", "a boy", "lemons"],
    ):
        assert list(join_paragraphs(lines)) == lines


def test_verse_is_joined_if_blank_lines_separate_paragraphs():
    verse = ["  The boats came home from the sea,", "     And the lamps were lit,", "  And no one waited for me."]
    joined = "The boats came home from the sea, And the lamps were lit, And no one waited for me."
    assert list(join_paragraphs([*wrapped(), *verse, "", *wrapped()])) == [*PARAGRAPHS, joined, *PARAGRAPHS]


def test_headings_and_indented_lines_start_paragraphs_without_blank_lines():
    lines = ["CHAPTER I", "The Lemons", *wrapped_closely(), "CHAPTER II", *wrapped_closely()]
    assert list(join_paragraphs(lines)) == ["CHAPTER I", "The Lemons", *PARAGRAPHS, "CHAPTER II", *PARAGRAPHS]
    full = ["It was the hour when the ferries come home to us.", "   The lamps along the quay were lit one by one."]
    assert list(join_paragraphs(wrapped_closely() + full))[-2:] == [line.strip() for line in full]
    within = ["It was the hour when the ferries of the island", "   came home.", "Nobody spoke."]
    joined = "It was the hour when the ferries of the island came home."
    assert list(join_paragraphs(wrapped_closely() + within))[-2:] == [joined, "Nobody spoke."]


def test_broken_lines_are_joined_if_lines_are_paragraphs():
    broken = ["He owed the", "engineer", "four hundred lemons."]
    assert list(join_paragraphs(PARAGRAPHS + broken)) == [*PARAGRAPHS, "He owed the engineer four hundred lemons."]
    assert list(join_paragraphs(PARAGRAPHS + broken, "line")) == PARAGRAPHS + broken
    small = ["no one saw", "it was dark and the ferry had left the island", "lemons everywhere"]
    assert list(join_paragraphs(small)) == small


def test_a_layout_can_be_forced():
    lines = ["One word", "and then", "", "Another.", "Yes."]
    assert list(join_paragraphs(lines, "line")) == ["One word", "and then", "Another.", "Yes."]
    assert list(join_paragraphs(lines, "blank_line")) == ["One word and then", "Another. Yes."]
    assert list(join_paragraphs(wrapped(), "short_line")) == PARAGRAPHS
    with pytest.raises(ValueError, match=r"paragraph_end must be one of .*, got 'page'"):
        list(join_paragraphs(lines, "page"))
    with pytest.raises(ValueError, match=r"hyphens must be one of .*, got 'no'"):
        list(join_paragraphs(lines, hyphens="no"))


def wrap_with_hyphens(text, width):
    lines = []
    while len(text) > width:
        is_in_word = text[width - 3 : width + 1].isalpha()
        end = width - 1 if is_in_word else text.rindex(" ", 0, width)
        lines.append(text[:end].strip() + ("-" if is_in_word else ""))
        text = text[end:].strip()
    return [*lines, text]


def test_only_hyphens_of_wrapping_are_dropped():
    text = " ".join(PARAGRAPHS[::3] * 4)
    lines = wrap_with_hyphens(text, 40)
    assert sum(line.endswith("-") for line in lines) >= 10
    assert list(join_paragraphs(lines, "blank_line")) == [text]
    assert next(join_paragraphs(lines, "blank_line", "keep")).count("-") > text.count("-")
    lines = ["He had a well-", "worn pack, worn and", "grown old, and a full-", "grown cat."] * 6
    expected = " ".join(["He had a well-worn pack, worn and grown old, and a full-grown cat."] * 6)
    assert list(join_paragraphs(lines, "blank_line")) == [expected]
    assert "wellworn" in next(join_paragraphs(lines, "blank_line", "drop"))


@pytest.mark.parametrize(
    "lines, joined",
    [
        (["in 1914-", "1918"], "in 1914-1918"),
        (["Anglo-", "Saxon"], "Anglo-Saxon"),
        (["he said -", "and left"], "he said - and left"),
        (["he said--", "and left"], "he said-- and left"),
        (["well\xad", "worn"], "wellworn"),
        (["渡船离开了", "小岛。"], "渡船离开了小岛。"),
        (["他说：“你好。”", "然后走了"], "他说：“你好。”然后走了"),
        (["渡船 ferry", "离开了"], "渡船 ferry 离开了"),
        (["배가 섬을", "떠났다."], "배가 섬을 떠났다."),
        ([" a\t b\u3000c\xa0\xa0d ", "  e\u2028f\x0bg\x0ch\x85i\u2029j\x1ck "], "a b c d e f g h i j k"),
    ],
)
def test_joins_lines_with_the_right_separator(lines, joined):
    assert list(join_paragraphs(lines, "blank_line", "keep")) == [joined]


def test_joins_wrapped_chinese_and_korean():
    lines = [line for text in CHINESE for line in [*re.findall(r".{1,13}", text), ""]]
    assert list(join_paragraphs(lines)) == CHINESE
    assert list(join_paragraphs(CHINESE)) == CHINESE
    assert list(join_paragraphs(wrapped(KOREAN, 20))) == KOREAN


def test_the_layout_is_detected_for_each_block(monkeypatch):
    monkeypatch.setattr(paragraphs, "_BLOCK_CHARACTERS", 1000)
    story = PARAGRAPHS * 3
    lines = [*wrapped(story), *story, *wrapped(story), *story]
    joined = list(join_paragraphs(lines))
    # A block at a change of the layout contains lines of both.
    assert sum(paragraph in PARAGRAPHS for paragraph in joined) >= 0.75 * 4 * len(story)
    assert "".join(" ".join(joined).split()) == "".join(" ".join(lines).split())


def test_long_paragraphs_are_cut(monkeypatch):
    monkeypatch.setattr(paragraphs, "_MAX_PARAGRAPH", 100)
    for lines in (["word " * 200], ["word"] * 200, ["word " * 10] * 20):
        joined = list(join_paragraphs(lines, "blank_line"))
        assert " ".join(joined).split() == ["word"] * 200
        assert max(map(len, joined)) <= 100
    assert list(map(len, join_paragraphs(["x" * 250]))) == [100, 100, 50]


def test_lines_are_read_lazily():
    def endless():
        while True:
            yield from wrapped()

    taken = join_paragraphs(endless())
    assert [next(taken) for _ in PARAGRAPHS] == PARAGRAPHS


@pytest.mark.parametrize("seed", range(20))
def test_nothing_but_white_space_is_lost(seed):
    generator = random.Random(seed)
    characters = "aB9.,!?-'\"“”中。かé가ß😀\u0301 \t\u3000\x0c\u2028\xa0"
    lines = ["".join(generator.choices(characters, k=generator.randrange(30))) for _ in range(200)]
    for end in paragraphs.PARAGRAPH_ENDS:
        joined = list(join_paragraphs(lines, end, "keep"))
        assert "".join("".join(joined).split()) == "".join("".join(lines).split())
        assert all(paragraph and len(paragraph.splitlines()) == 1 for paragraph in joined)
        assert not any("  " in paragraph or paragraph != paragraph.strip() for paragraph in joined)


@pytest.mark.slow
def test_detects_the_layouts_of_the_novels(shared):
    found = {}
    for path in sorted((shared / "data/text/english_novels").glob("*.txt")):
        lines = path.read_text("utf-8-sig")[: 2**18].split("\n")
        found.setdefault(detect_layout(lines).paragraph_end, []).append(path.stem)
    assert {end: len(names) for end, names in found.items()} == {"line": 44, "blank_line": 40, "short_line": 16}
    assert {"Cbronte_Jane_1847", "Woolf_Night_1919", "Lee_Brown_1884"} <= set(found["line"])
    assert {"Ford_Soldier_1915", "Kipling_Kim_1901", "Hardy_Madding_1874"} <= set(found["short_line"])
