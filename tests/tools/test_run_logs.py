"""Logs are read as they are meant: resumed, cut off, with gaps, of any length."""

import json
import math
import tracemalloc

import numpy as np
import pytest

from keras_bert.training.run_dir import RunDirectory, write_json
from tools import run_logs
from tools.run_logs import Curve, choose_scores, distinct_names, read_run, read_runs


def write_log(folder, records):
    """A run's folder with a log, written as training writes it."""
    run = RunDirectory(folder, {})
    for record in records:
        run.log(record)
    return folder


def train(step, **values):
    return {"event": "train", "step": step, **values}


def evaluation(step, **values):
    return {"event": "evaluation", "step": step, **{f"dev/{name}": value for name, value in values.items()}}


def points_of(curve):
    return dict(zip(*map(np.ndarray.tolist, curve.points()), strict=True))


def losses(folder):
    return points_of(read_run(folder).training["loss"])


# Curves.


def test_few_values_are_kept_as_they_are():
    curve = Curve()
    for step in (30, 10, 20):
        curve.add(step, step / 10)
    assert points_of(curve) == {10: 1, 20: 2, 30: 3}
    assert curve.width == 1


@pytest.mark.parametrize("pending", [7, 64, 5000])
def test_many_values_are_averaged_over_ranges_of_equal_width(monkeypatch, pending):
    monkeypatch.setattr(run_logs, "_PENDING_POINTS", pending)
    values = np.random.default_rng(0).normal(size=1000)
    curve = Curve(most_points=100)
    for step in range(999, -1, -1):
        curve.add(step, values[step])
    assert curve.points()[0].shape == (63,)
    assert curve.width == 16
    ranges = [slice(start, start + 16) for start in range(0, 1000, 16)]
    np.testing.assert_allclose(curve.points()[0], [np.arange(1000)[part].mean() for part in ranges])
    np.testing.assert_allclose(curve.points()[1], [values[part].mean() for part in ranges])


def test_an_average_is_a_gap_only_where_nothing_is_finite():
    curve = Curve(most_points=2)
    for step, value in enumerate([1, math.nan, math.nan, math.nan]):
        curve.add(step, value)
    steps, values = curve.points()
    np.testing.assert_array_equal(steps, [0.5, 2.5])
    np.testing.assert_array_equal(values, [1, math.nan])


# Logs.


def test_a_log(tmp_path):
    folder = write_log(
        tmp_path / "run",
        [
            train(10, loss=2.0, learning_rate=1e-5, padding=0.5, terms={"a": 1}, host_seconds=3.0),
            evaluation(10, accuracy=0.5, f1=0.4),
            {"event": "resumed", "step": 10},
            train(20, **{"loss": 1.0, "loss/masked_lm": 0.75, "loss/next_sentence": 0.25, "tokens_per_second": 7}),
            evaluation(20, accuracy=0.25, f1=0.6),
        ],
    )
    run = read_run(folder)
    assert {name: points_of(curve) for name, curve in run.training.items()} == {
        "loss": {10: 2.0, 20: 1.0},
        "learning_rate": {10: 1e-5},
        "loss/masked_lm": {20: 0.75},
        "loss/next_sentence": {20: 0.25},
        "tokens_per_second": {20: 7.0},
    }
    assert points_of(run.evaluations["dev/f1"]) == {10: 0.4, 20: 0.6}
    assert run.best == {"dev/accuracy": (10, 0.5), "dev/f1": (20, 0.6)}
    assert run.score == "dev/accuracy"


def test_of_a_step_that_was_logged_twice_the_later_record_counts(tmp_path):
    steps = [(10, 0.9), (20, 0.8), (30, 0.7), (40, 0.6), (20, 0.5), (30, 0.4), (30, 0.3)]
    folder = write_log(tmp_path / "run", [train(step, loss=loss) for step, loss in steps])
    assert losses(folder) == {10: 0.9, 20: 0.5, 30: 0.3, 40: 0.6}


def test_a_run_that_was_resumed_twice_and_logs_more_often_since(tmp_path):
    steps = [(10, 1), (20, 1), (30, 1), (40, 1), (20, 2), (25, 2), (30, 2), (35, 2), (15, 3), (20, 3), (25, 3)]
    folder = write_log(tmp_path / "run", [train(step, loss=float(process)) for step, process in steps])
    assert losses(folder) == {10: 1, 15: 3, 20: 3, 25: 3, 30: 2, 35: 2, 40: 1}


