import json

import numpy as np
import pytest

from keras_bert.metrics.classification import (
    accuracy,
    classification_report,
    f1,
    macro_f1,
    matthews_correlation,
    micro_f1,
    multi_label_report,
    weighted_f1,
)

TOLERANCE = 1e-9


@pytest.fixture(scope="module")
def cases(shared):
    return json.loads((shared / "golden" / "metrics" / "classification.json").read_text())["cases"]


def names_of(case):
    return [f"class {index}" for index in range(case["num_classes"])]


def test_the_functions_equal_the_reference(cases):
    for case in cases:
        labels, predictions, number = case["labels"], case["predictions"], case["num_classes"]
        assert accuracy(labels, predictions) == pytest.approx(case["accuracy"], abs=TOLERANCE)
        assert matthews_correlation(labels, predictions) == pytest.approx(case["matthews"], abs=TOLERANCE)
        for function, key in ((macro_f1, "f1_macro"), (micro_f1, "f1_micro"), (weighted_f1, "f1_weighted")):
            assert function(labels, predictions, number) == pytest.approx(case[key], abs=TOLERANCE), case["name"]
        if number == 2:
            assert f1(labels, predictions) == pytest.approx(case["f1"], abs=TOLERANCE)


def test_the_report_equals_the_reference(cases):
    for case in cases:
        report = classification_report(case["labels"], case["predictions"], names_of(case))
        assert report["confusion_matrix"] == case["confusion"]
        assert report["examples"] == len(case["labels"])
        for average in ("macro", "micro", "weighted"):
            assert report[average]["f1"] == pytest.approx(case[f"f1_{average}"], abs=TOLERANCE)
        supports = [of_class["support"] for of_class in report["per_class"].values()]
        assert supports == np.sum(case["confusion"], axis=1).tolist()
        if case["num_classes"] == 2:
            positive = report["per_class"]["class 1"]
            expected = {name: case[name] for name in ("precision", "recall", "f1")}
            assert {name: positive[name] for name in expected} == pytest.approx(expected, abs=TOLERANCE)


def test_the_report_is_fit_for_json(cases):
    report = classification_report(np.array(cases[0]["labels"]), np.array(cases[0]["predictions"]), names_of(cases[0]))
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_a_class_that_never_occurs_is_reported_with_zeros():
    report = classification_report([0, 1], [0, 1], ["a", "b", "never"])
    assert report["per_class"]["never"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    assert report["macro"]["f1"] == pytest.approx(2 / 3)
    assert report["confusion_matrix"] == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


def slow_multi_label_f1(labels, predictions):
    """F1 of each label, and of all decisions together, by counting."""
    both, either = (labels * predictions).sum(axis=0), (labels + predictions).sum(axis=0)
    return 2 * both / np.maximum(either, 1), 2 * both.sum() / either.sum()


def test_several_labels_at_once():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, [50, 4])
    predictions = np.where(random.random([50, 4]) < 0.8, labels, 1 - labels)
    labels[:, 3] = predictions[:, 3] = 0
    report = multi_label_report(labels, predictions, ["a", "b", "c", "never"])
    of_label, micro = slow_multi_label_f1(labels, predictions)
    assert [row["f1"] for row in report["per_label"].values()] == pytest.approx(of_label.tolist())
    assert report["macro"]["f1"] == pytest.approx(of_label.mean())
    assert report["micro"]["f1"] == pytest.approx(micro)
    assert report["subset_accuracy"] == np.mean(
        [row.tolist() == other.tolist() for row, other in zip(labels, predictions, strict=True)]
    )
    for index, row in enumerate(report["per_label"].values()):
        pairs = list(zip(labels[:, index].tolist(), predictions[:, index].tolist(), strict=True))
        assert row["counts"] == [[pairs.count((true, predicted)) for predicted in (0, 1)] for true in (0, 1)]
        assert row["support"] == labels[:, index].sum()
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_one_label_that_may_hold_or_not():
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
        ([0, -1], [0, 1], "labels must be at least 0; they reach from -1 to 0"),
        (["yes"], ["no"], "must be whole numbers"),
    ],
)
def test_what_is_no_list_of_classes_is_refused(labels, predictions, message):
    with pytest.raises(ValueError, match=message):
        accuracy(labels, predictions)


def test_classes_beyond_the_names_are_refused():
    with pytest.raises(ValueError, match="predictions must be from 0 to 1; they reach from 0 to 2"):
        classification_report([0, 1, 1], [0, 1, 2], ["a", "b"])
    with pytest.raises(ValueError, match="labels must be from 0 to 1"):
        f1([0, 2], [0, 1])


@pytest.mark.parametrize("names", [["a", "a"], [], [1, 2]])
def test_names_must_be_distinct_strings(names):
    with pytest.raises(ValueError, match="label_names must be distinct strings"):
        classification_report([0, 1], [0, 1], names)


@pytest.mark.parametrize("predictions", [[[0.5, 1.0]], [[1, 0, 0]], [1, 0]])
def test_what_is_no_table_of_zeros_and_ones_is_refused(predictions):
    with pytest.raises(ValueError, match=r"predictions must be zeros and ones \[examples, 2\]"):
        multi_label_report([[1, 0]], predictions, ["a", "b"])
