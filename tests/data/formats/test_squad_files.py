import gzip
import json
import re

import pytest

from keras_bert.data.formats.squad_files import read_squad, write_squad
from keras_bert.io.row_errors import BadRowError, BadRows

CONTEXT = "The house was  built in 1066,\nsays the old book."


def entry(identifier="q1", answer="1066", start=24, **others):
    answers = [] if answer is None else [{"text": answer, "answer_start": start}]
    return {"id": identifier, "question": "When?", "answers": answers, **others}


@pytest.fixture
def write(tmp_path):
    """Writes a file of one paragraph with questions."""

    def write(*questions, indent=None):
        path = tmp_path / "train.json"
        content = {"version": "1.1", "data": [{"title": "a", "paragraphs": [{"context": CONTEXT, "qas": questions}]}]}
        path.write_text(json.dumps(content, indent=indent))
        return path

    return write


@pytest.mark.parametrize("version", ["1.1", "2.0"])
@pytest.mark.parametrize("split", ["train", "predict"])
def test_examples_equal_those_of_the_original(shared, version, split):
    folder = shared / "golden" / "squad"
    bad_rows = BadRows(skip=True)
    questions = list(read_squad(folder / f"v{version}_{split}.json", version, split == "train", bad_rows))
    content = gzip.decompress((folder / f"v{version}_{split}_examples.jsonl.gz").read_bytes()).decode()
    expected = [json.loads(line) for line in content.split("\n") if line]
    assert len(questions) == len(expected)
    for question, example in zip(questions, expected, strict=True):
        assert question.id == example["qas_id"]
        assert question.question == example["question_text"]
        assert [word for word in re.split("[ \t\r\n\u202f]", question.context) if word] == example["doc_tokens"]
        assert (question.first_word, question.last_word) == (example["start_position"], example["end_position"])
        if split == "train":
            assert question.is_impossible == example["is_impossible"]
            assert next(iter(question.answers), "") == example["orig_answer_text"]
    # The original skips it, too: its answer has a no-break space.
    assert bad_rows.count == (1 if split == "train" else 0)


def test_trains_on_the_first_of_several_answers(write):
    several = entry()
    several["answers"].insert(0, {"text": "built in 1066", "answer_start": 15})
    (question,) = read_squad(write(several), to_train=True)
    assert (question.first_word, question.last_word, question.answers) == (3, 5, ("built in 1066", "1066"))


def test_a_file_to_predict_needs_no_answers(write):
    (question,) = read_squad(write({"id": "q1", "question": "When?"}))
    assert (question.answers, question.first_word) == ((), None)


BAD = [
    (entry(answer="1067"), "the answer '1067' is not in the context at 24, where there is '1066,'"),
    (entry(start=4), "is not in the context at 4, where there is 'house'"),
    (entry(start=1000), "is not in the context at 1000"),
    (entry(start=-1), "is not in the context at -1"),
    (entry(start="24"), "answer_start must be a number of characters, got '24'"),
    (entry(answer=None), "q1 has no answer"),
    (entry(answer=""), "the answer to train on is empty: ''"),
    (entry(answer=" ", start=3), "the answer to train on is empty: ' '"),
    (entry(id=3), "'id' must be a string, got 3"),
    (entry(id=["q1"]), r"'id' must be a string, got \['q1'\]"),
    (entry(question="When\ud800?"), "'question' holds half of a surrogate pair"),
    (entry(answer="10\udcff"), "'answers' holds half of a surrogate pair"),
    (entry(question=None), "'question' must be a string, got None"),
    (entry(answers=["1066"]), "answers must be a list of objects with a text"),
    (7, "must be a JSON object, got 7"),
]


@pytest.mark.parametrize("bad, message", BAD)
def test_reports_an_invalid_question(write, bad, message):
    path = write(entry("q0"), bad, indent=1)
    with pytest.raises(BadRowError, match=rf"{path}.*question 2 of paragraph 1 of article 1.*{message}"):
        list(read_squad(path, to_train=True))
    bad_rows = BadRows(skip=True)
    assert [question.id for question in read_squad(path, to_train=True, bad_rows=bad_rows)] == ["q0"]
    assert bad_rows.count == 1


