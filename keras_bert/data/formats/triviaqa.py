"""TriviaQA's files (arXiv 1705.03551): questions, the names of their answers, and documents that may contain one."""

import collections
import dataclasses
import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from keras_bert.data.formats.text_lines import check_is_file, check_text, parse_json
from keras_bert.io.row_errors import BadRows, quotation
from keras_bert.typing import PathLike

# BERT's paper, footnote to section 4.2: "the first 400 tokens in documents". It does not define a token.
MAX_TOKENS = 400

# The lists of a question's documents, and the folders of evidence that contain them.
_FOLDERS = {"EntityPages": "wikipedia", "SearchResults": "web"}
# Half of the contents of a file, and not needed.
_UNUSED = ("Description", "DisplayUrl", "NormalizedAliases", "Title", "Url")
# Some file systems forbid these characters, which unpackers replace by _.
_FORBIDDEN = str.maketrans(dict.fromkeys('<>:"|?*\\', "_"))

_ARTICLES = frozenset(["a", "an", "the"])
# White space, ASCII's and Latin-1's punctuation, the acute accent, and the blocks of general and of CJK punctuation.
_SEPARATORS = r"\s!-/:-@\[-`{-~¡§«´¶·»¿\u2000-\u206f\u3000-\u303f\ufeff"
_WORD_PATTERN = re.compile(rf"[^{_SEPARATORS}]+(?:(?<=\d)[.,](?=\d)[^{_SEPARATORS}]+)*")

# A word in the form in which it is compared, its first character, and its last one + 1.
_Word = tuple[str, int, int]


@dataclasses.dataclass
class TriviaQACounts:
    """Numbers of questions and documents, counted while a file is converted."""

    questions_of_file: int = 0  # questions to read
    questions: int = 0  # questions read so far
    bad_questions: int = 0  # invalid questions
    rejected: int = 0  # questions of a verified set that did not pass verification
    documents: int = 0  # documents of valid questions
    repeated: int = 0  # documents that their question names a second time
    missing: int = 0  # documents whose file does not exist
    without_answer: int = 0  # documents whose first words do not contain the answer
    kept: int = 0  # documents that contain it
    questions_kept: int = 0  # questions with at least one document kept


