"""TriviaQA's files (arXiv 1705.03551): questions, the names of their answers, and documents that may hold one."""

import collections
import dataclasses
import itertools
import os
import re
import unicodedata
from pathlib import Path
from typing import NamedTuple

from keras_bert.data.formats.text_lines import check_is_file, check_text, parse_json
from keras_bert.io.row_errors import BadRows, quotation

# BERT's paper, footnote to section 4.2: "the first 400 tokens in documents". It does not say what it takes for a token.
MAX_TOKENS = 400

# The lists of a question's documents, and the folders of evidence in which these lie.
_FOLDERS = {"EntityPages": "wikipedia", "SearchResults": "web"}
# Half of what a file holds, and not needed.
_UNUSED = ("Description", "DisplayUrl", "NormalizedAliases", "Title", "Url")
# Some file systems forbid these, and unpackers write _ there.
_FORBIDDEN = str.maketrans(dict.fromkeys('<>:"|?*\\', "_"))

_ARTICLES = frozenset(["a", "an", "the"])
# White space, ASCII's and Latin-1's punctuation, the acute accent, and the blocks of general and of CJK punctuation.
_SEPARATORS = r"\s!-/:-@\[-`{-~¡§«´¶·»¿\u2000-\u206f\u3000-\u303f\ufeff"
_WORD = re.compile(rf"[^{_SEPARATORS}]+(?:(?<=\d)[.,](?=\d)[^{_SEPARATORS}]+)*")


@dataclasses.dataclass
class TriviaQACounts:
    """What was read, and what became of it.

    Attributes:
        questions_of_file: int. Questions in the file, or as many of them as are wanted.
        questions: int. Those read so far.
        bad_questions: int. Those that cannot be used.
        rejected: int. Questions of a verified set that did not pass its verification.
        documents: int. Documents of the questions that can be used.
        repeated: int. Documents that their question names a second time.
        missing: int. Documents whose file is not there.
        without_answer: int. Documents that do not name the answer, as far as they are read.
        kept: int. Documents that do.
        questions_kept: int. Questions with such a document.

    Example:

    >>> TriviaQACounts(kept=2).missing
    0
    """

    questions_of_file: int = 0
    questions: int = 0
    bad_questions: int = 0
    rejected: int = 0
    documents: int = 0
    repeated: int = 0
    missing: int = 0
    without_answer: int = 0
    kept: int = 0
    questions_kept: int = 0


