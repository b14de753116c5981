"""Search for the first span of whole words in a context that equals an answer, over all spans."""

import string
import unicodedata

_ARTICLES = ("a", "an", "the")


def find_answer(context, names):
    """Finds the first character of the span and one past its last, or returns None."""
    return _find_span(context, names, _words) or _find_span(context, names, _words_without_articles)


def _find_span(context, names, words_of):
    wanted = [words_of(name) for name in names if _words_without_articles(name)]
    separators = [True, *_separators(context), True]
    starts = [index for index in range(len(context)) if separators[index] and not separators[index + 1]]
    ends = [index for index in range(len(context) + 1) if separators[index + 1] and not separators[index]]
    for start in starts:
        for end in reversed(ends):
            part = context[start:end]
            inside = words_of(part)
            if inside in wanted and inside[0] == _words(part)[0] and inside[-1] == _words(part)[-1]:
                return start, end
    return None


def _words(text):
    spaced = "".join(
        " " if separates else character for character, separates in zip(text, _separators(text), strict=True)
    )
    return [unicodedata.normalize("NFC", word.lower()) for word in spaced.split()]


def _words_without_articles(text):
    return [word for word in _words(text) if word not in _ARTICLES]


def _separators(text):
    """Checks for each character whether it separates words: white space, and punctuation except inside numbers."""
    separators = []
    for index, character in enumerate(text):
        in_number = character in ".," and text[:index][-1:].isdecimal() and text[index + 1 :][:1].isdecimal()
        is_punctuation = character in string.punctuation + "´" or unicodedata.category(character).startswith("P")
        separators.append(character.isspace() or (is_punctuation and not in_number))
    return separators
