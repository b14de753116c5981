import keras_bert
from tests.tools.program_flags import parse_flags
from tools import make_student


def test_writes_a_student(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("It was a dark night.\n\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("The sea was calm.\n", encoding="utf-8")
    options = {"teacher": "bert_tiny_novels", "layers": "1", "text_files": f"{tmp_path}/a.txt,{tmp_path}/b*.txt"}
    make_student.run(parse_flags(make_student, output=tmp_path / "student", keep_first=200, **options))
    assert f"wrote {tmp_path / 'student'}" in capsys.readouterr().out
    classifier = keras_bert.BertClassifier.from_checkpoint(tmp_path / "student", labels=2)
    vocabulary = classifier.preprocessor.tokenizer.vocabulary
    assert classifier.encoder.num_hidden_layers == 1
    assert {"night", "calm", "."} <= set(vocabulary)
    assert len(vocabulary) < 1000
