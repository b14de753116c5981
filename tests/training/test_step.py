import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.batching import BatchPlan, training_batches
from keras_bert.data.tokenized_examples import tokenize_examples
from keras_bert.training.batch_slices import slice_batch
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.step import TrainStep
from tests.tolerances import assert_close
from tests.toys import toy_classifier, toy_reviews
from tests.training.two_terms import TwoTerms

TEXTS, LABELS = toy_reviews(37)
NUM_TERMS = 8 * 16  # tokens of a batch, which a gradient is summed over
NO_DROPOUT = {
    "dropout": 0.0,
    "encoder_arguments": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}


def batches_for(classifier, batch_size=8, **arguments):
    examples = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    tokenized = tokenize_examples(examples, classifier.preprocessor, classifier.encode_labels)
    return training_batches(tokenized, BatchPlan(tokenized.lengths, batch_size, seed=1), **arguments)


def train(steps, calls=1, gradient_accumulation_steps=1, batch_size=8, **arguments):
    """Weights after some updates, and the report of the last call."""
    classifier = toy_classifier(**{**NO_DROPOUT, **arguments})
    step = TrainStep(classifier, BertAdamW(1e-3), gradient_accumulation_steps=gradient_accumulation_steps)
    iterator = iter(batches_for(classifier, batch_size))
    for call in range(calls):
        report = step.run(iterator, call * steps // calls, steps // calls)
    report |= report.pop("loss_terms")
    del report["last_loss_terms"]
    return [weight.numpy() for weight in classifier.weights], {name: float(value) for name, value in report.items()}


def difference(one, other):
    return max(np.abs(a - b).max() for a, b in zip(one, other, strict=True))


def test_updates_are_those_of_keras_fit():
    weights, _ = train(5)
    classifier = toy_classifier(**NO_DROPOUT)
    classifier.compile(BertAdamW(1e-3))
    batches = batches_for(classifier).take(5)
    classifier.fit(batches, verbose=0)
    assert_close(weights, [weight.numpy() for weight in classifier.weights], num_terms=NUM_TERMS, magnitude=1)


@pytest.mark.parametrize("gradient_accumulation_steps", [2, 3, 20])
def test_micro_batches_do_not_change_the_result(gradient_accumulation_steps):
    # With 20 of them for 8 examples some are empty; the fifth batch of an epoch has 5 examples.
    whole, report = train(5)
    parts, parts_report = train(5, gradient_accumulation_steps=gradient_accumulation_steps)
    assert_close(parts, whole, num_terms=NUM_TERMS, magnitude=1)
    assert parts_report == pytest.approx(report, abs=1e-4)


def test_micro_batches_with_class_weights():
    weights = {"class_weights": {"negative": 1.0, "positive": 7.0}}
    whole = train(5, **weights)[0]
    assert_close(train(5, gradient_accumulation_steps=3, **weights)[0], whole, num_terms=NUM_TERMS, magnitude=1)
    assert difference(whole, train(5)[0]) > 1e-4


def test_the_number_of_calls_does_not_change_the_result():
    assert difference(train(8, calls=1)[0], train(8, calls=4)[0]) < 1e-7


def test_report():
    _, report = train(5)  # an epoch: 37 examples in batches of 8
    lengths = toy_classifier().preprocessor.token_counts(TEXTS).numpy()
    assert report["examples"] == 37
    assert report["tokens"] == lengths.sum()
    assert report["padded_tokens"] > report["tokens"]
    assert report["loss"] / 5 == pytest.approx(0.8, abs=0.3)
    assert report["gradient_norm"] > 0


@pytest.mark.parametrize("gradient_accumulation_steps", [1, 3])
def test_losses_are_divided_by_the_mean_weight_where_one_is_given(gradient_accumulation_steps):
    generator = np.random.default_rng(0)
    inputs, labels = generator.normal(size=(6, 3)).astype("float32"), generator.normal(size=(6, 2)).astype("float32")
    batches = tf.data.Dataset.from_tensors((inputs, labels)).repeat()
    own = {name: float(weight) for name, weight in TwoTerms().loss_weights(labels).items()}
    reports = []
    for weights in (None, {name: 4 * weight for name, weight in own.items()}):
        step = TrainStep(
            TwoTerms(),
            BertAdamW(1e-2),
            gradient_accumulation_steps=gradient_accumulation_steps,
            mean_loss_weights=weights,
        )
        reports.append(step.run(iter(batches), 0, 1))
    of_the_batch, of_the_mean = reports
    assert float(of_the_mean["gradient_norm"]) == pytest.approx(float(of_the_batch["gradient_norm"]) / 4, rel=1e-5)
    for name, loss in of_the_batch["loss_terms"].items():
        assert float(of_the_mean["loss_terms"][name]) == pytest.approx(float(loss) / 4, rel=1e-5)
    with pytest.raises(ValueError, match="mean_loss_weights must be positive"):
        TrainStep(TwoTerms(), BertAdamW(1e-2), mean_loss_weights={"first": 1.0, "second": 0.0})


@pytest.mark.parametrize("gradient_accumulation_steps", [2, 3])
def test_two_loss_terms_with_unevenly_spread_weights(gradient_accumulation_steps):
    generator = np.random.default_rng(0)
    inputs, labels = generator.normal(size=(7, 3)).astype("float32"), generator.normal(size=(7, 2)).astype("float32")
    batches = tf.data.Dataset.from_tensors((inputs, labels)).repeat()
    results = []
    for parts in (1, gradient_accumulation_steps):
        model = TwoTerms()
        step = TrainStep(model, BertAdamW(1e-2), gradient_accumulation_steps=parts)
        report = step.run(iter(batches), 0, 3)
        assert set(report["loss_terms"]) == {"first", "second"}
        results.append([weight.numpy() for weight in model.weights])
    assert difference(*results) < 1e-6


def test_labels_may_be_a_dict():
    class Named(TwoTerms):
        def loss_terms(self, labels, outputs, sample_weight=None):
            errors = (outputs - labels["both"]) ** 2
            return {"first": (tf.reduce_sum(errors), self.loss_weights(labels)["first"])}

        def loss_weights(self, labels, sample_weight=None):
            return {"first": tf.reduce_sum(labels["weight"])}

    labels = {"both": tf.ones([5, 2]), "weight": tf.ones([5])}
    batches = tf.data.Dataset.from_tensors((tf.ones([5, 3]), labels)).repeat()
    report = TrainStep(Named(), BertAdamW(0.1), gradient_accumulation_steps=2).run(iter(batches), 0, 2)
    assert int(report["examples"]) == 10


def test_a_variable_without_gradient_is_left_alone():
    class WithUnused(TwoTerms):
        def __init__(self):
            super().__init__()
            self.unused = keras.layers.Dense(2, kernel_initializer="ones")
            self.unused.build((None, 3))

    batches = tf.data.Dataset.from_tensors((tf.ones([4, 3]), tf.ones([4, 2]))).repeat()
    for parts in (1, 2):
        model = WithUnused()
        step = TrainStep(model, BertAdamW(0.1, weight_decay=0.5), gradient_accumulation_steps=parts)
        step.run(iter(batches), 0, 2)
        assert (model.unused.kernel.numpy() == 1).all()


def test_frozen_layers_stay():
    before = [weight.numpy() for weight in toy_classifier(freeze="encoder", **NO_DROPOUT).weights]
    after, _ = train(3, freeze="encoder")
    changed = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert sum(changed) == 2  # kernel and bias of the new layer


@pytest.mark.parametrize(("gradient_accumulation_steps", "jit_compile"), [(1, False), (2, False), (2, True)])
def test_batches_of_a_static_shape_give_the_same_weights(gradient_accumulation_steps, jit_compile):
    expected, expected_report = train(7, **NO_DROPOUT)  # the fifth batch has 5 examples
    classifier = toy_classifier(**NO_DROPOUT)
    step = TrainStep(classifier, BertAdamW(1e-3), gradient_accumulation_steps=gradient_accumulation_steps)
    iterator = iter(batches_for(classifier, static_rows_multiple=4))
    if jit_compile:  # all of an update, the optimizer included, as on a TPU
        update = tf.function(step._update_replica, jit_compile=True)
        reports = [update(next(iterator), tf.constant(number, tf.int64), tf.ones([])) for number in range(7)]
        loss = sum(float(report["loss_terms"]["loss"]) for report in reports)
        examples = sum(int(report["examples"]) for report in reports)
        assert update.experimental_get_tracing_count() == 1
    else:
        report = step.run(iterator, 0, 7)
        loss, examples = float(report["loss_terms"]["loss"]), int(report["examples"])
    assert examples == expected_report["examples"]
    assert loss == pytest.approx(expected_report["loss"], rel=1e-5)
    assert difference(expected, [weight.numpy() for weight in classifier.weights]) < 1e-5


def test_xla_compiles_dropout_for_a_replica_that_is_known_only_when_it_runs():
    classifier = toy_classifier()
    step = TrainStep(classifier, BertAdamW(1e-3), gradient_accumulation_steps=2)
    batch = next(iter(batches_for(classifier, static_rows_multiple=4)))

    @tf.function(jit_compile=True)
    def loss_on(replica, number):
        part = slice_batch(batch, replica, 2)
        weights = classifier.loss_weights(*part[1:])
        gradients, sums, _ = step._gradients(part, weights, number, replica, tf.ones([]))
        return sums["loss"], tf.linalg.global_norm(gradients)

    def losses(number):
        return [float(loss_on(tf.constant(replica), tf.constant(number))[0]) for replica in range(2)]

    assert losses(0) == losses(0)
    assert not set(losses(0)) & set(losses(1))
    assert loss_on.experimental_get_tracing_count() == 1


def test_windows_refuse_micro_batches():
    classifier = toy_classifier()
    preprocessor = classifier.preprocessor
    classifier.preprocessor = type(preprocessor)(preprocessor.tokenizer, 6, long_texts="windows")
    step = TrainStep(classifier, BertAdamW(1e-3), gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="batch of windows cannot be split"):
        step.run(iter(batches_for(classifier)), 0, 1)


def test_refusals():
    with pytest.raises(
        TypeError, match="Sequential cannot be trained: it has no method loss_terms and no loss_weights"
    ):
        TrainStep(keras.Sequential([keras.layers.Dense(1)]), BertAdamW())
    with pytest.raises(ValueError, match="gradient_accumulation_steps must be at least 1, got 0"):
        TrainStep(toy_classifier(), BertAdamW(), gradient_accumulation_steps=0)
    with pytest.raises(ValueError, match="no trainable variables"):
        TrainStep(toy_classifier(trainable=False), BertAdamW())
