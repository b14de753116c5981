import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.batching import BatchPlan, training_batches
from keras_bert.data.tokenized_examples import tokenize_examples
from keras_bert.training.batch_slices import slice_batch
from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.replica_gradients import ReplicaGradients
from keras_bert.training.step import TrainStep
from tests.tolerances import assert_close
from tests.toys import toy_classifier, toy_reviews
from tests.training.models import TwoTerms

TEXTS, LABELS = toy_reviews(37)
NUM_TERMS = 8 * 16  # tokens of a batch, which a gradient is summed over
NO_DROPOUT = {"dropout": 0.0, "encoder_arguments": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}}


def batches_for(classifier, **arguments):
    examples = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    tokenized = tokenize_examples(examples, classifier.preprocessor, classifier.encode_labels)
    return training_batches(tokenized, BatchPlan(tokenized.lengths, 8, seed=1), **arguments)


def train(steps, calls=1, gradient_accumulation_steps=1, **arguments):
    """Returns the weights after some updates, and the report of the last call."""
    classifier = toy_classifier(**{**NO_DROPOUT, **arguments})
    step = TrainStep(classifier, BertAdamW(1e-3), gradient_accumulation_steps=gradient_accumulation_steps)
    iterator = iter(batches_for(classifier))
    for call in range(calls):
        report = step.run(iterator, call * steps // calls, steps // calls)
    report |= report.pop("loss_terms")
    del report["last_loss_terms"]
    return classifier.get_weights(), {name: float(value) for name, value in report.items()}


def two_terms_rows(count):
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, 3)).astype("float32"), rng.normal(size=(count, 2)).astype("float32")


def repeat(*batch):
    return iter(tf.data.Dataset.from_tensors(batch).repeat())


def test_updates_equal_those_of_keras_fit():
    weights, report = train(5)  # an epoch: 37 examples in batches of 8
    classifier = toy_classifier(**NO_DROPOUT)
    classifier.compile(BertAdamW(1e-3))
    classifier.fit(batches_for(classifier).take(5), verbose=0)
    assert_close(weights, classifier.get_weights(), num_terms=NUM_TERMS, magnitude=1)
    assert report["examples"] == 37
    assert report["tokens"] == classifier.preprocessor.token_counts(TEXTS).numpy().sum()
    assert report["padded_tokens"] > report["tokens"]
    assert 0.5 < report["loss"] / 5 < 1.1
    assert report["gradient_norm"] > 0


@pytest.mark.parametrize(
    ("parts", "class_weights"), [(2, None), (3, None), (20, None), (3, {"negative": 1.0, "positive": 7.0})]
)
def test_micro_batches_do_not_change_the_result(parts, class_weights):
    # With 20 of them for 8 examples some are empty; the fifth batch of an epoch has 5 examples.
    whole, report = train(5, class_weights=class_weights)
    weights, parts_report = train(5, gradient_accumulation_steps=parts, class_weights=class_weights)
    assert_close(weights, whole, num_terms=NUM_TERMS, magnitude=1)
    assert_close(parts_report, report, num_terms=5 * NUM_TERMS)
    assert class_weights is None or np.abs(whole[-2] - train(5)[0][-2]).max() > 1e-4


def test_the_number_of_calls_does_not_change_the_result():
    assert_close(train(8, calls=1)[0], train(8, calls=4)[0])


@pytest.mark.parametrize("parts", [1, 3])
def test_losses_are_divided_by_the_mean_weight_if_one_is_set(parts):
    batch = two_terms_rows(6)
    weights = {name: 4 * float(weight) for name, weight in TwoTerms().loss_weights(batch[1]).items()}
    own, mean = (
        TrainStep(TwoTerms(), BertAdamW(1e-2), None, parts, mean_loss_weights=each).run(repeat(*batch), 0, 1)
        for each in (None, weights)
    )
    assert_close(mean["gradient_norm"], own["gradient_norm"] / 4, num_terms=6 * 3)
    assert_close(mean["loss_terms"], {name: loss / 4 for name, loss in own["loss_terms"].items()}, num_terms=6 * 3)


