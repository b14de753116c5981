import json
import sys
from pathlib import Path

import pytest

from tests.forked import run as run_forked
from tests.models.small_heads import HEADS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found():
    """What the program on two logical devices printed."""
    program = [sys.executable, "-m", "tests.models.replicated_program"]
    run = run_forked(program, cwd=Path(__file__).parents[2])
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["plain", "class weights"])
def test_two_replicas_train_and_evaluate_as_one_device(found, name):
    assert found["moved"] > 1e-4
    assert found[f"weights, {name}"] < 1e-6
    assert found[f"evaluation, {name}"] < 1e-5
    assert found[f"prediction, {name}"] < 1e-5


def test_windows_are_refused(found):
    assert "cannot be split across 2 replicas" in found["windows"]


def test_prediction_runs_where_the_caller_asks(found):
    assert [device[-5:] for device in found["devices of prediction"]] == ["CPU:1"] * 3


def test_replicas_draw_different_dropout_masks_that_repeat_with_the_seed(found):
    # Of 64 fair draws, two masks agree on about half, and on all of them never.
    assert all(0.2 < equal < 0.8 for equal in found["equal draws"])
    assert found["repeated draws"]


@pytest.mark.parametrize(
    "kinds", [("single_label", "multi_label", "regression", "pairs"), HEADS[HEADS.index("multiple_choice") :]]
)
def test_fit_trains_the_weights_of_the_trainer_on_two_replicas(kinds):
    program = [sys.executable, "-m", "tests.models.replicated_fit_program", *kinds]
    run = run_forked(program, cwd=Path(__file__).parents[2])
    assert run.returncode == 0, run.stderr[-3000:]
    differences = json.loads(run.stdout.splitlines()[-1])
    assert set(differences) == set(kinds)
    assert max(differences.values()) < 1e-5, differences
