"""The programs when they are ended from outside, and what the same command makes of it afterwards."""

import re
import secrets
import signal
import time

import numpy as np
import pytest

from tests.tasks.programs import CHECKPOINT_EVERY, UPDATES, Workers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def uninterrupted(start, tmp_path_factory):
    """A run that nothing happens to; it may not be at its end yet."""
    return start(tmp_path_factory.mktemp("whole") / "run", "--deterministic")


@pytest.fixture
def draw():
    """Draws updates in order at which to interrupt a run; at none of the last ones, which would be over too soon."""
    seed = secrets.randbits(32)
    print(f"the updates were drawn with seed {seed}")  # pytest shows this where the test fails
    return lambda number: sorted(np.random.default_rng(seed).integers(1, UPDATES * 3 // 4, number).tolist())


def test_after_sigterm_and_after_sigkill_the_same_command_goes_on(start, uninterrupted, draw, tmp_path):
    terminated_at, killed_at = draw(2)
    first = start(tmp_path / "run", "--deterministic")
    first.wait_for_update(terminated_at)
    first.process.send_signal(signal.SIGTERM)
    assert first.finish() == 143
    (stopped_at,) = map(int, re.findall(f"stopped at step (\\d+) of {UPDATES}", first.said))
    assert stopped_at >= terminated_at
    assert "run the same command again to resume" in first.said

    second = start(tmp_path / "run", "--deterministic")
    second.wait_for_update(killed_at)
    second.process.kill()
    assert second.finish() == -signal.SIGKILL
    assert [record["step"] for record in second.records("resumed")] == [stopped_at]
    lost_at = second.records("train")[-1]["step"]

    last = start(tmp_path / "run", "--deterministic")
    np.testing.assert_array_equal(last.weights(), uninterrupted.weights())
    assert "position in the data at step" in last.said
    (resumed_at,) = (record["step"] for record in last.records("resumed"))
    saved = {stopped_at, *range(0, lost_at + 1, CHECKPOINT_EVERY)}
    assert resumed_at in saved
    assert resumed_at >= max(saved - {lost_at})  # an update's checkpoint is written after its record
    assert set(last.files()) == set(uninterrupted.files())


def test_a_second_run_in_the_folder_is_refused_until_the_first_is_dead(start, uninterrupted, draw, tmp_path):
    first = start(tmp_path / "run")
    first.wait_for_update(*draw(1))
    first.process.send_signal(signal.SIGSTOP)
    second = start(tmp_path / "run")
    try:
        assert second.finish() == 1
        assert f"in use by process {first.process.pid}" in second.said
    finally:
        first.process.kill()
    assert first.finish() == -signal.SIGKILL
    third = start(tmp_path / "run")
    # Not --deterministic: as equal as sums are whose order is free.
    np.testing.assert_allclose(third.weights(), uninterrupted.weights(), rtol=0, atol=1e-6)


def test_other_flags_in_the_same_folder_are_refused_by_name(start, uninterrupted):
    uninterrupted.wait_for_update(5)
    other = start(uninterrupted.run_dir, "--weight_decay=0.5", "--seed=7")
    assert other.finish() == 1
    assert "weight_decay is 0.5, but 0.01 in that run" in other.said
    assert "seed is 7" in other.said


def test_workers_go_on_after_sigterm_to_one_and_after_the_death_of_one(start, uninterrupted, draw, tmp_path):
    terminated_at, killed_at = draw(2)
    first = Workers(start, tmp_path / "run", "--deterministic")
    first.programs[0].wait_for_update(terminated_at)
    first.programs[1].process.send_signal(signal.SIGTERM)
    assert first.finish() == [143, 143], [program.said[-3000:] for program in first.programs]
    (stopped_at,) = map(int, re.findall(f"stopped at step (\\d+) of {UPDATES}", first.programs[0].said))
    assert stopped_at >= terminated_at

    second = Workers(start, tmp_path / "run", "--deterministic")
    chief, other = second.programs
    chief.wait_for_update(killed_at)
    other.process.kill()
    died = time.monotonic()
    assert chief.finish() not in (0, 143)
    assert time.monotonic() - died < 60
    assert "lost worker 1" in chief.said
    assert [record["step"] for record in chief.records("resumed")] == [stopped_at]

    last, whole = (
        Workers(start, tmp_path / "run", "--deterministic"),
        Workers(start, tmp_path / "whole", "--deterministic"),
    )
    np.testing.assert_array_equal(last.weights(), whole.weights())
    files, position = whole.programs[0].files(), re.compile(r"/position_\d")
    assert [name for name in files if position.search(name)] == [
        f"checkpoints/step_{step:08d}/position_{worker:05d}-of-00002.{kind}"
        for step in (UPDATES - CHECKPOINT_EVERY, UPDATES)
        for worker in range(2)
        for kind in ("data-00000-of-00001", "index")
    ]
    uninterrupted.weights()
    assert [name for name in files if not position.search(name)] == [
        name for name in uninterrupted.files() if not position.search(name)
    ]
    # Of TensorBoard's files there is one for each process of the chief's.
    assert last.programs[0].files() == sorted([*files, "tensorboard/events", "tensorboard/events"])
