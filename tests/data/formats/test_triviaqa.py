import copy
import json
import random

import pytest

from keras_bert.data.formats.squad_files import read_squad, word_spans, write_squad
from keras_bert.data.formats.triviaqa import MAX_TOKENS, TriviaQACounts, find_answer, squad_articles
from keras_bert.io.row_errors import BadRowError, BadRows
from tests.data.formats.triviaqa_files import EVIDENCE, QUESTIONS, write_triviaqa
from tests.reference import triviaqa as reference


def read(folder, questions=QUESTIONS, evidence=EVIDENCE, max_tokens=MAX_TOKENS, max_questions=None, **others):
    """Returns the paragraphs of a set by question id, and the counts."""
    counts = TriviaQACounts()
    path, evidence_dir = write_triviaqa(folder, questions, evidence, **others)
    articles = squad_articles(path, evidence_dir, max_tokens, max_questions, BadRows(skip=True), counts)
    return {article["paragraphs"][0]["qas"][0]["id"]: article["paragraphs"][0] for article in articles}, counts


def changed(number=0, **values):
    """Returns the questions, one of them with other values."""
    questions = copy.deepcopy(QUESTIONS)
    questions[number].update(values)
    return questions


def answer_of(paragraph):
    (question,) = paragraph["qas"]
    (answer,) = question["answers"]
    assert paragraph["context"][answer["answer_start"] :].startswith(answer["text"])
    return answer["text"], answer["answer_start"]


def test_documents_with_the_answer_become_paragraphs(tmp_path):
    paragraphs, counts = read(tmp_path)
    assert {identifier: answer_of(paragraph) for identifier, paragraph in paragraphs.items()} == {
        "made_1--Vell.txt": ("Lake Vell", 0),
        'made_1--Ferry_"Anna"?.txt': ("lac véll", 37),
        "made_1--12/12_345.txt": ("LAKE-VELL", 36),
        "made_2--Harper.txt": ("O’Hara’s Tune", 22),
    }
    assert paragraphs["made_1--Vell.txt"]["context"] == "Lake Vell is deep. Vell means cold."
    assert paragraphs['made_1--Ferry_"Anna"?.txt']["context"] == "The ferry sailed on the water called lac véll"
    assert paragraphs["made_1--12/12_345.txt"]["context"] == "Ferries \ufffd\ufffd sail. Nobody swam in it, LAKE-VELL."
    assert paragraphs["made_2--Harper.txt"]["qas"][0]["question"] == QUESTIONS[1]["Question"]
    assert counts == TriviaQACounts(2, 2, documents=5, without_answer=1, kept=4, questions_kept=2)


def test_reads_the_first_words_of_a_document(tmp_path):
    paragraphs, _ = read(tmp_path, max_tokens=402)
    assert answer_of(paragraphs["made_2--Late.txt"]) == ("O'Hara's Tune", len("la " * 398 + "the end. "))
    assert read(tmp_path, max_tokens=401)[1].without_answer == 1
    paragraphs, _ = read(tmp_path, max_tokens=3)
    assert [paragraph["context"] for paragraph in paragraphs.values()] == ["Lake Vell is"]


def test_read_squad_finds_the_answers(tmp_path):
    write_squad(tmp_path / "squad.json", squad_articles(*write_triviaqa(tmp_path)))
    questions = list(read_squad(tmp_path / "squad.json", "1.1", to_train=True))
    assert [(question.first_word, question.last_word) for question in questions] == [(0, 1), (7, 8), (7, 7), (4, 5)]
    for question in questions:
        spans = word_spans(question.context)
        (answer,) = question.answers
        assert answer in question.context[spans[question.first_word][0] : spans[question.last_word][1]]


@pytest.mark.parametrize(
    "context, names, found",
    [
        ("Those who know The Who sing.", ["The Who"], "The Who"),
        ("Those who sing.", ["The Who"], "who"),
        ("It is The A.", ["A", "The", "", "!"], None),
        ("strings and ring", ["ring"], "ring"),
        ("Lord of Rings", ["The Lord of the Rings"], "Lord of Rings"),
        ("Lord of the Rings", ["Lord of Rings"], "Lord of the Rings"),
        ("New York, New York City", ["New York City", "New York"], "New York"),
        ("New York City", ["New York", "New York City"], "New York City"),
        ("pi is 3.14, not 3,000 or 3.", ["3"], "3"),
        ("in 3,000 days", ["3,000"], "3,000"),
        ("İİİ then CAFÉ", ["cafe\u0301"], "CAFÉ"),
        ("snake_case_name", ["case"], "case"),
        ("for £5 or 5", ["5"], "5"),
        ("\ufeff(Paris)", ["PARIS"], "Paris"),
        ("Pa ris", ["Paris"], None),
        ("", ["Paris"], None),
        ("Paris", [], None),
    ],
)
def test_finds_an_answer(context, names, found):
    span = find_answer(context, names)
    assert (span and context[slice(*span)]) == found
    assert span == reference.find_answer(context, names)


