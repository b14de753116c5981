import pytest

from keras_bert.data.formats.squad_files import read_squad
from keras_bert.data.formats.triviaqa import MAX_TOKENS
from tests.data.formats.triviaqa_files import EVIDENCE, QUESTIONS, write_triviaqa
from tests.tools.program_flags import parse_flags
from tools import triviaqa_to_squad


def convert(folder, **options):
    """Writes squad.json to the folder of a data set, and returns its questions by id."""
    paths = {"input": folder / "web-train.json", "evidence_dir": folder / "evidence", "output": folder / "squad.json"}
    triviaqa_to_squad.run(parse_flags(triviaqa_to_squad, **{**paths, **options}))
    return {question.id: question for question in read_squad(folder / "squad.json", "1.1", to_train=True)}


def test_documents_become_paragraphs(tmp_path, capsys):
    write_triviaqa(tmp_path)
    (tmp_path / "squad.json").write_text("mine")
    questions = convert(tmp_path, overwrite=True)
    assert {identifier: question.answers for identifier, question in questions.items()} == {
        "made_1--Vell.txt": ("Lake Vell",),
        'made_1--Ferry_"Anna"?.txt': ("lac véll",),
        "made_1--12/12_345.txt": ("LAKE-VELL",),
        "made_2--Harper.txt": ("O’Hara’s Tune",),
    }
    # The default length is the same as in the library, 400.
    assert capsys.readouterr().err.splitlines() == [
        f"2 questions, 5 documents: 4 documents of 2 questions written to {tmp_path}/squad.json",
        f"1 document left out: no answer in {MAX_TOKENS} words",
    ]


def test_everything_left_out_is_counted(tmp_path, capsys):
    questions = [*QUESTIONS, QUESTIONS[0], {"QuestionId": "bad"}]
    questions[1] = {**QUESTIONS[1], "QuestionPartOfVerifiedEval": False}
    evidence = {name: document for name, document in EVIDENCE.items() if "12" not in name}
    write_triviaqa(tmp_path, questions, evidence, VerifiedEval=True)
    assert len(convert(tmp_path, skip_bad_rows=True, max_tokens=3)) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"3 questions, 6 documents: 1 document of 1 question written to {tmp_path}/squad.json",
        "1 document left out: no answer in 3 words",
        "1 document left out: the file is missing",
        "3 documents named twice by a question",
        "1 question skipped: unusable",
        "1 question left out: not verified",
    ]


def test_the_input_is_not_replaced(tmp_path):
    write_triviaqa(tmp_path)
    content = (tmp_path / "web-train.json").read_bytes()
    with pytest.raises(ValueError, match="is one of the files of --input"):
        convert(tmp_path, output=tmp_path / "web-train.json", overwrite=True)
    assert (tmp_path / "web-train.json").read_bytes() == content