@pytest.mark.parametrize("seed", range(20))
def test_resuming_at_random_is_as_if_the_log_were_read_forwards(tmp_path, seed):
    random = np.random.default_rng(seed)
    expected, lines, start = {}, [], 0
    for process in range(random.integers(1, 7)):
        end = start + random.integers(1, 30)
        for step in range(start, end):
            expected[step] = process
            lines.append(json.dumps(train(step, loss=int(process))))
        start = random.integers(0, end)
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    assert losses(tmp_path) == expected


def test_an_evaluation_that_was_undone_is_not_the_best(tmp_path):
    folder = write_log(tmp_path / "run", [evaluation(5, f1=0.9), evaluation(5, f1=0.3), evaluation(6, f1=0.4)])
    assert read_run(folder).best == {"dev/f1": (6, 0.4)}


@pytest.mark.parametrize("lower_is_better, best", [(False, 2), (True, 4)])
def test_of_equal_scores_the_first_is_the_best(tmp_path, lower_is_better, best):
    values = {1: None, 2: 0.75, 3: 0.75, 4: 0.25, 5: 0.25, 6: float("nan")}
    folder = write_log(tmp_path / "run", [evaluation(step, f1=value) for step, value in values.items()])
    assert read_run(folder, lower_is_better).best == {"dev/f1": (best, values[best])}


def test_what_is_not_finite_leaves_a_gap(tmp_path):
    values = [1.0, None, float("inf"), 2.0]
    run = read_run(write_log(tmp_path / "run", [train(step, loss=value) for step, value in enumerate(values)]))
    np.testing.assert_array_equal(run.training["loss"].points(), [[0, 1, 2, 3], [1, math.nan, math.nan, 2]])
    run = read_run(write_log(tmp_path / "other", [evaluation(1, f1=None)]))
    assert (run.best, run.score) == ({}, "dev/f1")


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "train", "step": 2, "lo',
        '{"event": "train", "step": 2, "loss": 7.0',
        "12",
        "[]",
        "null",
        "",
        "\xff\xfe",
        '{"step": 2, "loss": 7.0}',
        '{"event": ["train"], "step": 2, "loss": 7.0}',
        '{"event": "train", "loss": 7.0}',
        '{"event": "train", "step": null, "loss": 7.0}',
        '{"event": "train", "step": "2", "loss": 7.0}',
        '{"event": "train", "step": true, "loss": 7.0}',
        '{"event": "train", "step": 2, "loss": "7.0"}',
        '{"event": "train", "step": 2, "loss": true}',
        '{"event": "train", "step": 1' + 400 * "0" + "}",
    ],
)
def test_lines_that_are_no_records_are_passed_over(tmp_path, line):
    good = [json.dumps(train(step, loss=step / 4)) for step in (1, 3)]
    for lines in ([line, *good], [good[0], line, good[1]], [*good, line]):
        (tmp_path / "log.jsonl").write_bytes("\n".join(lines).encode("latin-1"))
        assert losses(tmp_path) == {1: 0.25, 3: 0.75}


