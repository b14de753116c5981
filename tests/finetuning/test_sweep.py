import math

import pytest

from keras_bert.finetuning.sweep import best_trial, run_trials, summarize_trials, trial_folder


def test_every_rate_with_every_seed_and_finished_trials_are_not_run_again(tmp_path):
    calls = []

    def train(run, rate, seed):
        calls.append((run.path.name, rate, seed))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {"score": rate * seed}

    arguments = (tmp_path / "run", {"task": "rte"}, [5e-5, 3e-5], [1, 2], train)
    with pytest.raises(KeyboardInterrupt):
        run_trials(*arguments)
    trials = run_trials(*arguments)
    assert [call[0] for call in calls] == [
        "learning_rate_5e-05_seed_1",
        "learning_rate_5e-05_seed_2",
        "learning_rate_3e-05_seed_1",
        "learning_rate_3e-05_seed_1",
        "learning_rate_3e-05_seed_2",
    ]
    assert [(trial["learning_rate"], trial["seed"]) for trial in trials] == [(5e-5, 1), (5e-5, 2), (3e-5, 1), (3e-5, 2)]
    assert trial_folder(tmp_path / "run", trials[2]).is_dir()


def test_a_single_trial_is_the_run_itself(tmp_path):
    trials = run_trials(tmp_path / "run", {}, [1e-4], [7], lambda run, rate, seed: {"score": 1.0})
    assert trial_folder(tmp_path / "run", trials[0]) == tmp_path / "run"


def test_another_grid_in_the_same_folder_is_refused(tmp_path):
    run_trials(tmp_path / "run", {}, [1e-4], [7], lambda run, rate, seed: {"score": 1.0})
    with pytest.raises(FileExistsError, match="learning_rates"):
        run_trials(tmp_path / "run", {}, [1e-4, 1e-5], [7], lambda run, rate, seed: {"score": 1.0})


@pytest.mark.parametrize(("rates", "seeds"), [([], [1]), ([1e-4], []), ([1e-4, 1e-4], [1])])
def test_empty_and_repeated(tmp_path, rates, seeds):
    with pytest.raises(ValueError, match=r"at least one .* and none twice"):
        run_trials(tmp_path / "run", {}, rates, seeds, lambda run, rate, seed: {"score": 1.0})


def test_summary_and_best():
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


def test_a_trial_whose_score_is_no_number_is_counted_and_not_averaged(tmp_path):
    def train(run, rate, seed):
        return {"score": math.nan if seed == 1 else 0.5}

    trials = run_trials(tmp_path / "run", {}, [1e-4], [1, 2], train)
    assert [trial["score"] for trial in trials] == [None, 0.5]
    assert best_trial(trials)["seed"] == 2
    (summary,) = summarize_trials(trials)
    assert (summary["trials"], summary["without_score"], summary["mean"]) == (2, 1, 0.5)
    assert summarize_trials(trials[:1])[0]["maximum"] is None


def test_a_finished_trial_keeps_no_checkpoints(tmp_path):
    def train(run, rate, seed):
        (run.path / "checkpoints").mkdir()
        return {"score": seed}

    trials = run_trials(tmp_path / "run", {}, [1.00000001e-3, 1e-3], [1], train)
    assert not any((trial_folder(tmp_path / "run", trial) / "checkpoints").exists() for trial in trials)


def test_the_chief_decides_whether_a_trial_is_finished(tmp_path):
    run_trials(tmp_path / "run", {}, [1e-4], [7], lambda run, rate, seed: {"score": 1.0})
    other = {"is_chief": False, "broadcast_from_chief": lambda value: 1.0}
    assert run_trials(tmp_path / "run", {}, [1e-4], [7], None, **other)[0]["score"] == 1.0
    (tmp_path / "run" / "trial.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"does not see .*trial\.json, which the chief does"):
        run_trials(tmp_path / "run", {}, [1e-4], [7], None, **other)
