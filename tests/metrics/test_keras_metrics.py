import functools
import json
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef

import keras_bert
from keras_bert.metrics.keras_metrics import (
    F1Score,
    MatthewsCorrelation,
    PearsonCorrelation,
    SpearmanCorrelation,
    TokenAccuracy,
)
from tests.forked import run as run_forked
from tests.tolerances import assert_close
from tests.toys import toy_classifier, toy_reviews

AVERAGES = ["macro", "micro", "weighted"]
assert_same_score = functools.partial(assert_close, num_terms=100, dtype="float64", magnitude=1)


def feed(metric, *columns, batch_size=10):
    """Returns the result of batches, of which the last may be shorter."""
    metric.reset_state()
    for start in range(0, len(columns[0]), batch_size):
        metric.update_state(*(column[start : start + batch_size] for column in columns))
    return float(metric.result())


def random_classes(number, num_classes, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(0, num_classes, number)
    logits = random.standard_normal([number, num_classes]).astype("float32")
    logits[np.arange(number), labels] += 1
    return labels, logits


def test_class_scores_equal_the_golden_ones(golden):
    for case in golden("classification"):
        number, labels = case["num_classes"], np.array(case["labels"])
        logits = 3 * np.eye(number, dtype="float32")[case["predictions"]] - 1
        scores = {"matthews": MatthewsCorrelation(number)}
        scores |= {f"f1_{average}": F1Score(number, average) for average in AVERAGES}
        scores |= {"f1": F1Score()} if number == 2 else {}
        for name, metric in scores.items():
            assert_same_score(feed(metric, labels, logits, batch_size=50), case[name])


def test_correlations_equal_the_golden_ones(golden):
    for case in golden("correlation"):
        x, y = np.array(case["x"]), np.array(case["y"])
        dtype = "float32" if case["name"].startswith("float32") else "float64"
        for metric, key in ((PearsonCorrelation(), "pearson"), (SpearmanCorrelation(), "spearman")):
            assert_same_score(feed(metric, x, y[:, None], batch_size=50), np.array(case[key], float), dtype=dtype)


@pytest.mark.parametrize("num_classes", [2, 5])
def test_class_scores_use_weights(num_classes):
    labels, logits = random_classes(100, num_classes)
    weights = np.random.default_rng(1).uniform(0, 3, 100)
    weights[::5] = 0
    predictions = logits.argmax(1)
    expected = matthews_corrcoef(labels, predictions, sample_weight=weights)
    assert_same_score(feed(MatthewsCorrelation(num_classes), labels, logits, weights), expected)
    for average in AVERAGES:
        expected = f1_score(labels, predictions, average=average, sample_weight=weights)
        assert_same_score(feed(F1Score(num_classes, average), labels, logits, weights[:, None]), expected)


def test_undefined_score_is_0_with_fractional_weights():
    labels, weights = np.array([0, 1, 2, 0, 1, 2]), np.array([0.1, 0.2, 0.3, 0.7, 1.1, 0.013])
    logits = np.tile(np.float32([1, 0, 0]), [6, 1])
    assert feed(MatthewsCorrelation(3), labels, logits, weights, batch_size=2) == 0.0
    assert feed(MatthewsCorrelation(3), np.zeros(6, int), np.eye(3)[labels], weights, batch_size=2) == 0.0


@pytest.mark.parametrize("average", AVERAGES)
def test_multi_label_f1_equals_scikit_learn(average):
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, [60, 4]).astype("float32")
    logits = random.standard_normal([60, 4]).astype("float32") + labels
    logits[0, 0] = 0.0  # a probability of one half is predicted, as in `predict_labels`
    for weights in (np.ones(60), random.uniform(0, 2, 60)):
        expected = f1_score(labels, logits >= 0, average=average, sample_weight=weights)
        assert_same_score(feed(F1Score(4, average, multi_label=True), labels, logits, weights), expected)


def test_unknown_label_gives_nan():
    logits = np.eye(2, dtype="float32")
    for label in (-1, 2):
        assert np.isnan(feed(MatthewsCorrelation(2), np.array([0, label]), logits))
        assert np.isnan(feed(F1Score(), np.array([0, label]), logits))


def test_pearson_uses_weights():
    random = np.random.default_rng(0)
    x = random.standard_normal(50)
    y = x + random.standard_normal(50)
    weights = random.uniform(0, 2, 50)
    weights[:10] = 0  # a whole batch without weight
    covariance = np.cov(x, y, aweights=weights)
    expected = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert_same_score(feed(PearsonCorrelation(), x, y, weights), expected)


