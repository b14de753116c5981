"""Training runs over learning rates and seeds, and the choice of the best (paper, section 4.1)."""

import math
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from keras_bert.export.export_options import EXPORT_FORMATS
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.run_models import find_trial_problem
from keras_bert.io.atomic_write import write_json
from keras_bert.training.run_dir import RunDirectory, read_json_object
from keras_bert.training.strategy import broadcast_from_chief, is_chief
from keras_bert.training.training_checkpoints import CHECKPOINTS_NAME
from keras_bert.typing import PathLike

_TRIAL_RESULT_NAME = "trial.json"
Trial = dict[str, Any]


def run_trials(
    run_dir: PathLike,
    configuration: Mapping[str, Any],
    recipe: FineTuningRecipe,
    train_trial: Callable[[RunDirectory, FineTuningRecipe], Trial],
    strategy: tf.distribute.Strategy,
) -> list[Trial]:
    """Trains with every learning rate and seed of a recipe; finished trials are not run again.

    A single trial runs in `run_dir` itself, several in `trials/` below it. All workers call this; only the chief
    writes, and decides which trials are finished. `train_trial` returns a JSON-serializable dict with `score`; higher
    is better.
    """
    # Locks the folder of the whole run before any trial begins.
    whole = _claim(run_dir, {**configuration, **recipe.configuration()}, strategy)
    trials = recipe.trials()
    results = []
    for number, trial in enumerate(trials, 1):
        run = whole
        if len(trials) > 1:
            logging.info(
                "trial %d of %d: learning rate %g, seed %d", number, len(trials), trial.learning_rate, trial.seed
            )
            folder = whole.path / "trials" / f"learning_rate_{trial.learning_rate!r}_seed_{trial.seed}"
            run = _claim(folder, {**configuration, **trial.configuration()}, strategy)
        result = _result(run, trial, train_trial, strategy)
        results.append({**result, "folder": run.path.relative_to(whole.path).as_posix()})
        if run is not whole and run.writer:
            # A finished trial is never resumed, and many checkpoints would fill the disk.
            shutil.rmtree(run.path / CHECKPOINTS_NAME, ignore_errors=True)
    return results


def _claim(path: PathLike, configuration: Mapping[str, Any], strategy: tf.distribute.Strategy) -> RunDirectory:
    """Creates the folder of a run as the chief; on other workers, checks that they were given the same settings."""
    if is_chief(strategy):
        run = RunDirectory(path, configuration)
        broadcast_from_chief(strategy, [1])
        return run
    broadcast_from_chief(strategy, [1])
    run = RunDirectory(path, configuration, writer=False)
    if not run.existed:
        raise FileNotFoundError(
            f"this worker does not see {run.path}, which the chief has made: the run's folder must be on storage that "
            "all workers share, under the same path"
        )
    return run


def _result(
    run: RunDirectory,
    trial: FineTuningRecipe,
    train_trial: Callable[[RunDirectory, FineTuningRecipe], Trial],
    strategy: tf.distribute.Strategy,
) -> Trial:
    file = run.path / _TRIAL_RESULT_NAME
    # The chief decides for all: a worker that sees the file late would train alone.
    if broadcast_from_chief(strategy, [file.is_file()])[0]:
        if not file.is_file():
            raise FileNotFoundError(f"this worker does not see {file}, which the chief does; start the job again")
        logging.info("%s is finished", run.path)
        return read_json_object(file, find_trial_problem)
    result = {"learning_rate": trial.learning_rate, "seed": trial.seed, **train_trial(run, trial)}
    if not run.writer:
        return result
    write_json(file, result, overwrite=True)
    return read_json_object(file, find_trial_problem)


def best_trial(trials: Sequence[Trial]) -> Trial:
    """Returns the trial with the highest score, the first one on a tie; a score of None is the lowest."""
    return max(trials, key=lambda trial: -math.inf if trial["score"] is None else trial["score"])


def summarize_trials(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Statistics of the scores by learning rate, for `results.json`; None where there are too few scores."""
    summaries = []
    for rate in dict.fromkeys(trial["learning_rate"] for trial in trials):
        rate_scores = [trial["score"] for trial in trials if trial["learning_rate"] == rate]
        scores = [score for score in rate_scores if score is not None]
        summaries.append(
            {
                "learning_rate": rate,
                "trials": len(rate_scores),
                "without_score": len(rate_scores) - len(scores),
                "mean": statistics.fmean(scores) if scores else None,
                "median": statistics.median(scores) if scores else None,
                "standard_deviation": statistics.stdev(scores) if len(scores) > 1 else None,
                "minimum": min(scores, default=None),
                "maximum": max(scores, default=None),
            }
        )
    return summaries


def format_results(results: Mapping[str, Any]) -> str:
    """Formats a summary of what `fine_tune` returned: the scores of all trials, and where the outputs are."""
    lines = []
    if "trials" in results:
        best = results["best"]
        lines.append(f"{'learning rate':<15}{'seed':>6}{'best step':>11}  {results['score']}")
        for trial in results["trials"]:
            score = "not a number" if trial["score"] is None else f"{trial['score']:.4f}"
            mark = "  best" if trial == best and len(results["trials"]) > 1 else ""
            lines.append(f"{trial['learning_rate']:<15g}{trial['seed']:>6}{trial['best_step']:>11}  {score}{mark}")
    lines += [f"{name:<32}{value:.4f}" for name, value in results.get("evaluation", {}).items()]
    outputs = {"model": [results["model"]], "predictions": results["predictions"]}
    outputs |= {format: results[format] for format in EXPORT_FORMATS if format in results}
    lines += [f"{name:<15}{path}" for name, paths in outputs.items() for path in paths]
    return "\n".join(lines)