@pytest.mark.parametrize("size", [1, 3, 64, 127, 10**6])
def test_lines_are_read_whole_wherever_the_blocks_end(tmp_path, monkeypatch, size):
    monkeypatch.setattr(run_logs, "_READ_AT_ONCE", size)
    folder = write_log(tmp_path / "run", [train(step, loss=step / 8, note="é\n" * step) for step in range(20)])
    assert losses(folder) == {step: step / 8 for step in range(20)}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log(tmp_path):
    peaks = []
    for number in (20_000, 80_000):
        with open(tmp_path / "log.jsonl", "w") as log:
            for step in range(number):
                log.write(json.dumps(train(100 * step, loss=1 / (step + 1), learning_rate=1e-5)) + "\n")
        tracemalloc.start()
        run = read_run(tmp_path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        steps, values = run.training["loss"].points()
        assert 1000 <= len(steps) <= 2000
        assert steps.mean() == pytest.approx(50 * (number - 1), rel=0.01)
        assert np.isfinite(values).all()
    assert peaks[1] < 1.2 * peaks[0] + 1e6


# Runs, trials, names, scores.


def make_grid(folder, trials):
    for name, records in trials.items():
        write_log(folder / "trials" / name, records)
    return folder


def test_the_trials_of_a_run_are_read_in_their_order(tmp_path):
    begun = [train(1, loss=1.0)]
    grid = make_grid(tmp_path / "grid", {"seed_10": begun, "seed_9": begun, "seed_1": begun, "seed_11": []})
    (grid / "trials" / "seed_11" / "log.jsonl").touch()
    (grid / "trials" / "seed_12").mkdir()
    single = write_log(tmp_path / "single", begun)
    runs = read_runs([single, grid, tmp_path / "." / "single", grid / "trials" / "seed_9"])
    assert [run.path.name for run in runs] == ["single", "seed_1", "seed_9", "seed_10"]


@pytest.mark.parametrize("results", [{"score": "dev/f1"}, {"score": "dev/unknown"}, {"score": ["dev/f1"]}, [], None])
def test_the_score_is_that_of_the_run(tmp_path, results):
    records = [evaluation(1, accuracy=0.5, f1=0.25)]
    grid = make_grid(tmp_path / "grid", {"seed_1": records})
    single = write_log(tmp_path / "single", records)
    if results is not None:
        for folder in (grid, single):
            write_json(folder / "results.json", results)
    expected = "dev/f1" if results == {"score": "dev/f1"} else "dev/accuracy"
    assert [run.score for run in read_runs([grid, single])] == [expected, expected]


def test_metrics_without_a_split(tmp_path):
    folder = write_log(tmp_path / "run", [{"event": "evaluation", "step": 1, "accuracy": 0.5, "recall": 0.25}])
    assert read_run(folder).best == {"accuracy": (1, 0.5), "recall": (1, 0.25)}


def test_a_given_score(tmp_path):
    folders = [
        write_log(tmp_path / "a", [evaluation(1, f1=0.5, accuracy=0.25)]),
        write_log(tmp_path / "b", [evaluation(1, accuracy=0.5)]),
        write_log(tmp_path / "c", [train(1, loss=1.0)]),
    ]
    runs = read_runs(folders)
    assert choose_scores(runs) == ["dev/f1", "dev/accuracy", None]
    assert choose_scores(runs, "dev/accuracy") == ["dev/accuracy", "dev/accuracy", None]
    with pytest.raises(ValueError, match="--score=f1 is in no log; the logs have dev/accuracy, dev/f1"):
        choose_scores(runs, "f1")
    with pytest.raises(ValueError, match="the logs have no evaluations"):
        choose_scores(runs[2:], "dev/f1")


def test_what_cannot_be_read_is_refused(tmp_path):
    write_log(tmp_path / "runs" / "a", [train(1, loss=1.0)])
    write_log(tmp_path / "resumed", [{"event": "resumed", "step": 1}])
    (make_grid(tmp_path / "grid", {"seed_1": []}) / "trials" / "seed_1" / "log.jsonl").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name, error, message in (
        ("absent", FileNotFoundError, "there is no folder .*absent"),
        ("file", FileNotFoundError, "file is no folder"),
        ("empty", FileNotFoundError, "it has no log.jsonl, nor has a folder in its trials/$"),
        ("runs", FileNotFoundError, "perhaps some of these are meant: .*/runs/a$"),
        ("resumed", ValueError, "resumed/log.jsonl has no record of training or evaluation"),
        ("grid", ValueError, "none of the 1 trials in .*grid has a record"),
    ):
        with pytest.raises(error, match=message):
            read_runs([tmp_path / "runs" / "a", tmp_path / name])


@pytest.mark.parametrize(
    "paths, names",
    [
        (["runs/rte"], ["rte"]),
        (["runs/rte", "runs/cola"], ["rte", "cola"]),
        (["runs/rte", "runs/rte/trials/seed_1"], ["rte", "rte/trials/seed_1"]),
        (["a/runs/trials/seed_1", "b/runs/trials/seed_1"], ["a", "b"]),
        (["r/a/t/seed_1", "r/a/t/seed_2", "r/b/t/seed_1"], ["a/t/seed_1", "a/t/seed_2", "b/t/seed_1"]),
        (["x/runs", "x/b/runs"], ["runs", "b/runs"]),
        ([f"{80 * 'r'}_1", f"{80 * 'r'}_2"], [f"{30 * 'r'}…{27 * 'r'}_1", f"{30 * 'r'}…{27 * 'r'}_2"]),
        ([f"{40 * 'r'}{n}{40 * 'r'}" for n in (1, 2)], [f"{40 * 'r'}{n}{40 * 'r'}" for n in (1, 2)]),
    ],
)
def test_names_are_what_distinguishes_the_paths(tmp_path, paths, names):
    assert distinct_names([tmp_path / path for path in paths]) == names