def test_random_answers_equal_the_reference():
    generator = random.Random(1)
    words = ["a", "The", "an", "who", "WHO", "é", "e\u0301", "É", "İ", "ΣΑΣ", "ς", "3", "14", "£3", "bb"]
    separators = [*"   .,'’“—_$-…´\u00a0\n", ", ", "", " the "]

    def text(most):
        parts = generator.randint(0, most)
        return "".join(generator.choice(words) + generator.choice(separators) for _ in range(parts))

    found = 0
    for _ in range(2000):
        context, names = text(12), [text(3) for _ in range(3)]
        span = find_answer(context, names)
        assert span == reference.find_answer(context, names), (context, names)
        found += span is not None
    assert 500 < found < 1500


def test_finds_documents_with_replaced_characters(tmp_path):
    evidence = {**EVIDENCE, "wikipedia/Ferry__Anna__.txt": EVIDENCE['wikipedia/Ferry_"Anna"?.txt']}
    del evidence['wikipedia/Ferry_"Anna"?.txt']
    paragraphs, counts = read(tmp_path, evidence=evidence)
    assert answer_of(paragraphs['made_1--Ferry_"Anna"?.txt']) == ("lac véll", 37)
    assert counts.missing == 0


def test_reads_a_repeated_document_once(tmp_path):
    pages = [*QUESTIONS[1]["EntityPages"], QUESTIONS[1]["EntityPages"][0]]
    paragraphs, counts = read(tmp_path, changed(1, EntityPages=pages))
    assert (len(paragraphs), counts.documents, counts.repeated, counts.kept) == (4, 6, 1, 4)


def test_reads_max_questions_and_human_answers(tmp_path):
    answer = {"Value": "nothing", "Aliases": [], "HumanAnswers": ["the deep"]}
    paragraphs, counts = read(tmp_path, changed(0, Answer=answer), max_questions=1)
    assert answer_of(paragraphs["made_1--Vell.txt"]) == ("deep", 13)
    assert counts == TriviaQACounts(1, 1, documents=3, without_answer=2, kept=1, questions_kept=1)


@pytest.mark.parametrize("domain, documents", [("Web", 2), ("Wikipedia", 3)])
def test_reads_only_verified_questions_and_documents(tmp_path, domain, documents):
    questions = changed(1, QuestionVerifiedEvalAttempt=True, QuestionPartOfVerifiedEval=False)
    questions[0] |= {"QuestionVerifiedEvalAttempt": True, "QuestionPartOfVerifiedEval": True}
    questions[0]["EntityPages"][0] |= {"DocVerifiedEvalAttempt": True, "DocPartOfVerifiedEval": False}
    questions[0]["EntityPages"][1] |= {"DocVerifiedEvalAttempt": True, "DocPartOfVerifiedEval": True}
    paragraphs, counts = read(tmp_path, questions, VerifiedEval=True, Domain=domain)
    assert len(paragraphs) == counts.documents == documents
    assert (counts.questions, counts.rejected) == (1, 1)
    assert read(tmp_path, questions)[1].documents == 5


def test_a_missing_document_is_reported_with_its_line(tmp_path):
    evidence = {name: document for name, document in EVIDENCE.items() if "Harper" not in name}
    path, evidence_dir = write_triviaqa(tmp_path, evidence=evidence)
    (line,) = [number for number, text in enumerate(path.read_text("utf-8").split("\n"), 1) if '"made_2"' in text]
    articles = squad_articles(path, evidence_dir)
    assert [next(articles)["title"] for _ in range(3)] == ["Vell.txt", 'Ferry_"Anna"?.txt', "12/12_345.txt"]
    message = rf"web-train.json, line {line}: question made_2 names 'Harper.txt', a file missing in .*wikipedia; corr"
    with pytest.raises(BadRowError, match=message):
        next(articles)


def test_counts_missing_documents(tmp_path):
    evidence = {"wikipedia/Vell.txt": EVIDENCE["wikipedia/Vell.txt"]}
    paragraphs, counts = read(tmp_path, evidence=evidence)
    assert (len(paragraphs), counts.missing, counts.kept) == (1, 4, 1)


