import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.answer_spans import find_answer_spans, find_answers
from tests.reference import answer_spans as reference
from tests.text.conftest import CONTEXTS, QUESTIONS


@pytest.mark.parametrize("n_best, max_answer_length", [(1, 30), (5, 3), (200, 10)])
@pytest.mark.parametrize("step", [None, 0.5])
def test_spans_equal_the_reference(n_best, max_answer_length, step):
    generator = np.random.default_rng(0)
    rows = [0, 0, 0, 1, 2, 2, 4]
    logits = generator.normal(size=(2, len(rows), 50)).astype("float32")
    if step:
        logits = np.round(logits / step).astype("float32") * np.float32(step)  # many ties
    may_start, may_end = generator.random((2, len(rows), 50)) < 0.7
    found = find_answer_spans(*map(tf.constant, (*logits, may_start, may_end)), rows, n_best, max_answer_length)

    expected = []
    for row in sorted(set(rows)):
        numbers = [i for i, other in enumerate(rows) if other == row]
        windows = [[values[i].tolist() for values in (*logits, may_start, may_end)] for i in numbers]
        spans = reference.find_answer_spans(windows, n_best, max_answer_length)
        expected += [(row, numbers[window], *span) for window, *span in spans]
    assert list(zip(*(values.numpy().tolist() for values in found), strict=True)) == expected


@pytest.mark.parametrize("num_windows", [0, 2])
def test_finds_nothing_if_no_span_is_allowed(num_windows):
    logits, mask = tf.zeros([num_windows, 7]), tf.zeros([num_windows, 7], bool)
    assert find_answer_spans(logits, logits, mask, mask, tf.range(num_windows)).starts.shape == [0]


def test_answers_are_cut_from_the_context(question_preprocessor):
    prepared = question_preprocessor(QUESTIONS, CONTEXTS)
    ids = prepared.inputs["token_ids"].numpy()
    paris, year = (question_preprocessor.tokenizer.token_to_id(word) for word in ("paris", "year"))
    logits = np.where(ids == paris, 5.0, np.where(ids == year, 4.0, 0.0)).astype("float32")
    answers = find_answers(prepared, tf.constant(CONTEXTS), tf.constant(logits), tf.constant(logits), 4, 6)
    assert answers.texts[0, 0].numpy().decode() == "Páris"
    assert answers.scores[0, 0] == 10
    offsets = (values[0].numpy() for values in (answers.texts, *answers[2:6]))
    for text, start_byte, end_byte, start, end in zip(*offsets, strict=True):
        assert text == CONTEXTS[0].encode()[start_byte:end_byte] == CONTEXTS[0][start:end].encode()
    assert answers.texts[1].numpy().tolist() == [b""] * 4
    assert answers.end_bytes[1].numpy().tolist() == [0] * 4
    repeated = [text for text in answers.texts[2].numpy().tolist() if text]
    assert len(set(repeated)) == len(repeated)


def test_white_space_in_an_answer_becomes_one_space(question_preprocessor):
    contexts = ["in\n\tthe year \u202f  1066"]
    prepared = question_preprocessor(["Where?"], contexts)
    length = prepared.inputs["token_ids"].shape[1]
    starts = np.eye(length, dtype="float32")[None, int(prepared.context_starts[0])]
    ends = np.eye(length, dtype="float32")[None, length - 2]  # before [SEP]
    answers = find_answers(prepared, tf.constant(contexts), tf.constant(starts), tf.constant(ends), 1)
    assert answers.texts.numpy().tolist() == [[b"in the year 1066"]]
    assert answers.end_characters.numpy().tolist() == [[len(contexts[0])]]
