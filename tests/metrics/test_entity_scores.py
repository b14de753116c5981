import json
import random
import warnings

import pytest
from seqeval.metrics.sequence_labeling import get_entities

from keras_bert.metrics import entity_scores as tagging
from keras_bert.metrics.entity_scores import tagging_metrics, tagging_report
from keras_bert.text import tags as text_tags

TOLERANCE = 1e-9
MODES = [("default", "IOB2"), ("default", "IOB1"), ("strict_iob2", "IOB2"), ("strict_iob1", "IOB1")]


@pytest.mark.parametrize(("mode", "scheme"), MODES)
def test_scores_equal_the_golden_ones(golden, mode, scheme):
    strict, cases = mode.startswith("strict"), golden("ner")
    assert len(cases) == 18
    for case in cases:
        expected = case[mode]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            metrics = tagging_metrics(case["y_true"], case["y_pred"], scheme, strict)
            report = tagging_report(case["y_true"], case["y_pred"], scheme, strict)
        # The golden scores have no macro F1 without entities.
        assert metrics["macro_f1"] == pytest.approx(expected["macro_f1"] or 0.0, abs=TOLERANCE), case["name"]
        assert metrics["token_accuracy"] == pytest.approx(case["token_accuracy"], abs=TOLERANCE), case["name"]
        for name in ("precision", "recall", "f1"):
            assert metrics[name] == pytest.approx(expected[name], abs=TOLERANCE), case["name"]
        assert report["per_type"].keys() == expected["per_type"].keys()
        for kind, scores in expected["per_type"].items():
            assert report["per_type"][kind] == pytest.approx(scores, abs=TOLERANCE), (case["name"], kind)


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOBES"])
def test_strict_and_lenient_agree_on_valid_tags(scheme):
    generator = random.Random(1)
    tags = ["O", "O", "B-a", "I-a", "B-b-c", "I-b-c"]
    true, predicted = (
        [text_tags.convert_tags(generator.choices(tags, k=6), scheme) for _ in range(50)] for _ in range(2)
    )
    report = tagging_report(true, predicted, scheme)
    assert report == tagging_report(true, predicted, scheme, strict=True)
    assert [*report["per_type"]] == ["a", "b-c"]
    assert 0 < report["micro"]["f1"] < 1
    entities = [[{*get_entities(list(tags))} for tags in sentences] for sentences in (true, predicted)]
    right = sum(len(true & predicted) for true, predicted in zip(*entities, strict=True))
    assert report["micro"]["recall"] == pytest.approx(right / sum(map(len, entities[0])))


def test_schemes_equal_those_of_the_tags():
    assert tagging.SCHEMES == text_tags.SCHEMES


def test_json_can_hold_reports():
    for scheme in ("IOB2", "plain"):
        report = tagging_report([("B-a", "O"), ()], [("O", "B-a"), ()], scheme)
        assert json.loads(json.dumps(report, allow_nan=False)) == report
        assert (report["sentences"], report["tokens"]) == (2, 2)


def test_plain_tags_are_scored_as_classes():
    true, predicted = [["DT", "NN"], ["``", "NN"]], [["DT", "VB"], ["``", "NN"]]
    metrics = tagging_metrics(true, predicted, "plain")
    assert metrics == {"macro_f1": pytest.approx((1 + 2 / 3 + 0 + 1) / 4), "token_accuracy": 0.75}
    report = tagging_report(true, predicted, "plain")
    assert report["label_names"] == ["DT", "NN", "VB", "``"]
    assert report["confusion_matrix"] == [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]


def test_types_may_have_the_names_of_averages():
    report = tagging_report([["B-micro avg", "B-macro"]], [["B-micro avg", "O"]])
    assert report["per_type"]["micro avg"]["support"] == 1
    assert report["micro"]["recall"] == 0.5


ALLOWED = "tag; allowed are O, and"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"true_tags": []}, "of 0 sentences, but predicted tags of 1"),
        ({"true_tags": [], "predicted_tags": []}, "there are no tags"),
        ({"true_tags": [[]], "predicted_tags": [[]]}, "there are no tags"),
        ({"true_tags": ["NN", "DT"], "scheme": "plain"}, "a list of lists, one for each sentence; got 'NN'"),
        ({"true_tags": [["O"]]}, "sentence 0 has 1 true tags, but 2 predicted tags"),
        ({"true_tags": [["O", "NN"]]}, f"'NN' is not an IOB2 {ALLOWED} B-, I- followed by a type. The schemes are"),
        ({"true_tags": [["O", "E-a"]]}, "'E-a' is not an IOB2 tag"),
        ({"true_tags": [["O", "B-"]], "scheme": "IOBES"}, f"'B-' is not an IOBES {ALLOWED} B-, I-, E-, S- followed"),
        ({"scheme": "BIO"}, "unknown scheme 'BIO'; allowed are"),
        ({"scheme": "plain", "strict": True}, "plain tags do not encode"),
    ],
)
def test_rejects_invalid_tags(arguments, message):
    with pytest.raises(ValueError, match=message):
        tagging_metrics(**{"true_tags": [["O", "B-a"]], "predicted_tags": [["O", "B-a"]], **arguments})
