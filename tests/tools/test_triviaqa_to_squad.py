import json
import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

from keras_bert.data.formats.squad_files import read_squad
from keras_bert.data.formats.triviaqa import MAX_TOKENS
from keras_bert.io.row_errors import BadRowError
from tests.data.formats.triviaqa_files import EVIDENCE, QUESTIONS, write_triviaqa
from tools import triviaqa_to_squad

ROOT = Path(__file__).parents[2]


def convert(folder, *arguments):
    """Makes squad.json in the folder of a set."""
    values = flags.FlagValues()
    triviaqa_to_squad.define_flags(values)
    defaults = [
        f"--input={folder}/web-train.json",
        f"--evidence_dir={folder}/evidence",
        f"--output={folder}/squad.json",
    ]
    values(["triviaqa_to_squad", *defaults, *arguments])
    triviaqa_to_squad.run(values)
    return {question.id: question for question in read_squad(folder / "squad.json", "1.1", to_train=True)}


@pytest.fixture
def trivia(tmp_path):
    write_triviaqa(tmp_path)
    return tmp_path


def test_the_default_is_that_of_the_library():
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


def test_everything_that_is_left_out_is_counted(tmp_path, capsys):
    questions = [*QUESTIONS, QUESTIONS[0], {"QuestionId": "bad"}]
    questions[1] = {**QUESTIONS[1], "QuestionPartOfVerifiedEval": False}
    evidence = {name: document for name, document in EVIDENCE.items() if "12" not in name}
    write_triviaqa(tmp_path, questions, evidence, VerifiedEval=True)
    assert len(convert(tmp_path, "--skip_bad_rows", "--max_tokens=3")) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"3 questions, 6 documents: 1 document of 1 question written to {tmp_path}/squad.json",
        "1 document left out: no answer in 3 words",
        "1 document left out: there is no such file",
        "3 documents named twice by their question",
        "1 question skipped: cannot be used",
        "1 question left out: not verified",
    ]


def test_a_bar_shows_the_questions(trivia, capsys):
    convert(trivia, "--progress=on", "--max_questions=1")
    assert "1/1" in capsys.readouterr().err


def test_what_is_there_is_replaced_only_if_asked_for(trivia):
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


def test_after_an_error_there_is_no_file(trivia):
    (trivia / "evidence" / "wikipedia" / "Late.txt").unlink()
    with pytest.raises(BadRowError, match=r"question made_2 names 'Late\.txt', which is no file in .*skip_bad_rows"):
        convert(trivia)
    assert sorted(path.name for path in trivia.iterdir()) == ["evidence", "web-train.json"]


@pytest.mark.slow
def test_the_program_says_what_is_wrong_in_one_line(trivia):
    def start(*arguments):
        command = [sys.executable, "-m", "tools.triviaqa_to_squad", f"--evidence_dir={trivia}/evidence", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    arguments = (f"--input={trivia}/web-train.json", f"--output={trivia}/squad.json")
    finished = start(*arguments)
    assert finished.returncode == 0, finished.stderr
    assert len(json.loads((trivia / "squad.json").read_bytes())["data"]) == 4
    failed = start(*arguments)
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("tools.triviaqa_to_squad: --output=")
    assert "Traceback" not in failed.stderr
    assert "every file has its flag" in start(*arguments, "another").stderr
