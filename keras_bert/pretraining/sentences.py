"""Splitting of paragraphs into sentences with sentencex.

Of seven libraries that install next to TensorFlow 2.21, sentencex was the fastest (75 MB/s) and among the most accurate
in English, Chinese and Korean; pysbd and yasbd-lib would need hours for a corpus of gigabytes.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator

# The library's time grows with the square of the text if there are no spaces between sentences (Chinese: 6 MB/s at
# 4,096 characters, 0.4 at 65,536), so long paragraphs of this kind are split window by window.
_UNSPACED_STOP = "。"
_WINDOW = 4096  # characters
_OPENING_QUOTES = "\"'“‘„«‹「『"
_OPENING_MARKS = _OPENING_QUOTES + "([{*_¿¡"
_DIRECTED_MARKS = "“‘「『（《〈"
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[a-z0-9]+)*", re.IGNORECASE)


def check_language(language: str) -> None:
    """Raises an error if a language is not an ISO 639-1 or -3 code, or sentencex is not installed."""
    if not isinstance(language, str) or not _LANGUAGE_CODE.fullmatch(language):
        raise ValueError(f"language must be a language code such as 'en', 'zh' or 'ko', got {language!r}")
    _load_segment_function()


def split_sentences(paragraph: str, language: str = "en") -> Iterator[str]:
    """Yields the sentences of a paragraph without line breaks, stripped of white space.

    The library keeps a quotation of several sentences whole; here it is split as if the opening mark were absent, but
    not before lowercase letters or closing marks: `"No! no!" he cried.` stays whole.
    """
    segment = functools.partial(_load_segment_function(), language)
    for sentence in map(str.strip, _move_opening_marks(_segment_in_windows(paragraph, segment))):
        if sentence.startswith(tuple(_OPENING_QUOTES)):
            yield from _split_quotation(sentence, segment)
        elif sentence:
            yield sentence


def _segment_in_windows(paragraph: str, segment: Callable[[str], list[str]]) -> Iterator[str]:
    start, size = 0, _WINDOW if _UNSPACED_STOP in paragraph else len(paragraph)
    while len(paragraph) - start > size:
        *sentences, last = segment(paragraph[start : start + size])
        yield from sentences
        # The last sentence may continue: it is split again, together with the text after it.
        start += size - len(last)
        size = _WINDOW if sentences else 2 * size
    yield from segment(paragraph[start:])


def _move_opening_marks(parts: Iterable[str]) -> Iterator[str]:
    """Moves an opening mark, which the library leaves at the end of a part, to the start of the next one."""
    before = ""
    for part in parts:
        if before and (before[-1] in _DIRECTED_MARKS or (before[-1] in _OPENING_QUOTES and before[-2:-1].isspace())):
            before, part = before[:-1], before[-1] + part
        yield before
        before = part
    yield before


def _split_quotation(sentence: str, segment: Callable[[str], list[str]]) -> Iterator[str]:
    start, end = 0, 1
    for part in filter(None, _move_opening_marks(segment(sentence[1:]))):
        if end > 1 and _starts_sentence(part):
            yield sentence[start:end].strip()
            start = end
        end += len(part)
    yield sentence[start:].strip()


def _starts_sentence(text: str) -> bool:
    if text[0] in _OPENING_MARKS:
        return len(text) > 1 and not text[1].isspace()
    return text[0].isalnum() and not text[0].islower()


@functools.cache
def _load_segment_function() -> Callable[[str, str], list[str]]:
    try:
        from sentencex import segment
    except ImportError as error:
        raise ImportError(
            "splitting text into sentences needs sentencex: pip install 'keras-bert-zoo[pretraining]'"
        ) from error
    return segment
