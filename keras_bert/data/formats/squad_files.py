"""SQuAD's files (arXiv 1606.05250, arXiv 1806.03822): questions, the contexts they are asked of, and the answers."""

import bisect
import functools
import json
import operator
import re
from typing import NamedTuple

from keras_bert.data.example_stream import ExampleStream
from keras_bert.data.formats.text_lines import check_is_file, check_text, parse_json
from keras_bert.io.atomic_write import atomic_text_file
from keras_bert.io.row_errors import BadRows, quotation
from keras_bert.metrics.squad_scores import VERSIONS
from keras_bert.text.words import WORD_SEPARATORS

_WORD = re.compile(f"[^{WORD_SEPARATORS}]+")
_ID = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*"|[^\s,\]}]+)')


class SquadQuestion(NamedTuple):
    """A question of a SQuAD file.

    Source: `SquadExample` in google-research/bert run_squad.py.

    Args:
        id: str, which no other question of the file has.
        question: str.
        context: str, the paragraph that the question is about.
        answers: tuple of str, the right answers; empty where there is none, or none is known.
        is_impossible: bool, whether the context does not answer the question.
        first_word: int or None. The word of the context, from 0, in which the first of the answers begins; -1 where the
            question is impossible. None unless the file was read to train on.
        last_word: int or None. The word in which that answer ends.

    Example:

    >>> SquadQuestion("q1", "Where?", "In Paris.", ("Paris",), False, 1, 1).answers
    ('Paris',)
    """

    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    is_impossible: bool
    first_word: int | None
    last_word: int | None


def read_squad(path, version="1.1", to_train=False, bad_rows=None, to_evaluate=False):
    """The questions of a file.

    Source: `read_squad_examples` in google-research/bert run_squad.py. Differs from BERT: of several answers, which the
    original refuses to train on, the first one is taken.

    Args:
        path: str or Path. A JSON file in SQuAD's form.
        version: str. "1.1", in which every question has an answer, or "2.0", in which some are impossible.
        to_train: bool. Whether the words of the answers are looked for in the context.
        bad_rows: a `BadRows`, told of questions that lack a part, have the id of another, or, where they are to be
            trained on, an answer that is empty or not in the context. None takes the first one for an error.
        to_evaluate: bool. Whether the answers are to score others. Under version 1.1 a question without any is a bad
            row then, as it is where it is to be trained on.

    Returns:
        `ExampleStream` of `SquadQuestion`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the version is unknown, or, when it is read, the file is not in SQuAD's form or has no questions.
        BadRowError: when a bad question is read, unless `bad_rows` skips it.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "dev.json"
    >>> question = {"id": "q1", "question": "Where?", "answers": [{"text": "Paris", "answer_start": 3}]}
    >>> _ = path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "In Paris.", "qas": [question]}]}]}))
    >>> [(question.first_word, question.last_word) for question in read_squad(path, to_train=True)]
    [(1, 1)]
    """
    if version not in VERSIONS:
        raise ValueError(f"version must be one of {list(VERSIONS)}, got {version!r}")
    path = check_is_file(path)
    bad_rows = BadRows() if bad_rows is None else bad_rows
    return ExampleStream(functools.partial(_read, path, version, to_train, bad_rows, to_evaluate), str(path))


def write_squad(path, articles, overwrite=False):
    """Writes a file in SQuAD's form, version 1.1, with an article on every line; only one is in memory at a time.

    Args:
        path: str or Path.
        articles: iterable of dict: {"title": str, "paragraphs": [{"context": str, "qas": [...]}]}.
        overwrite: bool. Whether a file that exists may be replaced.

    Raises:
        FileExistsError: if the file exists and may not be replaced.
        ValueError: if there are no articles; no file is written then.

    Example:

    >>> path = Path(tempfile.mkdtemp()) / "train.json"
    >>> question = {"id": "q1", "question": "Where?", "answers": [{"text": "Paris", "answer_start": 3}]}
    >>> write_squad(path, [{"title": "Paris", "paragraphs": [{"context": "In Paris.", "qas": [question]}]}])
    >>> next(iter(read_squad(path))).answers
    ('Paris',)
    """
    with atomic_text_file(path, overwrite) as file:
        file.write('{"version": "1.1", "data": [')
        number = 0
        for number, article in enumerate(articles, start=1):
            file.write((",\n" if number > 1 else "\n") + json.dumps(article, ensure_ascii=False))
        if not number:
            raise ValueError(f"there are no articles for {path}, which is not written")
        file.write("\n]}\n")


def word_spans(context):
    """Where the words of a context stand, as SQuAD's answers count words.

    Source: `read_squad_examples` in google-research/bert run_squad.py.

    Args:
        context: str.

    Returns:
        list of pairs of int, the first character of each word and one past its last.

    Example:

    >>> word_spans("In  Paris.")
    [(0, 2), (4, 10)]
    """
    return [match.span() for match in _WORD.finditer(context)]


def question_of_span(identifier, question, context, span):
    """A question whose answer is known by its place.

    Args:
        identifier: str, of the question.
        question, context: str.
        span: pair of int, the answer's first character in the context and one past its last; None for an impossible
            question.

    Returns:
        `SquadQuestion`, with the words of the answer.

    Raises:
        ValueError: if the span is no pair of whole numbers, or no part of the context.

    Example:

    >>> question_of_span("q1", "Where?", "In Paris.", (3, 8)).answers
    ('Paris',)
    """
    if span is None:
        return SquadQuestion(identifier, question, context, (), True, -1, -1)
    try:
        start, end = map(operator.index, span)
    except (TypeError, ValueError):
        raise ValueError(
            "an answer is given by two whole numbers, its first character in the context and one past its last, or is "
            f"None where there is none; question {identifier} has {span!r}"
        ) from None
    if not 0 <= start < end <= len(context) or {context[start], context[end - 1]} & set(WORD_SEPARATORS):
        raise ValueError(
            f"an answer is a part of its context, from its first character to one past its last, neither of them a "
            f"space; question {identifier} has {span!r} in a context of {len(context)} characters"
        )
    words = word_spans(context)
    first, last = _word_at(words, start), _word_at(words, end - 1)
    return SquadQuestion(identifier, question, context, (context[start:end],), False, first, last)