BAD = [
    (7, "a question must be a JSON object, got 7"),
    ({"QuestionId": None}, "'QuestionId' must be a string, got None"),
    ({"Question": "BAD"}, "'Question' holds half of a surrogate pair"),
    ({"Answer": None}, "the Answer of question made_2 has no text 'Value', got None"),
    ({"Answer": {"Aliases": []}}, "has no text 'Value'"),
    ({"Answer": {"Value": "x", "Aliases": "xyz"}}, "'Aliases' must be a list of texts, got 'xyz'"),
    ({"Answer": {"Value": "x", "HumanAnswers": [1]}}, r"'HumanAnswers' must be a list of texts, got \[1\]"),
    ({"EntityPages": {}, "SearchResults": ["a"]}, r"'SearchResults' must be a list of objects, got \['a'\]"),
    ({"EntityPages": "a"}, "'EntityPages' must be a list of objects, got 'a'"),
    ({"EntityPages": [{"Title": "a"}]}, "'Filename' must be a string, got None"),
    ({"EntityPages": [{"Filename": "../../secret"}]}, "must be a file in the folder of evidence, got '../../sec"),
    ({"EntityPages": [{"Filename": "/etc/passwd"}]}, "must be a file in the folder of evidence, got '/etc"),
]


@pytest.mark.parametrize("bad, message", BAD)
def test_reports_or_skips_an_invalid_question(tmp_path, bad, message):
    questions = [QUESTIONS[0], {**QUESTIONS[1], **bad} if isinstance(bad, dict) else bad]
    path, evidence_dir = write_triviaqa(tmp_path, questions)
    path.write_bytes(path.read_bytes().replace(b'"BAD"', b'"\xff"'))
    with pytest.raises(BadRowError, match=message):
        list(squad_articles(path, evidence_dir))
    bad_rows, counts = BadRows(skip=True), TriviaQACounts()
    assert len(list(squad_articles(path, evidence_dir, bad_rows=bad_rows, counts=counts))) == 3
    assert (bad_rows.count, counts.bad_questions, counts.questions) == (1, 1, 2)


def test_refuses_the_test_set_without_answers(tmp_path):
    questions = [{name: value for name, value in question.items() if name != "Answer"} for question in QUESTIONS]
    with pytest.raises(BadRowError, match="question made_1 has no Answer; the files of TriviaQA's test set have none"):
        list(squad_articles(*write_triviaqa(tmp_path, questions)))


@pytest.mark.parametrize("name", ["", ".", "a\0b", "x" * 5000, "nowhere/a.txt"])
def test_lists_of_names_may_be_missing(tmp_path, name):
    _, counts = read(tmp_path, changed(1, EntityPages=[{"Filename": name}]))
    assert (counts.missing, counts.kept) == (1, 3)


def test_refuses_a_set_without_usable_questions(tmp_path):
    message = "of 5 documents, 4 have no file, and 1 do not contain the answer in their first 9 w"
    with pytest.raises(ValueError, match=message):
        read(tmp_path, evidence={"wikipedia/Vell.txt": b""}, max_tokens=9)


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "line 1: is not valid JSON"),
        ('{"Data": [\n{]}', "line 2: is not valid JSON"),
        ("[]", "is not in TriviaQA's format"),
        ('{"data": []}', "is not in TriviaQA's format: .* got {'data': "),
        ('{"Data": []}', "has no questions"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_refuses_other_formats(tmp_path, content, message):
    path, evidence_dir = write_triviaqa(tmp_path)
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        list(squad_articles(path, evidence_dir))


def test_checks_arguments_at_once(tmp_path):
    path, evidence_dir = write_triviaqa(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        squad_articles(tmp_path / "nowhere.json", evidence_dir)
    with pytest.raises(FileNotFoundError, match=r"none of the folders \['wikipedia', 'web'\]; give TriviaQA's folder"):
        squad_articles(path, evidence_dir / "wikipedia")
    for name in ("max_tokens", "max_questions"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            squad_articles(path, evidence_dir, **{name: 0})


def test_reads_byte_order_marks_and_other_line_ends(tmp_path):
    path, evidence_dir = write_triviaqa(tmp_path)
    expected = list(squad_articles(path, evidence_dir))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert list(squad_articles(path, evidence_dir)) == expected
    path.write_text(json.dumps({"Data": QUESTIONS}), encoding="utf-8")
    assert list(squad_articles(path, evidence_dir)) == expected
