import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.question_preprocessor import BertQuestionPreprocessor, find_answers
from keras_bert.text.tokenizer import BertTokenizer

CONTEXTS = ["In Páris, in the year 1066.", "", "the  the the the the the the the the the the"]
QUESTIONS = ["Where?", "What?", "The the the the the"]


@pytest.fixture(scope="module")
def preprocessor(tokenizers):
    return BertQuestionPreprocessor(tokenizers["uncased"], sequence_length=12, stride=3, max_query_length=4)


def test_every_token_of_a_context_lies_where_it_says(preprocessor):
    prepared = preprocessor(QUESTIONS, CONTEXTS)
    tokenizer = preprocessor.tokenizer
    for window, row in enumerate(prepared.rows.numpy()):
        start = int(prepared.context_starts[window])
        context = CONTEXTS[row].encode()
        places = zip(prepared.start_bytes[window].numpy(), prepared.end_bytes[window].numpy(), strict=True)
        for place, (first, last) in enumerate(places, start):
            token = tokenizer.id_to_token(int(prepared.inputs["token_ids"][window, place]))
            assert token.removeprefix("##") == context[first:last].decode().lower().replace("á", "a")
            assert prepared.may_end[window, place]
        number = len(prepared.start_bytes[window])
        assert tf.reduce_sum(tf.cast(prepared.may_end[window], tf.int32)) == number
    assert tf.reduce_sum(tf.cast(prepared.may_start, tf.int32)) == sum(map(len, tokenizer.tokenize(CONTEXTS)))


def test_answers_are_cut_from_the_context(preprocessor):
    prepared = preprocessor(QUESTIONS, CONTEXTS)
    ids = prepared.inputs["token_ids"].numpy()
    paris, year = (preprocessor.tokenizer.token_to_id(word) for word in ("paris", "year"))
    logits = np.where(ids == paris, 5.0, np.where(ids == year, 4.0, 0.0)).astype("float32")
    answers = find_answers(prepared, tf.constant(CONTEXTS), tf.constant(logits), tf.constant(logits), 4, 6)
    context = CONTEXTS[0].encode()
    assert answers.texts[0, 0].numpy().decode() == "Páris"
    assert answers.scores[0, 0] == 10
    for text, first, last, start, end in zip(
        *(values[0].numpy() for values in (answers.texts, *answers[2:6])), strict=True
    ):
        assert text == context[first:last] == CONTEXTS[0][start:end].encode()
    assert answers.texts[1].numpy().tolist() == [b""] * 4
    assert answers.end_bytes[1].numpy().tolist() == [0] * 4
    # One word, over and over: what is found are runs of it of different lengths.
    third = [text for text in answers.texts[2].numpy().tolist() if text]
    assert len(set(third)) == len(third)


def test_a_graph_answers_as_eager_mode_does(preprocessor):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2)
    def answer(questions, contexts):
        prepared = preprocessor(questions, contexts)
        logits = tf.cast(prepared.inputs["token_ids"] % 7, tf.float32)
        return find_answers(prepared, contexts, logits, -logits, 3)

    in_graph = answer(tf.constant(QUESTIONS), tf.constant(CONTEXTS))
    eager = answer.python_function(tf.constant(QUESTIONS), tf.constant(CONTEXTS))
    for ours, theirs in zip(in_graph, eager, strict=True):
        assert ours.numpy().tolist() == theirs.numpy().tolist()
    empty = answer(tf.constant([], tf.string), tf.constant([], tf.string))
    assert empty.texts.shape == [0, 3]
    assert empty.null_scores.shape == [0]


def test_questions_without_a_context_are_refused(preprocessor):
    with pytest.raises(tf.errors.InvalidArgumentError, match="one context for each question"):
        preprocessor(["a", "b"], ["a"])


def test_the_configuration_makes_it_again(preprocessor):
    again = BertQuestionPreprocessor.from_config(json.loads(json.dumps(preprocessor.get_config())))
    assert again.get_config() == preprocessor.get_config()


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"sequence_length": 7}, ValueError, "leaves no room"),
        ({"stride": 0}, ValueError, "stride must be at least 1"),
        ({"max_query_length": 4.0}, TypeError, "max_query_length must be an int"),
        ({"tokenizer": None}, TypeError, "must be a BertTokenizer"),
    ],
)
def test_bad_arguments_are_refused(toy, arguments, error, message):
    with pytest.raises(error, match=message):
        BertQuestionPreprocessor(**{"tokenizer": toy, "max_query_length": 4, **arguments})


def test_the_tokenizer_is_the_callers():
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where"], lower_case=True)
    assert BertQuestionPreprocessor(tokenizer).tokenizer is tokenizer


def test_white_space_in_an_answer_is_one_space(preprocessor):
    contexts = ["in\n\tthe year \u202f  1066"]
    prepared = preprocessor(["Where?"], contexts)
    length = prepared.inputs["token_ids"].shape[1]
    starts = np.eye(length, dtype="float32")[None, int(prepared.context_starts[0])]
    ends = np.eye(length, dtype="float32")[None, length - 2]  # before [SEP]
    answers = find_answers(prepared, tf.constant(contexts), tf.constant(starts), tf.constant(ends), 1)
    assert answers.texts.numpy().tolist() == [[b"in the year 1066"]]
    assert answers.end_characters.numpy().tolist() == [[len(contexts[0])]]
