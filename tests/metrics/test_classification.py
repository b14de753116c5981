import json

import numpy as np
import pytest

from keras_bert.metrics.classification import (
    accuracy,
    classification_report,
    f1,
    macro_f1,
    matthews_correlation,
    multi_label_report,
)

TOLERANCE = 1e-9


def test_scores_equal_the_golden_ones(golden):
    for case in golden("classification"):
        labels, predictions, number = case["labels"], case["predictions"], case["num_classes"]
        assert accuracy(labels, predictions) == pytest.approx(case["accuracy"], abs=TOLERANCE)
        assert matthews_correlation(labels, predictions) == pytest.approx(case["matthews"], abs=TOLERANCE)
        assert macro_f1(labels, predictions, number) == pytest.approx(case["f1_macro"], abs=TOLERANCE), case["name"]
        report = classification_report(np.array(labels), predictions, [f"class {index}" for index in range(number)])
        assert json.loads(json.dumps(report, allow_nan=False)) == report
        assert report["confusion_matrix"] == case["confusion"]
        assert report["examples"] == len(labels)
        for average in ("macro", "micro", "weighted"):
            assert report[average]["f1"] == pytest.approx(case[f"f1_{average}"], abs=TOLERANCE)
        supports = [scores["support"] for scores in report["per_class"].values()]
        assert supports == np.sum(case["confusion"], axis=1).tolist()
        if number == 2:
            assert f1(labels, predictions) == pytest.approx(case["f1"], abs=TOLERANCE)
            positive = report["per_class"]["class 1"]
            expected = {name: case[name] for name in ("precision", "recall", "f1")}
            assert {name: positive[name] for name in expected} == pytest.approx(expected, abs=TOLERANCE)


def test_multi_label_report_follows_the_definitions():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, [50, 4])
    predictions = np.where(random.random([50, 4]) < 0.8, labels, 1 - labels)
    labels[:, 3] = predictions[:, 3] = 0
    report = multi_label_report(labels, predictions, ["a", "b", "c", "never"])
    both, either = (labels * predictions).sum(axis=0), (labels + predictions).sum(axis=0)
    label_scores = 2 * both / np.maximum(either, 1)
    assert [row["f1"] for row in report["per_label"].values()] == pytest.approx(label_scores.tolist())
    assert report["macro"]["f1"] == pytest.approx(label_scores.mean())
    assert report["micro"]["f1"] == pytest.approx(2 * both.sum() / either.sum())
    assert report["subset_accuracy"] == np.mean(list(map(np.array_equal, labels, predictions)))
    for index, row in enumerate(report["per_label"].values()):
        pairs = list(zip(labels[:, index].tolist(), predictions[:, index].tolist(), strict=True))
        assert row["counts"] == [[pairs.count((true, predicted)) for predicted in (0, 1)] for true in (0, 1)]
        assert row["support"] == labels[:, index].sum()
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_multi_label_report_of_one_label():
    report = multi_label_report([[1], [0], [1]], [[1], [1], [0]], ["spam"])
    assert report["per_label"]["spam"]["counts"] == [[0, 1], [1, 1]]
    assert report["micro"] == report["macro"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5}


CLASSES = "predictions must be from 0 to 1; got values from 0 to 2"
NAMES = "label_names must be distinct strings"
INDICATORS = r"predictions must be zeros and ones \[examples, 2\]"


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (accuracy, ([0, 1], [0.2, 0.8]), r"the type float64\. Of logits .* logits\.argmax"),
        (accuracy, ([0, 1], [[1, 0], [0, 1]]), r"got the shape \(2, 2\)"),
        (accuracy, ([0, 1], [0]), "there are 2 labels, but 1 predictions"),
        (accuracy, ([], []), "type float64"),
        (accuracy, (np.zeros(0, int), np.zeros(0, int)), "there are no examples"),
        (accuracy, ([0, -1], [0, 1]), "labels must be at least 0; got values from -1 to 0"),
        (accuracy, (["yes"], ["no"]), "must be int classes"),
        (classification_report, ([0, 1, 1], [0, 1, 2], ["a", "b"]), CLASSES),
        (f1, ([0, 2], [0, 1]), "labels must be from 0 to 1"),
        *((classification_report, ([0, 1], [0, 1], names), NAMES) for names in (["a", "a"], [], [1, 2])),
        *((multi_label_report, ([[1, 0]], bad, ["a", "b"]), INDICATORS) for bad in ([[0.5, 1.0]], [[1, 0, 0]], [1, 0])),
    ],
)
def test_rejects_invalid_values(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