def test_a_question_to_evaluate_on_needs_an_answer_in_version_1(write):
    path = write(entry("q0"), entry("q1", is_impossible=True), entry("q2", answers=[]))
    bad_rows = BadRows(skip=True)
    assert [question.id for question in read_squad(path, bad_rows=bad_rows, to_evaluate=True)] == ["q0"]
    assert bad_rows.count == 2
    assert len(list(read_squad(path, "2.0", to_evaluate=True))) == 3
    with pytest.raises(BadRowError, match=r"q1 has no answer, .* only version 2\.0 has impossible"):
        list(read_squad(path, to_evaluate=True))


def test_an_invalid_question_has_the_line_of_its_id(write):
    path = write(entry("q0"), entry("q1", answer="1067"), entry("q0"), indent=1)
    lines = [number for number, text in enumerate(path.read_text().split("\n"), 1) if re.search('"q[01]"', text)]
    with pytest.raises(BadRowError, match=f"line {lines[1]}: question 2"):
        list(read_squad(path, to_train=True))
    with pytest.raises(BadRowError, match=rf"line {lines[2]}: question 3 .* an earlier question has the same id 'q0'"):
        list(read_squad(path))


NOT_UTF_8 = '{"data": [{"paragraphs": [{"context": "a \udcff b", "qas": [{"id": "q", "question": "?"}]}]}]}'


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "line 1: is not valid JSON"),
        ('{"data": [\n{]}', "line 2: is not valid JSON"),
        ("[]", "is not in SQuAD's format"),
        ('{"data": [{}]}', "article 1 has no list of paragraphs"),
        ('{"data": [{"paragraphs": [{"context": "a"}]}]}', "paragraph 1 of article 1 has no list of questions"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "paragraph 1 of article 1 has no context"),
        ('{"data": []}', "has no questions"),
        ("[" * 100_000, "nested too deeply"),
        (NOT_UTF_8, r"line 1: question 1 .*'context' holds .* bytes that are not UTF-8"),
    ],
)
def test_refuses_other_formats(tmp_path, content, message):
    path = tmp_path / "train.json"
    path.write_text(content, errors="surrogateescape")
    with pytest.raises(ValueError, match=message):
        list(read_squad(path))


def test_checks_arguments_at_once(tmp_path, write):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_squad(tmp_path / "nowhere.json")
    with pytest.raises(ValueError, match="version must be one of"):
        read_squad(write(entry()), version="2")


def test_reads_what_it_writes(tmp_path):
    path = tmp_path / "new" / "squad.json"
    contexts = ["Ünder the\u2028house", "On it"]
    questions = [entry(context, context[-2:], len(context) - 2) for context in contexts]
    paragraphs = [{"context": context, "qas": [qa]} for context, qa in zip(contexts, questions, strict=True)]
    articles = [{"title": "a", "paragraphs": [paragraph]} for paragraph in paragraphs]
    write_squad(path, iter(articles))
    assert json.loads(path.read_bytes()) == {"version": "1.1", "data": articles}
    assert len(path.read_text("utf-8").split("\n")) == 5
    assert [question.context for question in read_squad(path, to_train=True)] == contexts
    with pytest.raises(FileExistsError, match="exists and is not overwritten"):
        write_squad(path, articles)
    write_squad(path, articles[:1], overwrite=True)
    assert [question.context for question in read_squad(path)] == contexts[:1]


def test_an_error_leaves_no_file(tmp_path):
    def articles():
        yield {}
        raise ValueError("the second is bad")

    with pytest.raises(ValueError, match="there are no articles to write"):
        write_squad(tmp_path / "squad.json", [])
    with pytest.raises(ValueError, match="the second is bad"):
        write_squad(tmp_path / "squad.json", articles())
    assert list(tmp_path.iterdir()) == []
