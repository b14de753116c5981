"""Reads the logs of runs for `tools.plot_run`, in memory that does not grow with them, and without TensorFlow."""

import contextlib
import json
import math
import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

LOSS_TERM = "loss/"  # begins the names of the terms of a loss that has several
_LOG_NAME, _RESULTS_NAME, _TRIALS_NAME = "log.jsonl", "results.json", "trials"
_TRAINING_SERIES = {"loss", "learning_rate", "gradient_norm", "examples_per_second", "tokens_per_second"}
_MOST_POINTS = 2000  # more than a panel has pixels
_PENDING_POINTS = 2**14  # added before they are averaged
_READ_AT_ONCE = 2**20  # bytes
_LONGEST_NAME = 60  # characters


class Curve:
    """Values over the updates, averaged where they are too many to be drawn.

    The updates are cut into ranges of equal width, and all values of a range become their mean. The width is 1 as long
    as that gives few enough points, and is doubled when it does not.

    Args:
        most_points: int.

    Attributes:
        width: int. Updates in a range.
    """

    def __init__(self, most_points=_MOST_POINTS):
        self.width = 1
        self._most_points = most_points
        self._steps, self._values = [], []
        # For each range: the number of values, the sum of their steps, the number and the sum of the finite ones.
        self._ranges = np.zeros([0, 4])

    def add(self, step, value):
        """Adds a value, in any order of the steps; NaN is one that is known not to be finite."""
        self._steps.append(step)
        self._values.append(value)
        if len(self._steps) >= _PENDING_POINTS:
            self._average()

    def points(self):
        """The points to be drawn, by ascending steps.

        Returns:
            A pair of float arrays [points]: steps and values. The value is NaN where none of a range is finite.
        """
        self._average()
        number, steps, finite, values = self._ranges.T
        return steps / number, np.divide(values, finite, out=np.full(len(values), math.nan), where=finite > 0)

    def _average(self):
        steps, values = np.array(self._steps, "float64"), np.array(self._values, "float64")
        self._steps, self._values = [], []
        finite = np.isfinite(values)
        new = np.stack([np.ones(len(steps)), steps, finite, np.where(finite, values, 0)], axis=1)
        rows = np.concatenate([self._ranges, new])
        middles = rows[:, 1] / rows[:, 0]
        places, range_of_row = np.unique(middles // self.width, return_inverse=True)
        while len(places) > self._most_points:
            self.width *= 2
            places, range_of_row = np.unique(middles // self.width, return_inverse=True)
        self._ranges = np.zeros([len(places), 4])
        np.add.at(self._ranges, range_of_row, rows)


class Run(NamedTuple):
    """What the log of a run holds.

    Attributes:
        path: Path of its folder.
        training: dict of name to `Curve`: loss, its terms (loss/...), learning_rate, gradient_norm,
            examples_per_second and tokens_per_second, as far as they were logged.
        evaluations: dict of name to `Curve`, one for each metric.
        best: dict of metric to the pair of step and value where it was best; without those that were never finite.
        score: str or None. The metric that the run was scored by, or the first one; None without evaluations.
    """

    path: Path
    training: dict
    evaluations: dict
    best: dict
    score: str | None


def read_run(path, lower_is_better=False):
    """Reads the log of a run.

    Args:
        path: str or Path. A folder with a `log.jsonl`.
        lower_is_better: bool. Whether the best of a metric is its least value. Of equals the first is the best, as it
            is for `Trainer`.

    Returns:
        `Run`.

    Raises:
        FileNotFoundError: if there is no log.
        ValueError: if the log has no record of training or evaluation.
    """
    path = Path(path)
    training, evaluations, best = {}, {}, {}
    covered = {"train": _CoveredSteps(), "evaluation": _CoveredSteps()}
    for event, step, record in _records_from_the_end(path / _LOG_NAME):
        if event not in covered or not covered[event].add(step):
            continue
        if event == "train":
            _add(training, step, _training_series(record))
        else:
            metrics = _metrics(record)
            _add(evaluations, step, metrics)
            _note_best(best, step, metrics, lower_is_better)
    if not training and not evaluations:
        raise ValueError(f"{path / _LOG_NAME} has no record of training or evaluation; nothing was trained yet")
    return Run(path, training, evaluations, best, _own_score(path, evaluations))


class _CoveredSteps:
    """The steps that later records tell of; a process that resumes a run logs some steps a second time."""

    def __init__(self):
        self._ranges = []  # one for each process: it logs every so many steps, from its first to its last

    def add(self, step):
        """Takes the step of the record before, and says whether no later record tells of it."""
        if any(low <= step <= high for low, high in self._ranges):
            return False
        if self._ranges and step < self._ranges[-1][0]:
            self._ranges[-1][0] = step
        else:
            self._ranges.append([step, step])
        return True


def _records_from_the_end(path):
    """The records of a log, the newest first, each with its event and step; lines without these are passed over."""
    for line in _lines_from_the_end(path):
        try:
            record = json.loads(line)
        except ValueError:  # the process that wrote the line was killed, or is writing it
            continue
        if isinstance(record, dict) and isinstance(record.get("event"), str):
            step = _number(record.pop("step", None))
            if step is not None and not math.isnan(step):
                yield record["event"], step, record


def _lines_from_the_end(path):
    with open(path, "rb") as file:
        position, rest = file.seek(0, os.SEEK_END), b""
        while position:
            size = min(_READ_AT_ONCE, position)
            position = file.seek(position - size)
            rest, *lines = (file.read(size) + rest).split(b"\n")
            yield from reversed(lines)
        yield rest


def _number(value):
    """A float, NaN if it is not finite, or None for what is no number."""
    if type(value) is float and math.isfinite(value):  # nearly all are
        return value
    if value is None:  # what JSON has for a number that is not finite
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    with contextlib.suppress(OverflowError):
        return float(value) if math.isfinite(value) else math.nan
    return math.nan


def _training_series(record):
    return _numbers((name, record[name]) for name in record if name in _TRAINING_SERIES or name.startswith(LOSS_TERM))


def _metrics(record):
    """Of the numbers of an evaluation those of a split, such as dev/accuracy, if any is named so; else all."""
    numbers = _numbers(record.items())
    return {name: number for name, number in numbers.items() if "/" in name} or numbers


def _numbers(items):
    return {name: number for name, value in items if (number := _number(value)) is not None}


def _add(curves, step, values):
    for name, value in values.items():
        if name not in curves:
            curves[name] = Curve()
        curves[name].add(step, value)


def _note_best(best, step, metrics, lower_is_better):
    for name, value in metrics.items():
        _, so_far = best.get(name, (step, value))
        # Of equals the first is the best, and records come newest first.
        if value <= so_far if lower_is_better else value >= so_far:  # false for NaN
            best[name] = (step, value)


def _own_score(path, evaluations):
    path = path.resolve()
    for folder in (path, *([path.parents[1]] if path.parent.name == _TRIALS_NAME else [])):
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):  # none yet, or of another program
            score = json.loads((folder / _RESULTS_NAME).read_bytes()).get("score")
            if score in evaluations:
                return score
    return next(iter(evaluations), None)


def read_runs(run_dirs, lower_is_better=False):
    """Reads the logs of runs, or of their trials.

    Args:
        run_dirs: list of str or Path. A folder that has no log of its own stands for its trials with records. A folder
            that is given twice is read once.
        lower_is_better: as for `read_run`.

    Returns:
        list of `Run`.

    Raises:
        FileNotFoundError: if there is no such folder, or no log in it.
        ValueError: if there is no record in a log.
    """
    runs = {}
    for folder in map(Path, run_dirs):
        trials = _trial_folders(folder)
        for path in trials or [folder]:
            if path.resolve() not in runs:
                # Of several trials the last may have just begun.
                with contextlib.suppress(ValueError) if trials else contextlib.nullcontext():
                    runs[path.resolve()] = read_run(path, lower_is_better)
        if not any(path.resolve() in runs for path in trials or [folder]):
            raise ValueError(f"none of the {len(trials)} trials in {folder} has a record of training or evaluation yet")
    return list(runs.values())


def _trial_folders(folder):
    """The folders of the trials in a folder that has no log of its own."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}" if not folder.exists() else f"{folder} is no folder")
    if (folder / _LOG_NAME).is_file():
        return []
    trials = [log.parent for log in folder.glob(f"{_TRIALS_NAME}/*/{_LOG_NAME}")]
    if not trials:
        inside = sorted(str(log.parent) for log in folder.glob(f"*/{_LOG_NAME}"))
        advice = f"; perhaps some of these are meant: {', '.join(inside[:5])}" if inside else ""
        raise FileNotFoundError(
            f"{folder} is not the folder of a run that has begun to train: it has no {_LOG_NAME}, nor has a folder in "
            f"its {_TRIALS_NAME}/{advice}"
        )
    return sorted(trials, key=_by_numbers)


def _by_numbers(path):
    """Puts seed_2 before seed_10."""
    return [int(part) if part.isdigit() else part for part in re.split("([0-9]+)", path.name)]


def choose_scores(runs, score=None):
    """The metric to be drawn of each run.

    Args:
        runs: list of `Run`.
        score: str or None. A metric as logged; None is each run's own.

    Returns:
        list of str or None, one for each run; None where the run has no evaluations, or not this metric.

    Raises:
        ValueError: if no run has the metric.
    """
    if score is None:
        return [run.score for run in runs]
    known = sorted({name for run in runs for name in run.evaluations})
    if score not in known:
        there_are = f"the logs have {', '.join(known)}" if known else "the logs have no evaluations"
        raise ValueError(f"--score={score} is in no log; {there_are}")
    return [score if score in run.evaluations else None for run in runs]


def distinct_names(paths):
    """What distinguishes paths: their parts without those with which all begin and end.

    Args:
        paths: list of Path, no two of them the same.

    Returns:
        list of str, no two of them the same.
    """
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    for _ in ("beginning", "end"):
        most = min(map(len, parts)) - 1  # so that something is left of each
        common = next((place for place in range(most) if len({path[place] for path in parts}) > 1), most)
        parts = [path[common:][::-1] for path in parts]
    names = ["/".join(path) for path in parts]
    ends = (_LONGEST_NAME // 2, _LONGEST_NAME // 2 - 1)
    short = [name if len(name) <= _LONGEST_NAME else f"{name[: ends[0]]}…{name[-ends[1] :]}" for name in names]
    return [brief if short.count(brief) == 1 else name for brief, name in zip(short, names, strict=True)]
