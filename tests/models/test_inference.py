"""The loop of `predict`."""

import json
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models import inference
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.inference import Predictor
from keras_bert.models.span_labeler import BertSpanLabeler
from keras_bert.models.token_classifier import BertTokenClassifier
from keras_bert.text.question_preprocessor import BertQuestionPreprocessor
from keras_bert.text.word_preprocessor import BertWordPreprocessor
from tests.tolerances import assert_close, tolerance
from tests.toys import toy_classifier, toy_encoder, toy_preprocessor, toy_reviews


def batches_of(*values):
    return tf.data.Dataset.from_tensor_slices({"token_ids": tf.constant(values)}).batch(1)


def test_the_order_is_kept_when_a_later_batch_is_ready_first():
    finished = []

    def slow_first(value):
        time.sleep(0.2 if value == 1 else 0.0)
        finished.append(int(value))
        return value

    def model(batch, training):
        return tf.py_function(slow_first, [batch["token_ids"][0]], tf.int32)[None]

    outputs = Predictor().outputs_by_batch(model, batches_of(1, 2, 3, 4, 5))
    assert np.concatenate(outputs).tolist() == [1, 2, 3, 4, 5]
    assert finished[0] == 2


def test_one_function_serves_all_lengths():
    traced = []

    def model(batch, training):
        traced.append(training)
        return tf.reduce_sum(batch["token_ids"], axis=1)

    lengths = np.arange(1, 9)
    rows = tf.data.Dataset.from_tensor_slices(tf.ragged.range(lengths))
    dataset = rows.map(lambda row: {"token_ids": row}).padded_batch(1)
    predictor = Predictor()
    for _ in range(2):
        outputs = np.concatenate(predictor.outputs_by_batch(model, dataset))
        np.testing.assert_array_equal(outputs, lengths * (lengths - 1) // 2)
    assert traced == [False]


def test_on_a_tpu_batches_have_one_shape(monkeypatch):
    texts, _ = toy_reviews(11)
    model = toy_classifier()
    expected = model.predict(texts, batch_size=4, verbose=0)
    specs, outputs_by_batch = [], Predictor.outputs_by_batch

    def recorded(self, model, batches, verbose=0):
        specs.append(batches.element_spec["token_ids"].shape.as_list())
        return outputs_by_batch(self, model, batches, verbose)

    monkeypatch.setattr("keras_bert.training.strategy.needs_static_shapes", lambda strategy: True)
    monkeypatch.setattr(Predictor, "outputs_by_batch", recorded)
    assert_close(model.predict(texts, batch_size=4, verbose=0), expected, num_terms=64)
    assert specs[0][0] == 4
    assert specs[0][1] % 8 == 0


def test_an_error_in_a_batch_is_raised():
    def model(batch, training):
        return tf.debugging.check_numerics(1.0 / tf.cast(batch["token_ids"], tf.float32), "division")

    with pytest.raises(tf.errors.InvalidArgumentError, match="division"):
        Predictor().outputs_by_batch(model, batches_of(1, 0, 2))


@pytest.mark.parametrize("method", ["tag", "answer"])
def test_texts_are_tagged_and_answered_in_slices(method, monkeypatch, caplog):
    encoder, tokenizer = toy_encoder(num_hidden_layers=1, with_pooler=False), toy_preprocessor().tokenizer
    texts = ["a film", "good " * 40, "the plot", "", "bad film"]
    if method == "tag":
        model = BertTokenClassifier(encoder, ["O", "B-good"], BertWordPreprocessor(tokenizer, 16, 7, 2), seed=1)
        arguments = (texts,)
    else:
        model = BertSpanLabeler(encoder, BertQuestionPreprocessor(tokenizer, 16, 6, 4, 2), seed=1)
        arguments = (["good"] * 5, texts)
    rows, call = [], BertEncoder.call

    def counted(self, inputs, *rest, **options):
        rows.append(len(inputs["token_ids"]))
        return call(self, inputs, *rest, **options)

    expected = getattr(model, method)(*arguments)
    monkeypatch.setattr(BertEncoder, "call", counted)
    monkeypatch.setattr(inference, "DEFAULT_BATCH_SIZE", 2)
    found = getattr(model, method)(*arguments)
    assert rows == [3, 2, 1]  # one row per window; the long text has two
    assert caplog.text.count("1 of 5 texts have more than max_windows=2 windows") == 2
    # Scores depend a little on the shape of the batch.
    close = json.loads(json.dumps(expected), parse_float=lambda x: pytest.approx(float(x), abs=tolerance(num_terms=64)))
    assert found == close
    assert getattr(model, method)(*([] for _ in arguments)) == []