def test_pearson_of_large_values_with_a_small_spread():
    offset = 1e7
    random = np.random.default_rng(0)
    x = (offset + 3 * random.standard_normal(5_000)).astype("float32")
    y = (0.5 * (x - np.float32(offset)) + random.standard_normal(5_000) - offset).astype("float32")
    expected = pearsonr(x.astype("float64"), y.astype("float64")).statistic
    assert_same_score(feed(PearsonCorrelation(), x, y, batch_size=33), expected, limit=1e-10)  # spread: 3e-7 of x


@pytest.mark.parametrize("metric", [PearsonCorrelation, SpearmanCorrelation])
def test_undefined_correlations_are_nan(metric):
    changing = np.arange(9.0)
    assert np.isnan(float(metric().result()))
    assert np.isnan(feed(metric(), [1.0], [2.0]))
    # 0.1 is not a binary fraction: the mean of nine values of 0.1 is not exactly 0.1.
    assert np.isnan(feed(metric(), changing, np.full(9, 0.1), batch_size=2))
    assert np.isnan(feed(metric(), np.full(9, 0.1, "float32"), changing, batch_size=2))
    assert np.isnan(feed(metric(), changing, np.where(changing == 4, np.nan, changing), batch_size=2))
    if metric is PearsonCorrelation:  # values without weight do not count
        assert np.isnan(feed(metric(), np.arange(4.0), np.array([0.1, 0.1, 0.1, 7.0]), np.array([1.0, 1.0, 1.0, 0.0])))


def test_spearman_rejects_weights_and_xla():
    metric = SpearmanCorrelation()
    with pytest.raises(ValueError, match=r"ranks have no weights.*not in weighted_metrics"):
        metric.update_state([1.0, 2.0], [1.0, 2.0], sample_weight=[1.0, 1.0])
    compiled = tf.function(lambda x: metric(x, x), jit_compile=True)
    with pytest.raises(ValueError, match="jit_compile=False"):
        compiled(tf.constant([1.0, 2.0]))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_other_metrics_run_in_a_graph(jit_compile):
    labels, logits = random_classes(40, 2)
    metrics = [MatthewsCorrelation(2), F1Score(), F1Score(2, "macro"), PearsonCorrelation()]

    @tf.function(jit_compile=jit_compile, reduce_retracing=True)
    def step(labels, logits):
        for metric in metrics[:3]:
            metric.update_state(labels, logits)
        metrics[3].update_state(tf.cast(labels, tf.float32), logits[:, 1])

    for start in (0, 16, 32):
        step(tf.constant(labels[start : start + 16]), tf.constant(logits[start : start + 16]))
    predictions = logits.argmax(1)
    expected = [matthews_corrcoef(labels, predictions), f1_score(labels, predictions)]
    expected.append(f1_score(labels, predictions, average="macro"))
    expected.append(pearsonr(labels, logits[:, 1].astype("float64")).statistic)
    assert_same_score([float(metric.result()) for metric in metrics], expected)


def test_scores_of_fit_are_those_of_all_predictions():
    held_out = toy_reviews(23, seed=1)
    classifier = toy_classifier()
    classifier.compile(keras_bert.BertAdamW(3e-3), metrics=["accuracy", MatthewsCorrelation(2), F1Score(2, "macro")])
    history = classifier.fit(*toy_reviews(45), batch_size=10, epochs=2, verbose=0, validation_data=held_out).history
    true = classifier.encode_labels(held_out[1])
    predictions = classifier.predict(held_out[0], verbose=0).argmax(1)
    macro = f1_score(true, predictions, average="macro")
    assert_same_score(history["val_matthews_correlation"][-1], matthews_corrcoef(true, predictions))
    assert_same_score(history["val_macro_f1"][-1], macro)
    assert_same_score(classifier.evaluate(*held_out, batch_size=10, verbose=0, return_dict=True)["macro_f1"], macro)
    assert len(set(history["matthews_correlation"])) > 1  # reset after every epoch


