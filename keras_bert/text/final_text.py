"""Exact reproduction of how google-research/bert's `run_squad.py` cuts the text of an answer out of its context.

Used only for prediction files that must equal the original's; served answers are cut at token offsets.
"""

import functools
import unicodedata

# `_is_chinese_char` in google-research/bert tokenization.py.
_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


@functools.lru_cache(maxsize=1 << 16)
def final_text(answer: str, words: str, lower_case: bool) -> str:
    """Finds the part of `words` that the tokens of `answer` stand for, or all of `words`. Source: `get_final_text`."""
    tokens = " ".join(_basic_tokens(words, lower_case))
    begin = tokens.find(answer)
    positions = [position for position, character in enumerate(words) if character != " "]
    if not answer or begin < 0 or len(positions) != _count_without_spaces(tokens):
        return words
    first = _count_without_spaces(tokens[:begin])
    return words[positions[first] : positions[first + _count_without_spaces(answer) - 1] + 1]


def _count_without_spaces(text: str) -> int:
    return len(text) - text.count(" ")


def _basic_tokens(text: str, lower_case: bool) -> list[str]:
    """Tokenizes as `BasicTokenizer` in google-research/bert `tokenization.py`."""
    cleaned = "".join(_clean(character) for character in text)
    spaced = "".join(f" {character} " if _is_chinese(character) else character for character in cleaned)
    tokens = []
    for word in spaced.split():
        if lower_case:
            decomposed = unicodedata.normalize("NFD", word.lower())
            word = "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
        tokens += "".join(f" {character} " if _is_punctuation(character) else character for character in word).split()
    return tokens


def _clean(character: str) -> str:
    category = unicodedata.category(character)
    if character in "\t\n\r" or category == "Zs":
        return " "
    return "" if character in "\0\ufffd" or category in ("Cc", "Cf") else character


def _is_chinese(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _CHINESE)


def _is_punctuation(character: str) -> bool:
    # ASCII symbols count, although Unicode has them in other categories.
    is_symbol = character.isascii() and character.isprintable() and not character.isalnum() and character != " "
    return is_symbol or unicodedata.category(character).startswith("P")
