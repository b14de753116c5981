"""Paragraphs written for the tests, and their layouts in files."""

import textwrap

SENTENCES = [
    [
        "The ferry left the island before sunrise, and nobody on the quay had noticed that the baker's boy was on "
        "board.",
        "He sat behind the crates of lemons with his cap over his ears.",
        "When Mrs. Hollis came to count the crates she found one too many, for he had built a small house of them.",
    ],
    ['"Come out of there," she said.', '"I can see your boots."'],
    ['"They are not my boots," said a voice from the lemons; "they belong to my brother, who is in the navy."'],
    [
        "Nobody could have called it a good answer.",
        "Still, it was the only one he had, and he held on to it until the ferry was well past the lighthouse and it "
        "had become too late to turn round.",
    ],
    ["The captain, Dr. Penn, who had once been a dentist, looked at him for a long while... and then he laughed."],
    [
        "Breakfast was at seven.",
        "There were eggs, and there was a well-worn pack of cards, and by noon the boy owed the engineer four hundred "
        "lemons.",
    ],
]
PARAGRAPHS = [" ".join(sentences) for sentences in SENTENCES]
ALL_SENTENCES = [sentence for sentences in SENTENCES for sentence in sentences]

CHINESE_PARAGRAPHS = [
    [
        "天还没有亮，渡船就离开了小岛。",
        "码头上没有人发现，面包师的儿子也在船上！",
        "他坐在柠檬箱子后面，帽子一直拉到耳朵上。",
    ],
    ["“出来吧。”", "她说，“我看见你的靴子了。”"],
    ["这不是一个好的回答。", "可是他只有这一个，价格是3.5元。", "你说呢？"],
]
KOREAN_PARAGRAPHS = [
    [
        "해가 뜨기 전에 배가 섬을 떠났다.",
        "부두에 있던 사람들은 빵집 아들이 배에 탄 것을 아무도 몰랐다!",
        "그는 레몬 상자 뒤에 앉아 있었다.",
    ],
    ["좋은 대답은 아니었다.", "하지만 그것뿐이었고, 값은 3.5달러였다.", "어떻게 생각해요?"],
]
CHINESE = ["".join(sentences) for sentences in CHINESE_PARAGRAPHS]
CHINESE_SENTENCES = [sentence for sentences in CHINESE_PARAGRAPHS for sentence in sentences]
KOREAN = [" ".join(sentences) for sentences in KOREAN_PARAGRAPHS]
KOREAN_SENTENCES = [sentence for sentences in KOREAN_PARAGRAPHS for sentence in sentences]


def paragraph_per_line(paragraphs=PARAGRAPHS):
    """Returns one paragraph per line."""
    return list(paragraphs)


def spaced(paragraphs=PARAGRAPHS):
    """Returns one paragraph per line, with blank lines in between."""
    return [line for paragraph in paragraphs for line in (paragraph, "")]


def wrapped(paragraphs=PARAGRAPHS, width=52):
    """Returns wrapped lines, with blank lines between paragraphs."""
    return [line for paragraph in paragraphs for line in [*textwrap.wrap(paragraph, width, break_on_hyphens=False), ""]]


def wrapped_closely(paragraphs=PARAGRAPHS, width=52):
    """Returns wrapped lines without blank lines."""
    return [line for line in wrapped(paragraphs, width) if line]


LAYOUTS = {"line": paragraph_per_line, "spaced": spaced, "blank_line": wrapped, "short_line": wrapped_closely}