def _read(path, version, to_train, bad_rows, to_evaluate):
    text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    lines_of_ids = functools.cache(lambda: _lines_of_ids(text))  # made when the first bad question is found
    seen = set()
    row = 0
    for where, paragraph in _paragraphs(path, parse_json(path, text)):
        words = None
        for number, entry in enumerate(paragraph["qas"], start=1):
            row += 1
            try:
                question = _question(entry, paragraph["context"], seen)
                if version == "1.1" and (to_train or to_evaluate):
                    _check_has_answer(question)
                if to_train:
                    words = words or word_spans(question.context)
                    first, last = _words_of_answer(entry, question, words)
                    question = question._replace(first_word=first, last_word=last)
            except ValueError as error:
                line = _line_of(entry, seen, lines_of_ids())
                bad_rows.report(path, line, f"question {number} of {where}: {error}", row)
            else:
                seen.add(question.id)
                yield question
    if not row:
        raise ValueError(f"{path} has no questions")


def _paragraphs(path, content):
    """Pairs of a paragraph's place, in words, and the paragraph."""
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        raise ValueError(
            f'{path} is not in SQuAD\'s form: {{"data": [{{"paragraphs": [...]}}]}}; got {quotation(content)}'
        )
    for number, article in enumerate(articles, start=1):
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            raise ValueError(f"{path}: article {number} has no list of paragraphs, but is {quotation(article)}")
        for place, paragraph in enumerate(paragraphs, start=1):
            where = f"paragraph {place} of article {number}"
            if not isinstance(paragraph, dict) or not isinstance(paragraph.get("qas"), list):
                raise ValueError(f"{path}: {where} has no list of questions (qas), but is {quotation(paragraph)}")
            if not isinstance(paragraph.get("context"), str):
                raise ValueError(f"{path}: {where} has no context, but is {quotation(paragraph)}")
            yield where, paragraph


def _question(entry, context, seen):
    if not isinstance(entry, dict):
        raise ValueError(f"must be a JSON object, got {quotation(entry)}")
    for name in ("id", "question"):
        if not isinstance(entry.get(name), str):
            raise ValueError(f"must have a text {name!r}, got {quotation(entry.get(name))}")
        check_text(name, entry[name])
    check_text("context", context)
    if entry["id"] in seen:
        raise ValueError(f"the id {entry['id']!r} is that of an earlier question; predictions are told apart by it")
    answers = entry.get("answers") or []
    if not isinstance(answers, list) or not all(
        isinstance(a, dict) and isinstance(a.get("text"), str) for a in answers
    ):
        raise ValueError(f"answers must be a list of objects with a text, got {quotation(answers)}")
    is_impossible = entry.get("is_impossible") is True
    texts = () if is_impossible else tuple(answer["text"] for answer in answers)
    for text in texts:
        check_text("answers", text)
    return SquadQuestion(entry["id"], entry["question"], context, texts, is_impossible, None, None)


def _check_has_answer(question):
    if not question.answers:
        raise ValueError(
            f"{question.id} has no answer, and every question of version 1.1 that is trained or evaluated on must have "
            "one; impossible ones are those of version 2.0"
        )


def _words_of_answer(entry, question, words):
    """The first and last word of the answer to train on."""
    if question.is_impossible:
        return -1, -1
    if not question.answers:
        raise ValueError(f"{question.id} has no answer, and every question to train on must have one or be impossible")
    answer, start = question.answers[0], entry["answers"][0].get("answer_start")
    if isinstance(start, bool) or not isinstance(start, int):
        raise ValueError(f"answer_start must be a number of characters, got {quotation(start)}")
    if not answer.strip():
        raise ValueError(f"the answer to train on is empty: {quotation(answer)}")
    first, last = (_word_at(words, place) for place in (start, start + len(answer) - 1))
    between = " ".join(question.context[slice(*word)] for word in words[first : last + 1]) if first >= 0 else ""
    # By words, as the original does: an answer with a no-break space, for example, is not found.
    if " ".join(answer.split()) not in between or start + len(answer) > len(question.context):
        raise ValueError(
            f"the answer {quotation(answer)} is not in the context at {start}: there is {quotation(between)}"
        )
    return first, last


def _word_at(words, place):
    """The number of the word that holds the character at `place`, or of the one before; -1 if there is none."""
    return bisect.bisect_right(words, place, key=lambda word: word[0]) - 1


def _line_of(entry, seen, lines_of_ids):
    """The line of a question's id; of one that is there twice, the second time."""
    identifier = entry.get("id") if isinstance(entry, dict) else None
    lines = lines_of_ids.get(json.dumps(identifier), [1])
    return lines[min(len(lines) - 1, 1 if isinstance(identifier, str) and identifier in seen else 0)]


def _lines_of_ids(text):
    """The lines on which each id stands in a file, by its JSON: dict of str to list of int."""
    lines_of_ids = {}
    line, place = 1, 0
    for match in _ID.finditer(text):
        line += text.count("\n", place, match.start())
        place = match.start()
        try:
            identifier = json.dumps(json.loads(match[1]))
        except ValueError:  # a list or an object, which is cut off here
            continue
        lines_of_ids.setdefault(identifier, []).append(line)
    return lines_of_ids
