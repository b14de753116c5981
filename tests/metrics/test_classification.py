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


@pytest.fixture(scope="module")
def cases(shared):
    return json.loads((shared / "golden" / "metrics" / "classification.json").read_text())["cases"]


def class_names(case):
    return [f"class {index}" for index in range(case["num_classes"])]


def test_scores_equal_the_golden_ones(cases):
    for case in cases:
        labels, predictions, number = case["labels"], case["predictions"], case["num_classes"]
        assert accuracy(labels, predictions) == pytest.approx(case["accuracy"], abs=TOLERANCE)
        assert matthews_correlation(labels, predictions) == pytest.approx(case["matthews"], abs=TOLERANCE)
        assert macro_f1(labels, predictions, number) == pytest.approx(case["f1_macro"], abs=TOLERANCE), case["name"]
        if number == 2:
            assert f1(labels, predictions) == pytest.approx(case["f1"], abs=TOLERANCE)


def test_report_equals_the_golden_ones(cases):
    for case in cases:
        report = classification_report(np.array(case["labels"]), case["predictions"], class_names(case))
        assert json.loads(json.dumps(report, allow_nan=False)) == report
        assert report["confusion_matrix"] == case["confusion"]
        assert report["examples"] == len(case["labels"])
        for average in ("macro", "micro", "weighted"):
            assert report[average]["f1"] == pytest.approx(case[f"f1_{average}"], abs=TOLERANCE)
        supports = [scores["support"] for scores in report["per_class"].values()]
        assert supports == np.sum(case["confusion"], axis=1).tolist()
        if case["num_classes"] == 2:
            positive = report["per_class"]["class 1"]
            expected = {name: case[name] for name in ("precision", "recall", "f1")}
            assert {name: positive[name] for name in expected} == pytest.approx(expected, abs=TOLERANCE)


def test_class_that_never_occurs_has_zeros():
    report = classification_report([0, 1], [0, 1], ["a", "b", "never"])
    assert report["per_class"]["never"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    assert report["macro"]["f1"] == pytest.approx(2 / 3)
    assert report["confusion_matrix"] == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


def reference_multi_label_f1(labels, predictions):
    """Computes F1 of each label, and of all decisions together, by counting."""
    both, either = (labels * predictions).sum(axis=0), (labels + predictions).sum(axis=0)
    return 2 * both / np.maximum(either, 1), 2 * both.sum() / either.sum()


def test_multi_label_report_equals_the_reference():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, [50, 4])
    predictions = np.where(random.random([50, 4]) < 0.8, labels, 1 - labels)
    labels[:, 3] = predictions[:, 3] = 0
    report = multi_label_report(labels, predictions, ["a", "b", "c", "never"])
    label_scores, micro = reference_multi_label_f1(labels, predictions)
    assert [row["f1"] for row in report["per_label"].values()] == pytest.approx(label_scores.tolist())
    assert report["macro"]["f1"] == pytest.approx(label_scores.mean())
    assert report["micro"]["f1"] == pytest.approx(micro)
    assert report["subset_accuracy"] == np.mean(
        [row.tolist() == other.tolist() for row, other in zip(labels, predictions, strict=True)]
    )
    for index, row in enumerate(report["per_label"].values()):
        pairs = list(zip(labels[:, index].tolist(), predictions[:, index].tolist(), strict=True))
        assert row["counts"] == [[pairs.count((true, predicted)) for predicted in (0, 1)] for true in (0, 1)]
        assert row["support"] == labels[:, index].sum()
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_multi_label_report_of_one_label():
    report = multi_label_report([[1], [0], [1]], [[1], [1], [0]], ["spam"])
    assert report["per_label"]["spam"]["counts"] == [[0, 1], [1, 1]]
    assert report["micro"] == report["macro"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5}


@pytest.mark.parametrize(
    ("labels", "predictions", "message"),
    [
        ([0, 1], [0.2, 0.8], r"the type float64\. Of logits .* logits\.argmax"),
        ([0, 1], [[1, 0], [0, 1]], r"got the shape \(2, 2\)"),
        ([0, 1], [0], "there are 2 labels, but 1 predictions"),
        ([], [], "type float64"),
        (np.zeros(0, int), np.zeros(0, int), "there are no examples"),
        ([0, -1], [0, 1], "labels must be at least 0; got values from -1 to 0"),
        (["yes"], ["no"], "must be int classes"),
    ],
)
def test_invalid_classes_are_refused(labels, predictions, message):
    with pytest.raises(ValueError, match=message):
        accuracy(labels, predictions)


def test_classes_without_a_name_are_refused():
    with pytest.raises(ValueError, match="predictions must be from 0 to 1; got values from 0 to 2"):
        classification_report([0, 1, 1], [0, 1, 2], ["a", "b"])
    with pytest.raises(ValueError, match="labels must be from 0 to 1"):
        f1([0, 2], [0, 1])


@pytest.mark.parametrize("names", [["a", "a"], [], [1, 2]])
def test_names_must_be_distinct_strings(names):
    with pytest.raises(ValueError, match="label_names must be distinct strings"):
        classification_report([0, 1], [0, 1], names)


@pytest.mark.parametrize("predictions", [[[0.5, 1.0]], [[1, 0, 0]], [1, 0]])
def test_other_values_than_zeros_and_ones_are_refused(predictions):
    with pytest.raises(ValueError, match=r"predictions must be zeros and ones \[examples, 2\]"):
        multi_label_report([[1, 0]], predictions, ["a", "b"])