@pytest.mark.parametrize("gradient_accumulation_steps", [2, 3])
def test_micro_batches_do_not_change_two_unevenly_weighted_loss_terms(gradient_accumulation_steps):
    results = []
    for parts in (1, gradient_accumulation_steps):
        model = TwoTerms()
        step = TrainStep(model, BertAdamW(1e-2), gradient_accumulation_steps=parts)
        report = step.run(repeat(*two_terms_rows(7)), 0, 3)
        assert set(report["loss_terms"]) == {"first", "second"}
        results.append(model.get_weights())
    assert_close(*results, num_terms=7)


@pytest.mark.parametrize("loss_spans_batch", [False, True])
def test_only_one_micro_batch_is_in_memory_at_a_time(loss_spans_batch):
    model, zero = TwoTerms(), tf.constant(0)
    model.loss_spans_batch = loss_spans_batch
    gradients = ReplicaGradients(model, gradient_accumulation_steps=3)
    divisors = {name: tf.constant(1.0) for name in ("first", "second")}
    function = tf.function(lambda: gradients(two_terms_rows(6), divisors, zero, zero, tf.constant(1.0))[0])
    loops = [node for node in function.get_concrete_function().graph.as_graph_def().node if "While" in node.op]
    assert [node.attr["parallel_iterations"].i for node in loops] == [1] * (2 if loss_spans_batch else 1)


def test_a_variable_without_gradient_is_not_changed():
    for parts in (1, 2):
        model = TwoTerms()
        model.unused = keras.layers.Dense(2, kernel_initializer="ones")
        model.unused.build((None, 3))
        step = TrainStep(model, BertAdamW(0.1, weight_decay=0.5), gradient_accumulation_steps=parts)
        step.run(repeat(tf.ones([4, 3]), tf.ones([4, 2])), 0, 2)
        assert (model.unused.kernel.numpy() == 1).all()


def test_frozen_layers_are_not_changed():
    before, (after, _) = toy_classifier(freeze="encoder", **NO_DROPOUT).get_weights(), train(3, freeze="encoder")
    changed = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert sum(changed) == 2  # kernel and bias of the new layer


@pytest.mark.parametrize(
    ("gradient_accumulation_steps", "jit_compile"),
    [(1, False), (2, False), pytest.param(2, True, marks=pytest.mark.slow)],
)
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
    assert_close(loss, expected_report["loss"], num_terms=7 * NUM_TERMS)
    assert_close(classifier.get_weights(), expected, num_terms=NUM_TERMS, magnitude=1)


@pytest.mark.slow
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

    first, again, other = (
        [float(loss_on(tf.constant(replica), tf.constant(number))[0]) for replica in range(2)] for number in (0, 0, 1)
    )
    assert first == again
    assert not set(first) & set(other)
    assert loss_on.experimental_get_tracing_count() == 1


def test_windows_cannot_be_split_into_micro_batches():
    classifier = toy_classifier()
    preprocessor = classifier.preprocessor
    classifier.preprocessor = type(preprocessor)(preprocessor.tokenizer, 6, long_texts="windows")
    step = TrainStep(classifier, BertAdamW(1e-3), gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="batch of windows cannot be split"):
        step.run(iter(batches_for(classifier)), 0, 1)


SEQUENTIAL = "Sequential cannot be trained: it has no method loss_terms and no loss_weights"


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (lambda: keras.Sequential([keras.layers.Dense(1)]), {}, SEQUENTIAL),
        (TwoTerms, {"gradient_accumulation_steps": 0}, "gradient_accumulation_steps must be at least 1, got 0"),
        (TwoTerms, {"mean_loss_weights": {"first": 1.0, "second": 0.0}}, "mean_loss_weights must be positive"),
        (lambda: toy_classifier(trainable=False), {}, "no trainable variables"),
    ],
)
def test_rejects_invalid_arguments(make, arguments, message):
    with pytest.raises(TypeError if message == SEQUENTIAL else ValueError, match=message):
        TrainStep(make(), BertAdamW(), **arguments)