def squad_articles(
    path: PathLike,
    evidence_dir: PathLike,
    max_tokens: int = MAX_TOKENS,
    max_questions: int | None = None,
    bad_rows: BadRows | None = None,
    counts: TriviaQACounts | None = None,
) -> Iterator[dict[str, Any]]:
    """Converts the questions of a file to articles of SQuAD, one for each document that contains the answer.

    The context is the start of the document with single spaces for white space, the answer its first occurrence (see
    `find_answer`), and the id that of TriviaQA's own converter: of the question, `--`, and of the document. Documents
    without the answer are left out. Bytes of documents that are not UTF-8 become U+FFFD. Of a verified set only what
    passed verification is used, as `utils/dataset_utils.py` of TriviaQA does.

    The questions of the file are in memory, and their documents one at a time.

    `path` is a file of TriviaQA's folder `qa`, such as `wikipedia-train.json`, and `evidence_dir` its folder
    `evidence`. Of a document, `max_tokens` words are read, separated by white space. A question is invalid if it lacks
    a field, or the file of a document does not exist. Raises ValueError if the file is not in TriviaQA's format, or
    yields no article.
    """
    for name, number in (("max_tokens", max_tokens), ("max_questions", max_questions)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    path, evidence_dir = check_is_file(path), Path(evidence_dir)
    folders = list(_FOLDERS.values())
    if not any((evidence_dir / folder).is_dir() for folder in folders):
        raise FileNotFoundError(f"{evidence_dir} has none of the folders {folders}; give TriviaQA's folder evidence")
    bad_rows = BadRows() if bad_rows is None else bad_rows
    counts = TriviaQACounts() if counts is None else counts
    return _make_articles(path, evidence_dir, max_tokens, max_questions, bad_rows, counts)


def find_answer(context: str, names: Iterable[str]) -> tuple[int, int] | None:
    """Finds the first occurrence of one of an answer's names; returns its first character and its last one + 1.

    Lowercase words are compared: what is between white space and punctuation, where a number keeps its points and
    commas. A name is searched for with its articles, so that `The Who` is not found in `those who know`; if no name
    occurs, it is searched for without them, as the official score compares answers (`normalize_answer` in
    `evaluation/triviaqa_evaluation.py` of TriviaQA). Of several names that start with the same word, the longest wins.

    TriviaQA's own converter (`utils/convert_to_squad_format.py`) uses the first name in the list that occurs anywhere,
    even within a word, and finds hardly any name with punctuation.
    """
    words, names_words = _split_words(context), [_split_words(name) for name in names]
    return _find_first(names_words, words) or _find_first(map(_drop_articles, names_words), _drop_articles(words))


def _split_words(text: str) -> list[_Word]:
    return [
        (unicodedata.normalize("NFC", match.group().lower()), *match.span()) for match in _WORD_PATTERN.finditer(text)
    ]


def _drop_articles(words: list[_Word]) -> list[_Word]:
    return [word for word in words if word[0] not in _ARTICLES]


def _find_first(names: Iterable[list[_Word]], words: list[_Word]) -> tuple[int, int] | None:
    names_by_first_word = collections.defaultdict(list)
    for name in names:
        forms = [form for form, _, _ in name]
        if not _ARTICLES.issuperset(forms):  # a name of articles only would be found everywhere
            names_by_first_word[forms[0]].append(forms)
    forms = [form for form, _, _ in words]
    for index, form in enumerate(forms):
        lengths = [len(name) for name in names_by_first_word.get(form, ()) if forms[index : index + len(name)] == name]
        if lengths:
            return words[index][1], words[index + max(lengths) - 1][2]
    return None


class _Question(NamedTuple):
    id: str
    text: str
    names: list[str]  # names of the answer
    files: list[tuple[str, str]]  # folder of evidence and file name of each document


def _make_articles(
    path: Path,
    evidence_dir: Path,
    max_tokens: int,
    max_questions: int | None,
    bad_rows: BadRows,
    counts: TriviaQACounts,
) -> Iterator[dict[str, Any]]:
    entries, is_verified_web = _read(path, counts)
    entries = entries[:max_questions]
    counts.questions_of_file += len(entries)
    problems, any_kept = itertools.count(1), False
    seen: set[str] = set()
    for line, entry in entries:
        counts.questions += 1
        try:
            question = _parse_question(entry, is_verified_web)
        except ValueError as error:
            counts.bad_questions += 1
            bad_rows.report(path, line, str(error), next(problems))
            continue
        any_kept_of_question = False
        for folder, name in question.files:
            counts.documents += 1
            identifier = f"{question.id}--{name}"
            if identifier in seen:
                counts.repeated += 1
                continue
            seen.add(identifier)
            file = _find_file(evidence_dir / folder, name)
            if file is None:
                counts.missing += 1
                reason = f"question {question.id} names {quotation(name)}, a file missing in {evidence_dir / folder}"
                bad_rows.report(path, line, reason, next(problems))
                continue
            context = _read_words(file, max_tokens)
            span = find_answer(context, question.names)
            if span is None:
                counts.without_answer += 1
                continue
            counts.kept += 1
            counts.questions_kept += not any_kept_of_question
            any_kept = any_kept_of_question = True
            start, end = span
            answer = {"text": context[start:end], "answer_start": start}
            qas = [{"id": identifier, "question": question.text, "answers": [answer]}]
            yield {"title": name, "paragraphs": [{"context": context, "qas": qas}]}
    if not any_kept:
        raise ValueError(
            f"{path} has no usable question: of {counts.documents} documents, {counts.missing} have no file, and "
            f"{counts.without_answer} do not contain the answer in their first {max_tokens} words"
        )


def _read(path: Path, counts: TriviaQACounts) -> tuple[list[tuple[int, Any]], bool]:
    """Reads pairs of a line and a question, and whether only their verified documents count."""
    content = path.read_bytes()
    parsed = parse_json(path, content.decode("utf-8-sig", "surrogateescape"), _drop_unused)
    questions = parsed.get("Data") if isinstance(parsed, dict) else None
    if not isinstance(questions, list):
        form = '{"Data": [{"Question": ..., "QuestionId": ..., "Answer": ..., "EntityPages": [...]}]}'
        raise ValueError(f"{path} is not in TriviaQA's format: {form}; got {quotation(parsed)}")
    if not questions:
        raise ValueError(f"{path} has no questions")
    entries = list(_with_lines(content, questions))
    if parsed.get("VerifiedEval") is not True:
        return entries, False
    passed = [(line, entry) for line, entry in entries if not _is_rejected(entry, "QuestionPartOfVerifiedEval")]
    counts.rejected += len(entries) - len(passed)
    return passed, parsed.get("Domain") == "Web"


def _drop_unused(entry: dict[str, Any]) -> dict[str, Any]:
    for name in _UNUSED:
        entry.pop(name, None)
    return entry


def _with_lines(content: bytes, questions: list[Any]) -> Iterator[tuple[int, Any]]:
    line, position = 1, 0
    for question in questions:
        if isinstance(question, dict) and "QuestionId" in question:
            # The key: in a text, its quotation marks would be escaped.
            following = max(position, content.find(b'"QuestionId"', position + 1))
            line, position = line + content.count(b"\n", position, following), following
        yield line, question


def _is_rejected(entry: Any, flag: str) -> bool:
    return isinstance(entry, dict) and entry.get(flag) is False


def _parse_question(entry: Any, is_verified_web: bool) -> _Question:
    if not isinstance(entry, dict):
        raise ValueError(f"a question must be a JSON object, got {quotation(entry)}")
    for name in ("QuestionId", "Question"):
        check_text(name, entry.get(name))
    names = _answer_names(entry)
    files = []
    for source, folder in _FOLDERS.items():
        pages = _list_of(entry, source, dict)
        if is_verified_web:
            pages = [page for page in pages if not _is_rejected(page, "DocPartOfVerifiedEval")]
        files += [(folder, _file_name(page)) for page in pages]
    return _Question(entry["QuestionId"], entry["Question"], names, files)


def _answer_names(entry: dict[str, Any]) -> list[str]:
    if "Answer" not in entry:
        raise ValueError(f"question {entry['QuestionId']} has no Answer; the files of TriviaQA's test set have none")
    answer = entry["Answer"]
    if not isinstance(answer, dict) or not isinstance(answer.get("Value"), str):
        raise ValueError(f"the Answer of question {entry['QuestionId']} has no text 'Value', got {quotation(answer)}")
    return [answer["Value"], *_list_of(answer, "Aliases", str), *_list_of(answer, "HumanAnswers", str)]


def _list_of(entry: dict[str, Any], name: str, kind: type) -> list[Any]:
    values = entry.get(name) or []
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        what = "texts" if kind is str else "objects"
        raise ValueError(f"{name!r} must be a list of {what}, got {quotation(values)}")
    return values


def _file_name(page: dict[str, Any]) -> str:
    name = check_text("Filename", page.get("Filename"))
    if os.path.isabs(name) or ".." in name.split("/"):
        raise ValueError(f"'Filename' must be a file in the folder of evidence, got {quotation(name)}")
    return name


def _find_file(folder: Path, name: str) -> str | None:
    """Finds the file of a document, also under the name it has on file systems that forbid some characters."""
    paths = (os.path.join(folder, written) for written in (name, name.translate(_FORBIDDEN)))
    return next(filter(os.path.isfile, paths), None)


def _read_words(file: str, max_tokens: int) -> str:
    """Reads the first words of a document, separated by single spaces."""
    words: list[str] = []
    with open(file, encoding="utf-8-sig", errors="replace") as lines:
        for line in lines:
            words += line.split()
            if len(words) >= max_tokens:
                break
    return " ".join(words[:max_tokens])
