import math

import pytest
import tensorflow as tf

from keras_bert.finetuning import sweep
from keras_bert.finetuning.recipe import FineTuningRecipe
from keras_bert.finetuning.sweep import best_trial, format_results, summarize_trials

SINGLE = FineTuningRecipe()


def run_trials(run_dir, recipe, train_trial):
    return sweep.run_trials(run_dir, {"task": "rte"}, recipe, train_trial, tf.distribute.get_strategy())


def test_trains_with_every_rate_and_seed_and_skips_finished_trials(tmp_path):
    calls = []

    def train(run, recipe):
        calls.append(run.path.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {"score": recipe.learning_rate * recipe.seed}

    recipe = FineTuningRecipe(learning_rate=(5e-5, 3e-5), num_seeds=2)
    with pytest.raises(KeyboardInterrupt):
        run_trials(tmp_path / "run", recipe, train)
    trials = run_trials(tmp_path / "run", recipe, train)
    grid = [(5e-5, 1), (5e-5, 2), (3e-5, 1), (3e-5, 2)]
    names = [f"learning_rate_{rate}_seed_{seed}" for rate, seed in grid]
    assert calls == [*names[:3], *names[2:]]
    assert [(trial["learning_rate"], trial["seed"]) for trial in trials] == grid
    assert trials[2]["folder"] == "trials/learning_rate_3e-05_seed_1"


def test_folder_of_a_single_trial_is_that_of_the_run_and_of_no_other_grid(tmp_path):
    (trial,) = run_trials(tmp_path / "run", SINGLE, lambda run, recipe: {"score": 1.0})
    assert trial["folder"] == "."
    with pytest.raises(FileExistsError, match="learning_rate"):
        run_trials(tmp_path / "run", FineTuningRecipe(learning_rate=(1e-4, 1e-5)), None)


def test_summarizes_scores_by_learning_rate():
    scores = {(5e-5, 1): 0.5, (5e-5, 2): 0.7, (5e-5, 3): 0.9, (3e-5, 1): 0.8}
    trials = [{"learning_rate": rate, "seed": seed, "score": score} for (rate, seed), score in scores.items()]
    first, second = summarize_trials(trials)
    assert first["trials"] == 3
    assert (first["mean"], first["median"]) == pytest.approx((0.7, 0.7))
    assert first["standard_deviation"] == pytest.approx(0.2)
    assert (first["minimum"], first["maximum"]) == (0.5, 0.9)
    assert second["standard_deviation"] is None
    assert best_trial(trials)["seed"] == 3
    assert best_trial([{"score": None}, {"score": -1.0}])["score"] == -1.0


def test_scores_that_are_not_numbers_are_counted_and_not_averaged(tmp_path):
    recipe = FineTuningRecipe(num_seeds=2)
    scores = {1: math.nan, 2: 0.5}
    trials = run_trials(tmp_path / "run", recipe, lambda run, recipe: {"score": scores[recipe.seed], "best_step": 3})
    assert [trial["score"] for trial in trials] == [None, 0.5]
    assert best_trial(trials)["seed"] == 2
    (summary,) = summarize_trials(trials)
    assert (summary["trials"], summary["without_score"], summary["mean"]) == (2, 1, 0.5)
    assert summarize_trials(trials[:1])[0]["maximum"] is None
    results = {"trials": trials, "best": trials[1], "score": "dev/f1", "model": "m"}
    results |= {"predictions": [], "saved_model": []}
    assert format_results(results).splitlines() == [
        "learning rate    seed  best step  dev/f1",
        "5e-05               1          3  not a number",
        "5e-05               2          3  0.5000  best",
        "model          m",
    ]


def test_finished_trials_keep_no_checkpoints(tmp_path):
    def train(run, recipe):
        (run.path / "checkpoints").mkdir()
        return {"score": recipe.seed}

    trials = run_trials(tmp_path / "run", FineTuningRecipe(learning_rate=(1.00000001e-3, 1e-3)), train)
    assert not any((tmp_path / "run" / trial["folder"] / "checkpoints").exists() for trial in trials)


def test_chief_decides_whether_a_trial_is_finished(tmp_path, monkeypatch):
    run_trials(tmp_path / "run", SINGLE, lambda run, recipe: {"score": 1.0})
    monkeypatch.setattr(sweep, "is_chief", lambda strategy: False)
    monkeypatch.setattr(sweep, "broadcast_from_chief", lambda strategy, values: [1.0])
    assert run_trials(tmp_path / "run", SINGLE, None)[0]["score"] == 1.0
    (tmp_path / "run" / "trial.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"does not see .*trial\.json, which the chief does"):
        run_trials(tmp_path / "run", SINGLE, None)
