import json

import pytest
import tensorflow as tf

from keras_bert.text.question_preprocessor import BertQuestionPreprocessor

CONTEXTS = ["In Páris, in the year 1066.", "", "the  the the the the the the the the the the"]
QUESTIONS = ["Where?", "What?", "The the the the the"]


@pytest.fixture(scope="module")
def preprocessor(tokenizers):
    return BertQuestionPreprocessor(tokenizers["uncased"], sequence_length=12, stride=3, max_query_length=4)


def test_offsets_locate_every_context_token(preprocessor):
    prepared = preprocessor(QUESTIONS, CONTEXTS)
    tokenizer = preprocessor.tokenizer
    for window, row in enumerate(prepared.rows.numpy()):
        offsets = zip(prepared.start_bytes[window].numpy(), prepared.end_bytes[window].numpy(), strict=True)
        for position, (first, last) in enumerate(offsets, int(prepared.context_starts[window])):
            token = tokenizer.id_to_token(int(prepared.inputs["token_ids"][window, position]))
            written = CONTEXTS[row].encode()[first:last].decode()
            assert token.removeprefix("##") == written.lower().replace("á", "a")
            assert prepared.may_end[window, position]
        assert tf.math.count_nonzero(prepared.may_end[window]) == len(prepared.start_bytes[window])
    assert tf.math.count_nonzero(prepared.may_start) == sum(map(len, tokenizer.tokenize(CONTEXTS)))


def test_unequal_numbers_are_refused(preprocessor):
    with pytest.raises(tf.errors.InvalidArgumentError, match="one context for each question"):
        preprocessor(["a", "b"], ["a"])


def test_config_survives_json(preprocessor):
    copy = BertQuestionPreprocessor.from_config(json.loads(json.dumps(preprocessor.get_config())))
    assert copy.get_config() == preprocessor.get_config()


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"sequence_length": 7}, ValueError, "leaves no room"),
        ({"stride": 0}, ValueError, "stride must be at least 1"),
        ({"max_query_length": 4.0}, TypeError, "max_query_length must be an int"),
        ({"tokenizer": None}, TypeError, "must be a BertTokenizer"),
    ],
)
def test_invalid_arguments_are_refused(toy, arguments, error, message):
    with pytest.raises(error, match=message):
        BertQuestionPreprocessor(**{"tokenizer": toy, "max_query_length": 4, **arguments})
