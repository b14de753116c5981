import pytest
from absl import app, flags

from keras_bert.data.formats.squad_files import read_squad
from keras_bert.data.formats.triviaqa import MAX_TOKENS
from keras_bert.io.row_errors import BadRowError
from tests.data.formats.triviaqa_files import EVIDENCE, QUESTIONS, write_triviaqa
from tools import triviaqa_to_squad


def values_of(folder, *arguments):
    values = flags.FlagValues()
    triviaqa_to_squad.define_flags(values)
    defaults = [
        f"--input={folder}/web-train.json",
        f"--evidence_dir={folder}/evidence",
        f"--output={folder}/squad.json",
    ]
    values(["triviaqa_to_squad", *defaults, *arguments])
    return values


def convert(folder, *arguments):
    """Writes squad.json to the folder of a data set, and returns its questions by id."""
    triviaqa_to_squad.run(values_of(folder, *arguments))
    return {question.id: question for question in read_squad(folder / "squad.json", "1.1", to_train=True)}


@pytest.fixture
def trivia(tmp_path):
    write_triviaqa(tmp_path)
    return tmp_path


def test_the_default_length_is_that_of_the_library():
    values = flags.FlagValues()
    triviaqa_to_squad.define_flags(values)
    assert values["max_tokens"].default == MAX_TOKENS == 400


def test_documents_become_paragraphs(trivia, capsys):
    questions = convert(trivia)
    assert {identifier: question.answers for identifier, question in questions.items()} == {
        "made_1--Vell.txt": ("Lake Vell",),
        'made_1--Ferry_"Anna"?.txt': ("lac véll",),
        "made_1--12/12_345.txt": ("LAKE-VELL",),
        "made_2--Harper.txt": ("O’Hara’s Tune",),
    }
    assert capsys.readouterr().err.splitlines() == [
        f"2 questions, 5 documents: 4 documents of 2 questions written to {trivia}/squad.json",
        "1 document left out: no answer in 400 words",
    ]


def test_everything_left_out_is_counted(tmp_path, capsys):
    questions = [*QUESTIONS, QUESTIONS[0], {"QuestionId": "bad"}]
    questions[1] = {**QUESTIONS[1], "QuestionPartOfVerifiedEval": False}
    evidence = {name: document for name, document in EVIDENCE.items() if "12" not in name}
    write_triviaqa(tmp_path, questions, evidence, VerifiedEval=True)
    assert len(convert(tmp_path, "--skip_bad_rows", "--max_tokens=3")) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"3 questions, 6 documents: 1 document of 1 question written to {tmp_path}/squad.json",
        "1 document left out: no answer in 3 words",
        "1 document left out: the file is missing",
        "3 documents named twice by a question",
        "1 question skipped: unusable",
        "1 question left out: not verified",
    ]


def test_an_existing_file_is_only_replaced_on_request(trivia):
    (trivia / "squad.json").write_text("mine")
    with pytest.raises(FileExistsError, match="--overwrite to replace it"):
        convert(trivia)
    assert (trivia / "squad.json").read_text() == "mine"
    assert len(convert(trivia, "--overwrite")) == 4


def test_the_input_is_not_replaced(trivia):
    content = (trivia / "web-train.json").read_bytes()
    with pytest.raises(ValueError, match="is one of the files of --input"):
        convert(trivia, f"--output={trivia}/web-train.json", "--overwrite")
    assert (trivia / "web-train.json").read_bytes() == content


def test_an_error_leaves_no_file(trivia):
    (trivia / "evidence" / "wikipedia" / "Late.txt").unlink()
    with pytest.raises(BadRowError, match=r"question made_2 names 'Late\.txt', a file missing in .*skip_bad_rows"):
        convert(trivia)
    assert sorted(path.name for path in trivia.iterdir()) == ["evidence", "web-train.json"]


def test_errors_are_printed_in_one_line(trivia, monkeypatch):
    (trivia / "squad.json").write_text("mine")
    monkeypatch.setattr(flags, "FLAGS", values_of(trivia))
    with pytest.raises(SystemExit, match=r"^tools.triviaqa_to_squad: --output=[^\n]*$"):
        triviaqa_to_squad.main(["triviaqa_to_squad"])
    with pytest.raises(app.UsageError, match="unexpected arguments"):
        triviaqa_to_squad.main(["triviaqa_to_squad", "another"])
