import json
import sys
from pathlib import Path

import pytest

from tests.forked import run as run_forked
from tests.models.small_heads import HEADS

pytestmark = pytest.mark.slow

KINDS = sorted(set(HEADS) - {"windows"})  # two replicas cannot split the windows of a text


def run_program(*arguments):
    """Returns the output of the program on two logical devices."""
    program = [sys.executable, "-m", "tests.models.replicated_program", *arguments]
    run = run_forked(program, cwd=Path(__file__).parents[2])
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found():
    return run_program()


@pytest.mark.parametrize("name", ["plain", "class weights"])
def test_two_replicas_train_and_evaluate_as_one_device(found, name):
    assert found["moved"] > 1e-4
    weights, evaluation, prediction = found[name]
    assert weights < 1e-6
    assert evaluation < 1e-5
    assert prediction < 1e-5


def test_texts_are_compared_with_those_of_all_replicas(found):
    weights, loss = found["embedder"]
    assert weights < 1e-5
    assert loss < 1e-5


def test_two_replicas_predict_each_row_of_a_batch_once(found):
    assert found["single batch"] < 1e-5


def test_rejects_windows(found):
    assert "cannot be split across 2 replicas" in found["windows"]


def test_prediction_runs_on_the_callers_device(found):
    assert [device[-5:] for device in found["prediction devices"]] == ["CPU:1"] * 3


def test_replicas_draw_different_dropout_masks_that_repeat_with_the_seed(found):
    # Of 64 fair draws, two masks agree on about half, and on all of them never.
    assert all(0.2 < equal < 0.8 for equal in found["equal draws"])
    assert found["repeated draws"]


@pytest.mark.parametrize("start", range(0, len(KINDS), 2))
def test_fit_trains_the_weights_of_the_trainer_on_two_replicas(start):
    differences = run_program(*KINDS[start : start + 2])
    assert max(differences.values()) < 1e-5, differences
