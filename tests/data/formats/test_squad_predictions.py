import gzip
import json

import numpy as np
import pytest

from keras_bert.data.formats.squad_files import SquadQuestion, read_squad
from keras_bert.data.formats.squad_predictions import answer_questions, write_squad_predictions
from keras_bert.data.tokenized_questions import tokenize_questions
from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
from keras_bert.text.tokenizer import BertTokenizer
from tests.tolerances import assert_close


@pytest.mark.parametrize("windows", ["len128_stride64", "len128_stride64_ties", "len384_stride128"])
@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_predictions_equal_those_of_the_original(shared, uncased, tmp_path, version, windows):
    folder, name = shared / "golden" / "squad", f"v{version}_uncased_{windows}"
    sequence_length, stride = (384, 128) if "len384" in windows else (128, 64)
    questions = read_squad(folder / f"v{version}_predict.json", version)
    preprocessor = BertQuestionPreprocessor(uncased, sequence_length, stride, 64)
    tokenized = tokenize_questions(questions, preprocessor)
    logits = np.load(folder / f"{name}_logits.npz")
    # The goldens of ties contain the first windows only.
    number = len(logits["unique_ids"])
    if number < len(tokenized.windows):
        tokenized = tokenize_questions(list(questions)[: tokenized.rows[number - 1] + 1], preprocessor)
    predictions = answer_questions(tokenized, logits["start_logits"], logits["end_logits"], uncased, version)
    files = write_squad_predictions(tmp_path, predictions)

    assert files[0].read_bytes() == (folder / f"{name}_predictions.json").read_bytes()
    expected = json.loads(gzip.decompress((folder / f"{name}_nbest_predictions.json.gz").read_bytes()))
    written = json.loads(files[1].read_text())
    assert list(written) == list(expected)
    for identifier, answers in expected.items():
        assert [answer["text"] for answer in written[identifier]] == [answer["text"] for answer in answers]
        for key in ("start_logit", "end_logit", "probability"):
            ours = [answer[key] for answer in written[identifier]]
            assert_close(ours, [answer[key] for answer in answers], num_terms=20, dtype="float64")
    if version == "2.0":
        odds = json.loads((folder / f"{name}_null_odds.json").read_text())
        assert_close(json.loads(files[2].read_text()), odds, dtype="float64")
    else:
        assert len(files) == 2


@pytest.fixture(scope="module")
def one_question():
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "in", "paris"], lower_case=True)
    question = SquadQuestion("q1", "Where", "In Paris", (), False, None, None)
    return tokenize_questions([question], BertQuestionPreprocessor(tokenizer, 12, 4, 4)), tokenizer


def test_a_question_without_spans_gets_the_null_answer(one_question):
    logits = np.array([[1.0, 9, 9, 0, 0, 9]], "float32")  # the best positions are not in the context
    tokenized, tokenizer = one_question
    first, second = (answer_questions(tokenized, logits, logits, tokenizer, v, n_best=2) for v in ("1.1", "2.0"))
    assert first.answers == {"q1": "empty"}  # as in the original
    assert (second.answers, second.null_odds) == ({"q1": ""}, {"q1": 2.0})
    assert [answer.text for answer in second.n_best["q1"]] == [""]


@pytest.mark.parametrize("threshold, answer", [(-0.1, ""), (0.0, "Paris"), (5.0, "Paris")])
def test_the_threshold_decides_which_questions_are_impossible(one_question, threshold, answer):
    logits = np.array([[3.0, 0, 0, 1, 3, 0]], "float32")
    tokenized, tokenizer = one_question
    predictions = answer_questions(tokenized, logits, logits, tokenizer, "2.0", null_threshold=threshold)
    assert predictions.null_odds == {"q1": 0.0}
    assert predictions.answers == {"q1": answer}


def test_files_are_not_overwritten(one_question, tmp_path):
    logits = np.zeros([1, 6], "float32")
    predictions = answer_questions(one_question[0], logits, logits, one_question[1])
    write_squad_predictions(tmp_path, predictions)
    with pytest.raises(FileExistsError):
        write_squad_predictions(tmp_path, predictions)
    write_squad_predictions(tmp_path, predictions, overwrite=True)
