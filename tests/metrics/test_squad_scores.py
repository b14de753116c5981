import gzip
import json

import numpy as np
import pytest

from keras_bert.metrics.squad_scores import normalize_answer, score_answer, score_answers, squad_metrics
from tests.tolerances import assert_close

TOLERANCE = 1e-8  # of fractions; the expected values are percentages

SCORES = {"exact_match": "exact", "f1": "f1", "total": "total"}
GROUPS = {"": "", "has_answer_": "HasAns_", "no_answer_": "NoAns_"}
OFFICIAL_NAMES = {own + name: official + SCORES[name] for own, official in GROUPS.items() for name in SCORES}
BEST_NAMES = {"best_exact_match": "best_exact", "best_exact_match_threshold": "best_exact_thresh"}
BEST_NAMES |= {"best_f1": "best_f1", "best_f1_threshold": "best_f1_thresh"}


@pytest.fixture(scope="module")
def folder(shared):
    return shared / "golden" / "squad" / "metrics"


def read(path):
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def assert_official(metrics, expected, names):
    for ours, theirs in names.items():
        is_fraction = not ours.endswith(("total", "threshold"))
        assert metrics[ours] == pytest.approx(expected[theirs] / (100 if is_fraction else 1), abs=TOLERANCE), ours


@pytest.mark.parametrize("system", ["v1.1_r-net+", "v1.1_Match-LSTM_with_Ans-Ptr", "v2.0_nlnet"])
def test_scores_of_every_question_equal_the_official_ones(folder, system):
    version = system[1:4]
    answers = read(folder / f"answers_v{version}.json.gz")
    scores = score_answers(read(folder / f"{system}.json"), answers, version=version)
    expected = read(folder / f"{system}_per_question.json.gz")
    assert scores.keys() == expected.keys()
    assert_close(np.array([*scores.values()]), np.array([expected[name] for name in scores]), dtype="float64")


@pytest.mark.parametrize("system", ["r-net+", "Match-LSTM_with_Ans-Ptr"])
def test_scores_of_version_1_equal_the_official_ones(folder, system):
    metrics = squad_metrics(read(folder / f"v1.1_{system}.json"), read(folder / "answers_v1.1.json.gz"))
    expected = read(folder / "expected.json")[f"v1.1_{system}.json"]
    assert_official(metrics, expected, {name: name for name in ("exact_match", "f1", "total")})
    assert metrics["missing"] == 0


@pytest.mark.parametrize("threshold", [None, "1.0", "0.5"])
def test_scores_of_version_2_equal_the_official_ones(folder, threshold):
    expected, names, arguments = read(folder / "expected.json")["v2.0_nlnet.json"], OFFICIAL_NAMES, {}
    if threshold is not None:
        expected, names = expected[f"with_na_prob_thresh_{threshold}"], {**OFFICIAL_NAMES, **BEST_NAMES}
        arguments = {"null_odds": read(folder / "v2.0_nlnet_na_prob.json.gz"), "null_threshold": float(threshold)}
    answers = read(folder / "answers_v2.0.json.gz")
    assert_official(squad_metrics(read(folder / "v2.0_nlnet.json"), answers, "2.0", **arguments), expected, names)


def test_question_without_a_prediction_is_wrong_and_counted():
    metrics = squad_metrics({"q1": "Paris"}, {"q1": ["Paris"], "q2": [], "q3": ["a"]}, "2.0")
    assert (metrics["missing"], metrics["no_answer_f1"]) == (2, 0)
    assert metrics["exact_match"] == pytest.approx(1 / 3)
    metrics = squad_metrics({"q1": ""}, {"q1": []}, "2.0")
    assert metrics["no_answer_exact_match"] == 1
    assert "has_answer_exact_match" not in metrics  # only groups with questions


@pytest.mark.parametrize(
    ("text", "expected"),
    [("The  a an", ""), ("U.S.A.", "usa"), ("theatre", "theatre"), ("a\u00a0b", "b"), ("ÉCOLE", "école"), ("", "")],
)
def test_answers_are_normalized(text, expected):
    assert normalize_answer(text) == expected


def test_empty_answers_are_equal_in_version_2_only():
    assert score_answer("the", ["a"]) == (1.0, 0.0)
    assert score_answer("the", ["a"], "2.0") == (1.0, 1.0)
    assert score_answer("the", ["an", "cat"], "2.0") == (0.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"answers": {}}, "no questions"),
        ({"version": "3.0"}, "version must be one of"),
        ({"answers": {"q1": []}}, "use version 2.0"),
        ({"null_odds": {"q1": 0.0}}, "apply to version 2.0"),
        ({"null_threshold": 0.0}, "needs null_odds"),
        ({"null_odds": {"q2": 0.0}, "version": "2.0"}, "1 are missing, the first is 'q1'"),
    ],
)
def test_rejects_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        squad_metrics(**{"predictions": {"q1": "Paris"}, "answers": {"q1": ["Paris"]}, **arguments})