def squad_articles(path, evidence_dir, max_tokens=MAX_TOKENS, max_questions=None, bad_rows=None, counts=None):
    """The questions of a file as articles of SQuAD, one for every document that names the answer.

    The context is the beginning of the document with single spaces for white space, the answer the first place where it
    is named (see `find_answer`), the id that of TriviaQA's own converter: of the question, `--`, and of the document.
    A document that does not name the answer gives no article. Bytes of documents that are not UTF-8 become U+FFFD. Of a
    verified set only what passed the verification is taken, as `utils/dataset_utils.py` of TriviaQA does.

    In memory are the questions of the file, and of their documents one at a time.

    Args:
        path: str or Path. A file of TriviaQA's folder `qa`, such as `wikipedia-train.json`.
        evidence_dir: str or Path. TriviaQA's folder `evidence`, with the folders `wikipedia` and `web`.
        max_tokens: int. How many words of a document are read; a word is what stands between white space.
        max_questions: int or None. How many questions are read; None reads all.
        bad_rows: a `BadRows`, told of questions that lack a part, and of documents whose file is not there. None takes
            the first one for an error.
        counts: a `TriviaQACounts` that is added to, or None.

    Returns:
        Iterator of dict, as `write_squad` takes them.

    Raises:
        FileNotFoundError: if there is no such file or no such folder of evidence.
        ValueError: if a number is less than 1, or, when it is read, the file is not in TriviaQA's form, has no
            questions, or gives no article.
        BadRowError: on a bad question or a document whose file is not there, unless `bad_rows` skips it.

    Example:

    >>> import json
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "wikipedia").mkdir()
    >>> _ = (folder / "wikipedia" / "France.txt").write_text("Its capital is Paris.")
    >>> question = {"Question": "What is the capital of France?", "QuestionId": "q1", "Answer": {"Value": "PARIS"}}
    >>> question["EntityPages"] = [{"Filename": "France.txt"}]
    >>> _ = (folder / "train.json").write_text(json.dumps({"Data": [question]}))
    >>> next(squad_articles(folder / "train.json", folder))["paragraphs"][0]["qas"]
    [{'id': 'q1--France.txt', 'question': 'What is the capital of France?',
      'answers': [{'text': 'Paris', 'answer_start': 15}]}]
    """
    for name, number in (("max_tokens", max_tokens), ("max_questions", max_questions)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    path, evidence_dir = check_is_file(path), Path(evidence_dir)
    folders = list(_FOLDERS.values())
    if not any((evidence_dir / folder).is_dir() for folder in folders):
        raise FileNotFoundError(
            f"{evidence_dir} has none of the folders {folders}; give TriviaQA's folder evidence, which holds them"
        )
    bad_rows = BadRows() if bad_rows is None else bad_rows
    counts = TriviaQACounts() if counts is None else counts
    return _articles(path, evidence_dir, max_tokens, max_questions, bad_rows, counts)


def find_answer(context, names):
    """Where a text names an answer first.

    Words are compared, in lower case: what stands between white space and punctuation, where a number keeps its points
    and commas. A name is looked for with its articles, so that `The Who` is not found in `those who know`; only if no
    name is there, without any, as the official score compares answers (`normalize_answer` in
    `evaluation/triviaqa_evaluation.py` of TriviaQA). Of several names that begin with one word the longest is taken.

    TriviaQA's own converter (`utils/convert_to_squad_format.py`) takes the first name of the list that is anywhere in
    the text, also within a word, and finds hardly any that has punctuation.

    Args:
        context: str.
        names: iterable of str. The names of the answer.

    Returns:
        Pair of int, the first character of the place and one past its last; None if there is none.

    Example:

    >>> context = "Those who know call Schindler's List a classic."
    >>> start, end = find_answer(context, ["The Who", "SCHINDLER’S LIST"])
    >>> context[start:end]
    "Schindler's List"
    """
    words, names = _words(context), [_words(name) for name in names]
    return _first_of(names, words) or _first_of(map(_without_articles, names), _without_articles(words))


def _words(text):
    """Triples: a word as it is compared, its first character, and one past its last."""
    return [(unicodedata.normalize("NFC", match.group().lower()), *match.span()) for match in _WORD.finditer(text)]


def _without_articles(words):
    return [word for word in words if word[0] not in _ARTICLES]


def _first_of(names, words):
    names_by_first_word = collections.defaultdict(list)
    for name in names:
        forms = [form for form, _, _ in name]
        if not _ARTICLES.issuperset(forms):  # a name that is nothing but articles would be found everywhere
            names_by_first_word[forms[0]].append(forms)
    forms = [form for form, _, _ in words]
    for place, form in enumerate(forms):
        lengths = [len(name) for name in names_by_first_word.get(form, ()) if forms[place : place + len(name)] == name]
        if lengths:
            return words[place][1], words[place + max(lengths) - 1][2]
    return None


class _Question(NamedTuple):
    id: str
    text: str
    names: list[str]  # of the answer
    files: list[tuple[str, str]]  # the folder of evidence and the name in it


def _articles(path, evidence_dir, max_tokens, max_questions, bad_rows, counts):
    entries, is_verified_web = _read(path, counts)
    entries = entries[:max_questions]
    counts.questions_of_file += len(entries)
    problems, seen, any_kept = itertools.count(1), set(), False
    for line, entry in entries:
        counts.questions += 1
        try:
            question = _question(entry, is_verified_web)
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
                reason = f"question {question.id} names {quotation(name)}, which is no file in {evidence_dir / folder}"
                bad_rows.report(path, line, reason, next(problems))
                continue
            context = _beginning(file, max_tokens)
            place = find_answer(context, question.names)
            if place is None:
                counts.without_answer += 1
                continue
            counts.kept += 1
            counts.questions_kept += not any_kept_of_question
            any_kept = any_kept_of_question = True
            yield _article(identifier, question.text, name, context, *place)
    if not any_kept:
        raise ValueError(
            f"nothing is left of {path}: of {counts.documents} documents {counts.missing} have no file, and "
            f"{counts.without_answer} do not name the answer in their first {max_tokens} words"
        )


def _read(path, counts):
    """Pairs of a line and the question on it, and whether only verified documents of these count."""
    content = path.read_bytes()
    parsed = parse_json(path, content.decode("utf-8-sig", "surrogateescape"), _without_unused)
    questions = parsed.get("Data") if isinstance(parsed, dict) else None
    if not isinstance(questions, list):
        form = '{"Data": [{"Question": ..., "QuestionId": ..., "Answer": ..., "EntityPages": [...]}]}'
        raise ValueError(f"{path} is not in TriviaQA's form: {form}; got {quotation(parsed)}")
    if not questions:
        raise ValueError(f"{path} has no questions")
    entries = list(_with_lines(content, questions))
    if parsed.get("VerifiedEval") is not True:
        return entries, False
    passed = [(line, entry) for line, entry in entries if not _is_rejected(entry, "QuestionPartOfVerifiedEval")]
    counts.rejected += len(entries) - len(passed)
    return passed, parsed.get("Domain") == "Web"


def _without_unused(entry):
    for name in _UNUSED:
        entry.pop(name, None)
    return entry


def _with_lines(content, questions):
    line, place = 1, 0
    for question in questions:
        if isinstance(question, dict) and "QuestionId" in question:
            # The key: within a text it would have backslashes before its quotation marks.
            following = max(place, content.find(b'"QuestionId"', place + 1))
            line, place = line + content.count(b"\n", place, following), following
        yield line, question


def _is_rejected(entry, flag):
    return isinstance(entry, dict) and entry.get(flag) is False


def _question(entry, is_verified_web):
    if not isinstance(entry, dict):
        raise ValueError(f"a question must be a JSON object, got {quotation(entry)}")
    for name in ("QuestionId", "Question"):
        check_text(name, entry.get(name))
    names = _names_of_answer(entry)
    files = []
    for source, folder in _FOLDERS.items():
        pages = _list_of(entry, source, dict)
        if is_verified_web:
            pages = [page for page in pages if not _is_rejected(page, "DocPartOfVerifiedEval")]
        files += [(folder, _file_name(page)) for page in pages]
    return _Question(entry["QuestionId"], entry["Question"], names, files)


def _names_of_answer(entry):
    if "Answer" not in entry:
        raise ValueError(f"question {entry['QuestionId']} has no Answer; the files of TriviaQA's test set have none")
    answer = entry["Answer"]
    if not isinstance(answer, dict) or not isinstance(answer.get("Value"), str):
        raise ValueError(f"the Answer of question {entry['QuestionId']} has no text 'Value', got {quotation(answer)}")
    return [answer["Value"], *_list_of(answer, "Aliases", str), *_list_of(answer, "HumanAnswers", str)]


def _list_of(entry, name, kind):
    values = entry.get(name) or []
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        what = "texts" if kind is str else "objects"
        raise ValueError(f"{name!r} must be a list of {what}, got {quotation(values)}")
    return values


def _file_name(page):
    name = page.get("Filename")
    check_text("Filename", name)
    if os.path.isabs(name) or ".." in name.split("/"):
        raise ValueError(f"'Filename' must be that of a file in the folder of evidence, got {quotation(name)}")
    return name


def _find_file(folder, name):
    """The file of a document, under its name or the one that it has where some characters are forbidden, or None."""
    paths = (os.path.join(folder, written) for written in (name, name.translate(_FORBIDDEN)))
    return next(filter(os.path.isfile, paths), None)


def _beginning(file, max_tokens):
    """The first words of a document, with a space between two."""
    words = []
    with open(file, encoding="utf-8-sig", errors="replace") as lines:
        for line in lines:
            words += line.split()
            if len(words) >= max_tokens:
                break
    return " ".join(words[:max_tokens])


def _article(identifier, question, title, context, start, end):
    answer = {"text": context[start:end], "answer_start": start}
    entry = {"id": identifier, "question": question, "answers": [answer]}
    return {"title": title, "paragraphs": [{"context": context, "qas": [entry]}]}
