"""Programs that are ended from outside, and resumed by the same command."""

import re
import secrets
import signal
import time

import numpy as np
import pytest

from tests.tasks.programs import interrupt, trained_weights

pytestmark = pytest.mark.slow
STEPS, CHECKPOINT_EVERY = 120, 20


@pytest.fixture(scope="module")
def uninterrupted(start_rte, tmp_path_factory):
    """A run that may still be in progress."""
    return start_rte(tmp_path_factory.mktemp("whole") / "run", "--deterministic")


@pytest.fixture
def draw():
    """Draws steps in order at which to interrupt a run; none of the last, after which it could end too early."""
    seed = secrets.randbits(32)
    print(f"the steps were drawn with seed {seed}")  # pytest shows this if the test fails
    return lambda number: sorted(np.random.default_rng(seed).integers(1, STEPS * 3 // 4, number).tolist())


def list_files(run_dir):
    """Names of all files of a run; those of TensorBoard's, which contain process and time, are shortened."""
    names = [str(path.relative_to(run_dir)) for path in run_dir.rglob("*")]
    return sorted(re.sub(r"/events\.out\.tfevents\..*", "/events", name) for name in names)


def test_resumes_exactly_after_sigterm_and_sigkill(start_rte, uninterrupted, draw, tmp_path):
    terminated_at, killed_at = draw(2)
    stopped_at = interrupt(start_rte(tmp_path / "run", "--deterministic"), terminated_at)
    (second,) = start_rte(tmp_path / "run", "--deterministic")
    second.wait_for_step(killed_at)
    second.process.kill()
    assert second.finish() == -signal.SIGKILL
    assert second.steps("resumed") == [stopped_at]
    lost_at = second.steps("train")[-1]

    (last,) = start_rte(tmp_path / "run", "--deterministic")
    np.testing.assert_array_equal(trained_weights([last]), trained_weights(uninterrupted))
    assert "position in the data at step" in last.output
    (resumed_at,) = last.steps("resumed")
    saved = {stopped_at, *range(0, lost_at + 1, CHECKPOINT_EVERY)}
    assert resumed_at in saved
    assert resumed_at >= max(saved - {lost_at})  # a step's checkpoint is written after its record
    assert set(list_files(tmp_path / "run")) == set(list_files(uninterrupted[0].run_dir))


def test_rejects_other_flags_in_the_same_folder_by_name(start_rte, uninterrupted):
    uninterrupted[0].wait_for_step(5)
    (other,) = start_rte(uninterrupted[0].run_dir, "--weight_decay=0.5", "--seed=7")
    assert other.finish() == 1
    assert "weight_decay is 0.5, but 0.01 in that run" in other.output
    assert "seed is 7" in other.output


def test_workers_resume_after_sigterm_to_one_and_the_death_of_one(start_rte, uninterrupted, draw, tmp_path):
    terminated_at, killed_at = draw(2)
    stopped_at = interrupt(start_rte(tmp_path / "run", "--deterministic", workers=2), terminated_at)
    chief, other = start_rte(tmp_path / "run", "--deterministic", workers=2)
    chief.wait_for_step(killed_at)
    other.process.kill()
    died = time.monotonic()
    assert chief.finish() not in (0, 143)
    assert time.monotonic() - died < 60
    assert "lost worker 1" in chief.output
    assert chief.steps("resumed") == [stopped_at]

    last, whole = (start_rte(tmp_path / name, "--deterministic", workers=2) for name in ("run", "whole"))
    np.testing.assert_array_equal(trained_weights(last), trained_weights(whole))
    files, position = list_files(tmp_path / "whole"), re.compile(r"/position_\d")
    assert [name for name in files if position.search(name)] == [
        f"checkpoints/step_{step:08d}/position_{worker:05d}-of-00002.{kind}"
        for step in (STEPS - CHECKPOINT_EVERY, STEPS)
        for worker in range(2)
        for kind in ("data-00000-of-00001", "index")
    ]
    trained_weights(uninterrupted)
    others, expected = (
        [name for name in names if not position.search(name)] for names in (files, list_files(uninterrupted[0].run_dir))
    )
    assert others == expected
    # TensorBoard has one file per process of the chief.
    assert list_files(tmp_path / "run") == sorted([*files, "tensorboard/events", "tensorboard/events"])
