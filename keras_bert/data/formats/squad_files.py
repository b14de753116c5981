"""SQuAD's files (arXiv 1606.05250, arXiv 1806.03822): questions, their contexts, and the answers."""

import bisect
import functools
import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_bert.data.example_stream import ExampleStream
from keras_bert.data.formats.text_lines import check_is_file, check_text, parse_json
from keras_bert.io.atomic_write import atomic_text_file
from keras_bert.io.row_errors import BadRows, quotation
from keras_bert.metrics.squad_scores import VERSIONS
from keras_bert.text.words import WORD_SEPARATORS
from keras_bert.typing import PathLike

_WORD = re.compile(f"[^{WORD_SEPARATORS}]+")
_ID = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*"|[^\s,\]}]+)')


class SquadQuestion(NamedTuple):
    """A question of a SQuAD file. Source: `SquadExample` in google-research/bert run_squad.py."""

    id: str  # unique in its file
    question: str
    context: str
    answers: tuple[str, ...]  # correct answers; empty if there are none, or none are known
    is_impossible: bool  # whether the context does not answer the question
    # Indices of the context's words in which the first answer starts and ends; -1 if the question is impossible, None
    # unless the file was read for training.
    first_word: int | None
    last_word: int | None


def read_squad(
    path: PathLike,
    version: str = "1.1",
    to_train: bool = False,
    bad_rows: BadRows | None = None,
    to_evaluate: bool = False,
) -> ExampleStream[SquadQuestion]:
    """Reads the questions of a JSON file in SQuAD's format.

    Source: `read_squad_examples` in google-research/bert run_squad.py. Differs from BERT: of several answers, which the
    original refuses to train on, the first one is used.

    Version "1.1" has an answer to every question, "2.0" also impossible questions. With `to_train`, the words of the
    answers are located in the context. A question is invalid if it lacks a field or repeats an id; for training, if its
    answer is empty or not in the context; and in version 1.1, to train or with `to_evaluate`, if it has no answer.
    Raises FileNotFoundError if there is no such file, and ValueError if the version is unknown, or, when it is read,
    the file is not in SQuAD's format or has no questions.
    """
    if version not in VERSIONS:
        raise ValueError(f"version must be one of {list(VERSIONS)}, got {version!r}")
    path = check_is_file(path)
    bad_rows = BadRows() if bad_rows is None else bad_rows
    needs_answers = version == "1.1" and (to_train or to_evaluate)
    return ExampleStream(functools.partial(_read, path, needs_answers, to_train, bad_rows), str(path))


def write_squad(path: PathLike, articles: Iterable[Mapping[str, Any]], overwrite: bool = False) -> None:
    """Writes a file in the format of SQuAD 1.1, one article per line; only one article is in memory at a time.

    Articles are dicts {"title": str, "paragraphs": [{"context": str, "qas": [...]}]}. Raises ValueError, and writes
    nothing, if there are none.
    """
    with atomic_text_file(path, overwrite) as file:
        file.write('{"version": "1.1", "data": [')
        number = 0
        for number, article in enumerate(articles, start=1):
            file.write((",\n" if number > 1 else "\n") + json.dumps(article, ensure_ascii=False))
        if not number:
            raise ValueError(f"there are no articles to write to {path}")
        file.write("\n]}\n")


def word_spans(context: str) -> list[tuple[int, int]]:
    """Finds the words in which SQuAD's answers are counted, as (first character, last character + 1)."""
    return [match.span() for match in _WORD.finditer(context)]


def question_of_span(identifier: str, question: str, context: str, span: Any) -> SquadQuestion:
    """Makes a question whose answer is given by its position.

    The span is the first character of the answer in the context and its last one + 1, or None for an impossible
    question. Raises ValueError for anything else.
    """
    if span is None:
        return SquadQuestion(identifier, question, context, (), True, -1, -1)
    try:
        start, end = map(operator.index, span)
    except (TypeError, ValueError):
        raise ValueError(
            "an answer must be two integers, its first character in the context and its last one + 1, or None if there "
            f"is no answer; question {identifier} has {span!r}"
        ) from None
    if not 0 <= start < end <= len(context) or {context[start], context[end - 1]} & set(WORD_SEPARATORS):
        raise ValueError(
            "an answer must be a part of its context that starts and ends with a character other than a space; "
            f"question {identifier} has {span!r} in a context of {len(context)} characters"
        )
    words = word_spans(context)
    first, last = _word_at(words, start), _word_at(words, end - 1)
    return SquadQuestion(identifier, question, context, (context[start:end],), False, first, last)


