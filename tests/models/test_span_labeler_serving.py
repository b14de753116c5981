"""An exported span labeler answers as the model does, and as the files of predictions say."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.formats.squad_files import SquadQuestion
from keras_bert.data.formats.squad_predictions import answer_questions
from keras_bert.data.tokenized_questions import tokenize_questions
from keras_bert.models.span_labeler import BertSpanLabeler
from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
from keras_bert.text.tokenizer import BertTokenizer
from tests.toys import VOCABULARY, toy_encoder

QUESTIONS = ["the film ?", "good , was", "a", "dull dull dull dull dull dull dull", "", "plot"]
CONTEXTS = ["A good film was lovely.", "the plot, and the film\nwas dull " * 6, "", " \t ", "goodly plot", "bad . fine"]


@pytest.fixture(scope="module")
def labeler():
    preprocessor = BertQuestionPreprocessor(BertTokenizer(VOCABULARY, lower_case=True), 16, 4, 6)
    return BertSpanLabeler(toy_encoder(num_hidden_layers=1, with_pooler=False), preprocessor, seed=1)


@pytest.fixture(scope="module")
def exported(labeler, tmp_path_factory):
    return labeler.export(tmp_path_factory.mktemp("answers") / "1", n_best=20, max_answer_length=5)


def serve(path, questions, contexts):
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    return signature(question=tf.constant(questions, tf.string), context=tf.constant(contexts, tf.string))


def test_answers_are_those_of_the_files_of_predictions(labeler, exported):
    served = serve(exported, QUESTIONS, CONTEXTS)
    questions = [
        SquadQuestion(str(i), question, context, (), False, None, None)
        for i, (question, context) in enumerate(zip(QUESTIONS, CONTEXTS, strict=True))
    ]
    preprocessor = labeler.preprocessor
    tokenized = tokenize_questions(questions, preprocessor)
    batch = tokenized.windows.batch(np.arange(len(tokenized.windows)))
    logits = (values.numpy() for values in labeler(batch).values())
    predictions = answer_questions(tokenized, *logits, preprocessor.tokenizer, max_answer_length=5)
    for row, answers in enumerate(predictions.n_best.values()):
        found = [text.decode() for text in served["n_best_answers"][row].numpy() if text]  # two may have one sum
        assert sorted(found) == sorted(answer.text for answer in answers if answer.text != "empty")
        sums = [answer.start_logit + answer.end_logit for answer in answers][: len(found)]
        np.testing.assert_allclose(served["n_best_scores"][row, : len(found)], sums, atol=1e-5)
        assert served["answer"][row].numpy().decode() == (found[0] if found else "")


def test_places_are_those_of_the_answer(exported):
    served = serve(exported, QUESTIONS, CONTEXTS)
    for row, context in enumerate(CONTEXTS):
        start, end = int(served["start_character"][row]), int(served["end_character"][row])
        assert " ".join(context[start:end].split()) == served["answer"][row].numpy().decode()
        first, last = int(served["start_byte"][row]), int(served["end_byte"][row])
        assert context.encode()[first:last].decode() == context[start:end]


def test_the_model_answers_the_same(labeler, exported):
    served = serve(exported, QUESTIONS, CONTEXTS)
    answers = labeler.answer(QUESTIONS, CONTEXTS, n_best=3, max_answer_length=5)
    assert [len(of_question) for of_question in answers] == [3, 3, 0, 0, 3, 3]
    for row, of_question in enumerate(answers):
        for number, answer in enumerate(of_question):
            # White space in an answer is one space, as in the original's files.
            assert answer["text"] == " ".join(CONTEXTS[row][answer["start"] : answer["end"]].split())
            assert answer["text"] == served["n_best_answers"][row, number].numpy().decode()


def test_the_threshold_makes_a_question_impossible(labeler, tmp_path):
    question, context = QUESTIONS[:1], CONTEXTS[:1]
    (best,) = labeler.answer(question, context)[0]
    (null,) = labeler.answer(question, context, null_threshold=-1e30)[0]
    odds = null["score"] - best["score"]
    for threshold, text in ((odds + 0.01, best["text"]), (odds - 0.01, "")):
        served = serve(labeler.export(tmp_path / f"2{text == ''}", null_threshold=threshold), question, context)
        assert served["answer"][0].numpy().decode() == text
        assert int(served["end_byte"][0]) == (best["end"] if text else 0)
        assert float(served["score"][0]) == pytest.approx(best["score"])
        assert labeler.answer(question, context, null_threshold=threshold)[0][0]["text"] == text


def test_bytes_that_are_no_characters_are_within_an_answer(labeler):
    (answers,) = labeler.answer([b"film"], [b"good \xff film"], n_best=20)
    assert "good \ufffd film" in [answer["text"] for answer in answers]


def test_what_cannot_be_answered_is_refused(labeler, tmp_path):
    bare = BertSpanLabeler(toy_encoder(), seed=1)
    with pytest.raises(ValueError, match="needs a preprocessor"):
        bare.answer(["a"], ["b"])
    with pytest.raises(ValueError, match="needs a preprocessor"):
        bare.export(tmp_path / "1")
    with pytest.raises(ValueError, match="one context for each question"):
        labeler.answer(["a", "b"], ["c"])
    whole, number = "a whole number of at least 1", "a number or None"
    for arguments, allowed in (
        ({"n_best": 0}, whole),
        ({"n_best": -1}, whole),
        ({"n_best": 1.5}, whole),
        ({"max_answer_length": 0}, whole),
        ({"null_threshold": "0"}, number),
        ({"null_threshold": float("nan")}, number),
    ):
        ((name, given),) = arguments.items()
        message = f"{name} must be {allowed}, got {given!r}"
        with pytest.raises(ValueError, match=message):
            labeler.answer(["a"], ["b"], **arguments)
        with pytest.raises(ValueError, match=message):
            labeler.export(tmp_path / "1", **arguments)
