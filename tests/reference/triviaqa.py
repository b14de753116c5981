"""The first place where a text names an answer, looked for among all the parts of the text that are whole words."""

import string
import unicodedata

_ARTICLES = ("a", "an", "the")


def place_of(context, names):
    """The first character of the place and one past its last, or None."""
    return _place(context, names, _words) or _place(context, names, _words_without_articles)


def _place(context, names, words_of):
    wanted = [words_of(name) for name in names if _words_without_articles(name)]
    separators = [True, *_separators(context), True]
    starts = [place for place in range(len(context)) if separators[place] and not separators[place + 1]]
    ends = [place for place in range(len(context) + 1) if separators[place + 1] and not separators[place]]
    for start in starts:
        for end in reversed(ends):
            part = context[start:end]
            inside = words_of(part)
            if inside in wanted and inside[0] == _words(part)[0] and inside[-1] == _words(part)[-1]:
                return start, end
    return None


def _words(text):
    parted = "".join(
        " " if separates else character for character, separates in zip(text, _separators(text), strict=True)
    )
    return [unicodedata.normalize("NFC", word.lower()) for word in parted.split()]


def _words_without_articles(text):
    return [word for word in _words(text) if word not in _ARTICLES]


def _separators(text):
    """Whether each character parts words: white space and punctuation do, but in numbers no point and no comma."""
    separators = []
    for place, character in enumerate(text):
        in_number = character in ".," and text[:place][-1:].isdecimal() and text[place + 1 :][:1].isdecimal()
        is_punctuation = character in string.punctuation + "´" or unicodedata.category(character).startswith("P")
        separators.append(character.isspace() or (is_punctuation and not in_number))
    return separators