def _read(path: Path, needs_answers: bool, to_train: bool, bad_rows: BadRows) -> Iterator[SquadQuestion]:
    # Invalid bytes become halves of surrogate pairs, which `check_text` finds in the values of a question.
    text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    lines_of_ids = functools.cache(lambda: _find_ids(text))  # computed for the first invalid question
    seen: set[str] = set()
    num_questions = 0
    for location, paragraph in _paragraphs(path, parse_json(path, text)):
        words = None
        for number, entry in enumerate(paragraph["qas"], start=1):
            num_questions += 1
            try:
                question = _parse_question(entry, paragraph["context"], seen)
                if needs_answers and not question.answers:
                    raise ValueError(
                        f"{question.id} has no answer, and every question of version 1.1 to train or evaluate on must "
                        "have one; only version 2.0 has impossible questions"
                    )
                if to_train:
                    words = words or word_spans(question.context)
                    first, last = _find_answer_words(entry, question, words)
                    question = question._replace(first_word=first, last_word=last)
            except ValueError as error:
                line = _line_of(entry, seen, lines_of_ids())
                bad_rows.report(path, line, f"question {number} of {location}: {error}", num_questions)
            else:
                seen.add(question.id)
                yield question
    if not num_questions:
        raise ValueError(f"{path} has no questions")


def _paragraphs(path: Path, content: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the location of each paragraph, for messages, and the paragraph."""
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        raise ValueError(
            f'{path} is not in SQuAD\'s format: {{"data": [{{"paragraphs": [...]}}]}}; got {quotation(content)}'
        )
    for number, article in enumerate(articles, start=1):
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            raise ValueError(f"{path}: article {number} has no list of paragraphs: {quotation(article)}")
        for index, paragraph in enumerate(paragraphs, start=1):
            location = f"paragraph {index} of article {number}"
            if not isinstance(paragraph, dict) or not isinstance(paragraph.get("qas"), list):
                raise ValueError(f"{path}: {location} has no list of questions (qas): {quotation(paragraph)}")
            if not isinstance(paragraph.get("context"), str):
                raise ValueError(f"{path}: {location} has no context: {quotation(paragraph)}")
            yield location, paragraph


def _parse_question(entry: Any, context: str, seen: set[str]) -> SquadQuestion:
    if not isinstance(entry, dict):
        raise ValueError(f"must be a JSON object, got {quotation(entry)}")
    for name in ("id", "question"):
        check_text(name, entry.get(name))
    check_text("context", context)
    if entry["id"] in seen:
        raise ValueError(f"an earlier question has the same id {entry['id']!r}; ids must be unique")
    answers = entry.get("answers") or []
    if not isinstance(answers, list) or not all(
        isinstance(answer, dict) and isinstance(answer.get("text"), str) for answer in answers
    ):
        raise ValueError(f"answers must be a list of objects with a text, got {quotation(answers)}")
    is_impossible = entry.get("is_impossible") is True
    texts = () if is_impossible else tuple(answer["text"] for answer in answers)
    for text in texts:
        check_text("answers", text)
    return SquadQuestion(entry["id"], entry["question"], context, texts, is_impossible, None, None)


def _find_answer_words(
    entry: Mapping[str, Any], question: SquadQuestion, words: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """Returns the indices of the first and last word of the answer to train on."""
    if question.is_impossible:
        return -1, -1
    if not question.answers:
        raise ValueError(f"{question.id} has no answer, and every question to train on must have one or be impossible")
    answer, start = question.answers[0], entry["answers"][0].get("answer_start")
    if isinstance(start, bool) or not isinstance(start, int):
        raise ValueError(f"answer_start must be a number of characters, got {quotation(start)}")
    if not answer.strip():
        raise ValueError(f"the answer to train on is empty: {quotation(answer)}")
    first, last = (_word_at(words, position) for position in (start, start + len(answer) - 1))
    found = " ".join(question.context[slice(*word)] for word in words[first : last + 1]) if first >= 0 else ""
    # By words, as the original does: an answer with a no-break space, for example, is not found.
    if " ".join(answer.split()) not in found or start + len(answer) > len(question.context):
        raise ValueError(
            f"the answer {quotation(answer)} is not in the context at {start}, where there is {quotation(found)}"
        )
    return first, last


def _word_at(words: Sequence[tuple[int, int]], position: int) -> int:
    """Returns the index of the word that contains a character, or of the word before it; -1 if there is none."""
    return bisect.bisect_right(words, position, key=lambda word: word[0]) - 1


def _line_of(entry: Any, seen: set[str], lines_of_ids: Mapping[str, list[int]]) -> int:
    """Returns the line of a question's id; for a repeated id, that of its second occurrence."""
    identifier = entry.get("id") if isinstance(entry, dict) else None
    lines = lines_of_ids.get(json.dumps(identifier), [1])
    return lines[min(len(lines) - 1, 1 if isinstance(identifier, str) and identifier in seen else 0)]


def _find_ids(text: str) -> dict[str, list[int]]:
    """Returns the lines of each id in a file, by its JSON text."""
    lines_of_ids: dict[str, list[int]] = {}
    line, position = 1, 0
    for match in _ID.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        try:
            identifier = json.dumps(json.loads(match[1]))
        except ValueError:  # a list or an object, of which the expression matches only a part
            continue
        lines_of_ids.setdefault(identifier, []).append(line)
    return lines_of_ids
