"""google-research/bert's FullTokenizer (`tokenization.py`) in slow, obvious Python, with offsets into the text."""

import unicodedata
from typing import NamedTuple

SPECIAL_TOKENS = ("[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]")

CHINESE_RANGES = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)
ASCII_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


class Character(NamedTuple):
    """A character during normalization, with the indices of the first and last original character it comes from."""

    text: str
    first: int
    last: int
    special: bool = False  # stands for a special token


class Token(NamedTuple):
    """A wordpiece and its offsets in the original text; ends are exclusive."""

    text: str
    start_byte: int
    end_byte: int
    start_character: int
    end_character: int


def decode(data):
    """Decodes UTF-8 and drops invalid bytes: a list of (character, first byte, one past its last byte)."""
    decoded = []
    position = 0
    while position < len(data):
        for length in (1, 2, 3, 4):
            try:
                character = data[position : position + length].decode("utf-8")
            except UnicodeDecodeError:
                continue
            decoded.append((character, position, position + length))
            position += length
            break
        else:
            position += 1
    return decoded


def clean(characters):
    """Removes control characters and replaces white space by a space."""
    kept = []
    for character in characters:
        category = unicodedata.category(character.text)
        if character.text in "\t\n\r" or category == "Zs":
            kept.append(character._replace(text=" "))
        elif character.text not in "\0\ufffd" and category not in ("Cc", "Cf"):
            kept.append(character)
    return kept


def find_special_tokens(characters):
    """Replaces each special token written in the text by one character."""
    result = []
    position = 0
    while position < len(characters):
        for token in SPECIAL_TOKENS:
            spelled = characters[position : position + len(token)]
            if "".join(character.text for character in spelled) == token:
                result.append(Character(token, spelled[0].first, spelled[-1].last, special=True))
                position += len(token)
                break
        else:
            result.append(characters[position])
            position += 1
    return result


def split(characters, is_alone, is_separator=lambda text: False):
    """Splits into parts at separators, with some characters as parts of their own."""
    parts = [[]]
    for character in characters:
        if character.special or is_alone(character.text):
            parts += [[character], []]
        elif is_separator(character.text):
            parts.append([])
        else:
            parts[-1].append(character)
    return [part for part in parts if part]


def is_chinese(text):
    return any(low <= ord(text) <= high for low, high in CHINESE_RANGES)


def is_punctuation(text):
    return text in ASCII_PUNCTUATION or unicodedata.category(text).startswith("P")


def lower(word):
    """Lower-cases a word as a whole, because the form of a sigma depends on its neighbors."""
    lowered = "".join(character.text for character in word).lower()
    result = []
    for character in word:
        length = len(character.text.lower())
        result += [character._replace(text=part) for part in lowered[:length]]
        lowered = lowered[length:]
    assert not lowered
    return result


def strip_accents(word):
    """Decomposes a word, sorts its marks in canonical order and removes the non-spacing ones."""
    ordered = []
    for character in word:
        for part in unicodedata.normalize("NFD", character.text):
            position, order = len(ordered), unicodedata.combining(part)
            while order and position and unicodedata.combining(ordered[position - 1].text) > order:
                position -= 1
            ordered.insert(position, character._replace(text=part))
    whole = unicodedata.normalize("NFD", "".join(character.text for character in word))
    assert "".join(character.text for character in ordered) == whole
    return [character for character in ordered if unicodedata.category(character.text) != "Mn"]


def wordpieces(word, vocabulary, max_characters_per_word):
    """Splits a word greedily into the longest entries: a list of (entry, its characters)."""
    text = "".join(character.text for character in word)
    if len(text) > max_characters_per_word:
        return [("[UNK]", word)]
    pieces = []
    start = 0
    while start < len(text):
        for end in range(len(text), start, -1):
            entry = ("##" if start else "") + text[start:end]
            if entry in vocabulary:
                pieces.append((entry, word[start:end]))
                start = end
                break
        else:
            return [("[UNK]", word)]
    return pieces


def tokenize(
    text, vocabulary, lower_case, accents_stripped=None, special_tokens_in_text=False, max_characters_per_word=200
):
    """Tokenizes a text (str or bytes) to a list of `Token`; `vocabulary` is a set or dict of entries."""
    accents_stripped = lower_case if accents_stripped is None else accents_stripped
    original = decode(text.encode("utf-8") if isinstance(text, str) else text)
    characters = clean([Character(character, number, number) for number, (character, _, _) in enumerate(original)])
    if special_tokens_in_text:
        characters = find_special_tokens(characters)
    tokens = []
    for word in split(characters, is_chinese, str.isspace):
        if word[0].special:
            pieces = [(word[0].text, word)]
        else:
            if lower_case:
                word = lower(word)
            if accents_stripped:
                word = strip_accents(word)
            parts = split(word, is_punctuation)
            pieces = [piece for part in parts for piece in wordpieces(part, vocabulary, max_characters_per_word)]
        for entry, covered in pieces:
            first = min(character.first for character in covered)
            last = max(character.last for character in covered)
            tokens.append(Token(entry, original[first][1], original[last][2], first, last + 1))
    return tokens