def test_correlations_of_evaluate_are_those_of_all_predictions(tmp_path):
    texts, _ = toy_reviews(45)
    values = np.array([len(text.split()) / 2 for text in texts])
    regression = toy_classifier(labels=None, problem_type="regression")
    regression.compile(keras_bert.BertAdamW(3e-3), metrics=[PearsonCorrelation(), SpearmanCorrelation()])
    regression.fit(texts, values, batch_size=10, verbose=0)
    evaluation = regression.evaluate(texts, values, batch_size=10, verbose=0, return_dict=True)
    predicted = regression.predict(texts, verbose=0)[:, 0].astype("float64")
    assert_close(evaluation["pearson_correlation"], pearsonr(values, predicted).statistic, num_terms=64, magnitude=1)
    # Rounding may swap the ranks of nearly equal predictions.
    assert evaluation["spearman_correlation"] == pytest.approx(spearmanr(values, predicted).statistic, abs=0.02)

    regression.save(tmp_path / "regression.keras")
    loaded = keras.saving.load_model(tmp_path / "regression.keras")
    again = loaded.evaluate(texts, values, batch_size=10, verbose=0, return_dict=True)
    assert_close(again, evaluation, num_terms=64)


def test_weighted_metrics_get_the_weights():
    texts, labels = toy_reviews(20)
    weights = np.random.default_rng(0).uniform(0, 2, 20)
    classifier = toy_classifier()
    classifier.compile(keras_bert.BertAdamW(1e-3), metrics=[], weighted_metrics=[F1Score()])
    found = classifier.evaluate(texts, labels, batch_size=8, sample_weight=weights, verbose=0, return_dict=True)
    predictions = classifier.predict(texts, verbose=0).argmax(1)
    expected = f1_score(classifier.encode_labels(labels), predictions, sample_weight=weights)
    assert_close(found["f1"], expected, num_terms=20)  # Keras converts the weights to float32


def test_config_round_trip():
    assert [F1Score().name, F1Score(2, "macro").name] == ["f1", "macro_f1"]
    metrics = [MatthewsCorrelation(3, name="mine"), F1Score(4, "micro", multi_label=True), PearsonCorrelation()]
    for metric in (*metrics, SpearmanCorrelation(name="rank")):
        copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
        assert type(copy) is type(metric)
        assert copy.get_config() == metric.get_config()


@pytest.mark.parametrize(
    ("metric", "labels", "outputs", "message"),
    [
        (MatthewsCorrelation(2), [0, 1], np.ones([2, 3]), r"logits \[batch, 2\]; got the shapes \(2,\) and \(2, 3\)"),
        (F1Score(), [[0, 1]], [[1.0, 0.0]], "multi_label=True"),
        (F1Score(2, "macro", multi_label=True), [0, 1], [[1.0, 0.0]] * 2, r"zeros and ones \[batch, 2\]"),
        (PearsonCorrelation(), [[0.0, 1.0]], [[1.0, 0.0]], "regression with one output"),
        (SpearmanCorrelation(), [[0.0]], [[1.0, 0.0]], "regression with one output"),
        (TokenAccuracy(), [0, 1], np.zeros([2, 3]), r"got the shapes \(2,\) and \(2, 3\)"),
    ],
)
def test_rejects_invalid_shapes(metric, labels, outputs, message):
    with pytest.raises(ValueError, match=message):
        metric.update_state(np.array(labels), np.array(outputs))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: F1Score(3), 'average="binary" is the F1 of class 1 of two'),
        (lambda: F1Score(2, "samples"), "unknown average 'samples'; allowed are"),
        (lambda: MatthewsCorrelation(1), "num_classes must be an int of at least 2; got 1"),
    ],
)
def test_rejects_invalid_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
def test_scores_on_two_replicas_equal_those_on_one_device():
    program = [sys.executable, "-m", "tests.metrics.replicated_program"]
    run = run_forked(program, cwd=Path(__file__).parents[2])
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    for one, two, tolerance in zip(found["one"], found["two"], (1e-5, 1e-12), strict=True):
        assert two == pytest.approx(one, abs=tolerance)
        assert {"f1", "spearman_correlation"} <= set(one)


def test_token_accuracy_ignores_tokens_without_a_label():
    random = np.random.default_rng(0)
    labels, logits = random.integers(-1, 3, [20, 6]), random.standard_normal([20, 6, 3]).astype("float32")
    weights = random.integers(0, 3, 20)
    is_right, has_label = logits.argmax(axis=-1) == labels, labels >= 0
    assert_same_score(feed(TokenAccuracy(), labels, logits), is_right[has_label].mean())
    counted = np.repeat(weights, 6).reshape(20, 6) * has_label
    assert_same_score(feed(TokenAccuracy(), labels, logits, weights), (is_right * counted).sum() / counted.sum())
    assert feed(TokenAccuracy(), np.full([2, 3], -1), np.zeros([2, 3, 4])) == 0
