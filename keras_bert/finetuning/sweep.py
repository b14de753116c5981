"""Several trainings of one model, by learning rate and seed, and the choice of the best (paper, section 4.1)."""

import json
import math
import shutil
import statistics
from pathlib import Path

from absl import logging

from keras_bert.io.atomic_write import write_json
from keras_bert.training.run_dir import RunDirectory
from keras_bert.training.training_checkpoints import CHECKPOINTS_NAME

_TRIAL_RESULT_NAME = "trial.json"


def run_trials(run_dir, configuration, learning_rates, seeds, train_trial, is_chief=True, broadcast_from_chief=float):
    """Trains with every learning rate and every seed; trials that are finished are not run again.

    The paper picks the best learning rate on the development set, and for its large model the best of several random
    restarts (another order of the data, another initial head).

    Args:
        run_dir: str or Path. A single trial is run in this folder itself, several in `trials/` below it.
        configuration: dict fit for JSON: what all trials have in common.
        learning_rates: list of float.
        seeds: list of int.
        train_trial: function of a `RunDirectory`, a learning rate and a seed. It returns a dict fit for JSON with
            `score`, of which more is better.
        is_chief: bool. Whether this process is the one that writes; of several workers only the first is.
        broadcast_from_chief: function of a number that all workers call; it gives each of them the chief's. With a
        single
            process that is its own.

    Returns:
        list of dict, one a trial: what `train_trial` returned (numbers that are not finite as None), with
        `learning_rate`, `seed` and `folder` (str, relative to `run_dir`).

    Raises:
        FileExistsError: if the folder belongs to a run with another configuration, which of several workers those see
            that were given other values than the chief.
        FileNotFoundError: if a worker does not see the folder that the chief has made.
        ValueError: if there is no learning rate or no seed, or one occurs twice.

    Example:

    >>> trials = run_trials(tempfile.mkdtemp() + "/run", {}, [1e-3, 1e-4], [1], lambda run, rate, seed: {"score": rate})
    >>> [trial["score"] for trial in trials]
    [0.001, 0.0001]
    """
    for name, values in (("learning rate", learning_rates), ("seed", seeds)):
        if not values or len(set(values)) < len(values):
            raise ValueError(f"there must be at least one {name} and none twice, got {list(values)}")
    # The folder of the whole run is claimed before any trial begins.
    of_all = {**configuration, "learning_rates": learning_rates, "seeds": seeds}
    whole = _claim(run_dir, of_all, is_chief, broadcast_from_chief)
    trials = [(rate, seed) for rate in learning_rates for seed in seeds]
    results = []
    for number, (rate, seed) in enumerate(trials, 1):
        run = whole
        if len(trials) > 1:
            logging.info("trial %d of %d: learning rate %g, seed %d", number, len(trials), rate, seed)
            folder = whole.path / "trials" / f"learning_rate_{rate!r}_seed_{seed}"
            of_trial = {**configuration, "learning_rates": [rate], "seeds": [seed]}
            run = _claim(folder, of_trial, is_chief, broadcast_from_chief)
        result = _result(run, train_trial, rate, seed, broadcast_from_chief)
        results.append({**result, "folder": run.path.relative_to(whole.path).as_posix()})
        if run is not whole and is_chief:
            # Nobody resumes a finished trial, and many of them would fill the disk.
            shutil.rmtree(run.path / CHECKPOINTS_NAME, ignore_errors=True)
    return results


def _claim(path, configuration, is_chief, broadcast_from_chief):
    """The folder of a run: the chief makes it its own, then the others look whether they were asked for the same."""
    if is_chief:
        run = RunDirectory(path, configuration)
        broadcast_from_chief(1)
        return run
    broadcast_from_chief(1)
    run = RunDirectory(path, configuration, writer=False)
    if not run.existed:
        raise FileNotFoundError(
            f"this worker does not see {run.path}, which the chief has made: the run's folder must lie on storage that "
            "all workers share, under the same path"
        )
    return run


def _result(run, train_trial, rate, seed, broadcast_from_chief):
    file = run.path / _TRIAL_RESULT_NAME
    # The chief decides for all: were one worker to see the file late, it would train alone.
    if broadcast_from_chief(file.is_file()):
        if not file.is_file():
            raise FileNotFoundError(f"this worker does not see {file}, which the chief does; start the job again")
        logging.info("%s is finished", run.path)
        return json.loads(file.read_text(encoding="utf-8"))
    result = {"learning_rate": rate, "seed": seed, **train_trial(run, rate, seed)}
    if not run.writer:
        return result
    write_json(file, result, overwrite=True)
    return json.loads(file.read_text(encoding="utf-8"))


def best_trial(trials):
    """The trial with the greatest score; the first of equals, and one without a score last.

    Args:
        trials: list of dict with `score`, None where it is not a number.

    Returns:
        dict.

    Example:

    >>> best_trial([{"score": 0.5, "seed": 1}, {"score": 0.7, "seed": 2}, {"score": 0.7, "seed": 3}])["seed"]
    2
    """
    return max(trials, key=lambda trial: -math.inf if trial["score"] is None else trial["score"])


def summarize_trials(trials):
    """What the trials of each learning rate came to.

    Args:
        trials: list of dict with `learning_rate` and `score`.

    Returns:
        list of dict, one a learning rate: `learning_rate`, `trials` (their number), `without_score` (how many of them
        have None for a score), and of the other scores `mean`, `median`, `standard_deviation` (of the sample),
        `minimum` and `maximum`, each None where there are too few.

    Example:

    >>> summary = summarize_trials([{"learning_rate": 5e-5, "score": 0.5}, {"learning_rate": 5e-5, "score": 0.75}])
    >>> summary[0]["mean"], summary[0]["maximum"]
    (0.625, 0.75)
    """
    summaries = []
    for rate in dict.fromkeys(trial["learning_rate"] for trial in trials):
        of_rate = [trial["score"] for trial in trials if trial["learning_rate"] == rate]
        scores = [score for score in of_rate if score is not None]
        summaries.append(
            {
                "learning_rate": rate,
                "trials": len(of_rate),
                "without_score": len(of_rate) - len(scores),
                "mean": statistics.fmean(scores) if scores else None,
                "median": statistics.median(scores) if scores else None,
                "standard_deviation": statistics.stdev(scores) if len(scores) > 1 else None,
                "minimum": min(scores, default=None),
                "maximum": max(scores, default=None),
            }
        )
    return summaries


def trial_folder(run_dir, trial):
    """The folder of a trial.

    Args:
        run_dir: str or Path, of the whole run.
        trial: dict, from `run_trials`.

    Returns:
        Path.

    Example:

    >>> trial_folder("runs/rte", {"folder": "trials/learning_rate_5e-05_seed_1"}).as_posix()
    'runs/rte/trials/learning_rate_5e-05_seed_1'
    """
    return Path(run_dir) / trial["folder"]
