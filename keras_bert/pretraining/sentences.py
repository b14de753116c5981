"""The sentences of a paragraph, found by sentencex.

Why sentencex 1.0.32 (Wikimedia; MIT; a Rust core without dependencies; wheels for CPython 3.10 to 3.15; 19 releases in
2026): the splitters that install beside TensorFlow 2.21 were compared on 1.7 MB of paragraphs of English novels, one
core, and on 45 passages of two or three sentences written for it: dialogue, abbreviations and ellipses in English,
Chinese and Korean. A passage is wrong if it is split otherwise than a reader splits it.

| library            | last release   | MB/s | wrong of 25 English | of 10 Chinese | of 10 Korean |
|--------------------|----------------|------|---------------------|---------------|--------------|
| sentencex 1.0.32   | September 2026 |   75 |                   6 |             3 |            3 |
| yasbd-lib 1.0.4    | October 2026   |  0.8 |                   2 |             4 |            3 |
| pysbd 0.3.4        | February 2021  |  0.2 |                   5 |             6 |            2 |
| blingfire 0.1.8    | September 2021 |    7 |                   8 |             6 |            3 |
| syntok 1.4.4       | March 2022     |    1 |                   6 |             8 |            4 |
| nupunkt 0.8.0      | September 2026 |    7 |                   6 |             8 |            4 |
| icu4py 1.2.0       | October 2026   |   40 |                  16 |             4 |            4 |

pysbd and yasbd-lib, itself half a year old, would need hours for a corpus of gigabytes; ICU takes every "Mr." for an
end.
"""

import functools
import re

# Between sentences without spaces the library's time grows with the square of the text (Chinese: 6 MB/s at 4,096
# characters, 0.4 at 65,536), so that such paragraphs are given to it part by part if they are long.
_UNSPACED_STOP = "。"
_WINDOW = 4096  # characters
_OPENING_QUOTES = "\"'“‘„«‹「『"
_OPENING_MARKS = _OPENING_QUOTES + "([{*_¿¡"
_DIRECTED_MARKS = "“‘「『（《〈"
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[a-z0-9]+)*", re.IGNORECASE)


def check_language(language):
    """Raises if sentences of a language cannot be told apart.

    Args:
        language: str. The code of a language, ISO 639-1 or -3, such as "en", "zh" or "ko". The library knows some 300;
            any other is split by the rules of English.

    Raises:
        ValueError: if that is no code of a language.
        ImportError: if sentencex is not installed.

    Example:

    >>> check_language("English")
    Traceback (most recent call last):
    ValueError: language must be the code of a language, such as 'en', 'zh' or 'ko'; got 'English'
    """
    if not isinstance(language, str) or not _LANGUAGE_CODE.fullmatch(language):
        raise ValueError(f"language must be the code of a language, such as 'en', 'zh' or 'ko'; got {language!r}")
    _segment_function()


def split_sentences(paragraph, language="en"):
    """The sentences of a paragraph, without white space around them.

    The library keeps a quotation of several sentences whole, which makes one sentence of a speech of a page. Here a
    sentence that begins with a quotation mark is split as if the mark were not there, but not before small letters
    or closing marks: `"No! no!" he cried.` stays whole. Nothing but white space between sentences is lost.

    Args:
        paragraph: str, without line breaks.
        language: str, as for `check_language`.

    Returns:
        Iterator of str, none of them empty.

    Raises:
        ImportError: if sentencex is not installed.

    Example:

    >>> list(split_sentences('"Hello," said Mr. Smith. "How are you?"'))
    ['"Hello," said Mr. Smith.', '"How are you?"']
    >>> list(split_sentences("他说：“你好。”然后走了。", "zh"))
    ['他说：“你好。”', '然后走了。']
    """
    segment = functools.partial(_segment_function(), language)
    for sentence in map(str.strip, _with_opening_marks(_segment_in_windows(paragraph, segment))):
        if sentence.startswith(tuple(_OPENING_QUOTES)):
            yield from _split_quotation(sentence, segment)
        elif sentence:
            yield sentence


def _segment_in_windows(paragraph, segment):
    begin, size = 0, _WINDOW if _UNSPACED_STOP in paragraph else len(paragraph)
    while len(paragraph) - begin > size:
        *sentences, last = segment(paragraph[begin : begin + size])
        yield from sentences
        # The last one may go on: it is split again, with what follows it.
        begin += size - len(last)
        size = _WINDOW if sentences else 2 * size
    yield from segment(paragraph[begin:])


def _with_opening_marks(parts):
    """Parts of a text, with a mark that opens one moved to it from the end of the one before.

    The library puts it there where a quotation has no end in the paragraph.
    """
    before = ""
    for part in parts:
        if before and (before[-1] in _DIRECTED_MARKS or (before[-1] in _OPENING_QUOTES and before[-2:-1].isspace())):
            before, part = before[:-1], before[-1] + part
        yield before
        before = part
    yield before


def _split_quotation(sentence, segment):
    begin, end = 0, 1
    for part in filter(None, _with_opening_marks(segment(sentence[1:]))):
        if end > 1 and _begins_sentence(part):
            yield sentence[begin:end].strip()
            begin = end
        end += len(part)
    yield sentence[begin:].strip()


def _begins_sentence(text):
    if text[0] in _OPENING_MARKS:
        return len(text) > 1 and not text[1].isspace()
    return text[0].isalnum() and not text[0].islower()


@functools.cache
def _segment_function():
    try:
        from sentencex import segment
    except ImportError as error:
        raise ImportError(
            "splitting text into sentences needs sentencex: pip install 'keras-bert-zoo[pretraining]'"
        ) from error
    return segment
