"""The wording of an answer in its context, exactly as google-research/bert's `run_squad.py` finds it.

This is for files of predictions that must equal the original's. What is served goes by the tokens' offsets instead,
which the original did not have: it tokenizes the words of the answer once more, and counts characters.
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
    """The part of an answer's words that its tokens stand for.

    Source: `get_final_text` in google-research/bert `run_squad.py`.

    Args:
        answer: str, the answer's tokens, joined to words with one space between them.
        words: str, the context's words that hold these tokens, with one space between them.
        lower_case: bool, whether the tokenizer lower-cases.

    Returns:
        str: the part of `words`, or all of it where the tokens are not found in it or the characters of both cannot be
        matched one to one, as is so where a character is decomposed into several letters.

    Example:
        >>> final_text("steve smith", "Steve Smith's", lower_case=True)
        'Steve Smith'
        >>> final_text("2½", "(2½)", lower_case=True)
        '2½'
    """
    tokens = " ".join(_basic_tokens(words, lower_case))
    begin = tokens.find(answer)
    places = [place for place, character in enumerate(words) if character != " "]
    if not answer or begin < 0 or len(places) != _without_spaces(tokens):
        return words
    first = _without_spaces(tokens[:begin])
    return words[places[first] : places[first + _without_spaces(answer) - 1] + 1]


def _without_spaces(text):
    return len(text) - text.count(" ")


def _basic_tokens(text, lower_case):
    """The tokens of `BasicTokenizer` in google-research/bert `tokenization.py`."""
    cleaned = "".join(_clean(character) for character in text)
    spread = "".join(f" {character} " if _is_chinese(character) else character for character in cleaned)
    tokens = []
    for word in spread.split():
        if lower_case:
            decomposed = unicodedata.normalize("NFD", word.lower())
            word = "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
        tokens += "".join(f" {character} " if _is_punctuation(character) else character for character in word).split()
    return tokens


def _clean(character):
    category = unicodedata.category(character)
    if character in "\t\n\r" or category == "Zs":
        return " "
    return "" if character in "\0\ufffd" or category in ("Cc", "Cf") else character


def _is_chinese(character):
    return any(first <= ord(character) <= last for first, last in _CHINESE)


def _is_punctuation(character):
    # Symbols of ASCII count, though Unicode has them in other categories.
    is_symbol = character.isascii() and character.isprintable() and not character.isalnum() and character != " "
    return is_symbol or unicodedata.category(character).startswith("P")
