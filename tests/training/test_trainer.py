import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.run_dir import RunDirectory
from keras_bert.training.schedule import WarmupSchedule
from keras_bert.training.trainer import Trainer
from keras_bert.training.trainer_settings import TrainerSettings
from keras_bert.training.training_checkpoints import TrainingCheckpoints
from tests.toys import toy_classifier
from tests.training.test_step import batches_for, difference
from tests.training.tiny_model import TinyModel, tiny_batches

STEPS = 30


class Stopped(Exception):
    pass


def train(folder, stop_at=None, scores=None, model=None, batches=None, **arguments):
    """Trains a model with dropout; the evaluation may stop it, or return the given scores."""
    model = model or TinyModel()
    evaluations = []

    def evaluate():
        evaluations.append([weight.numpy() for weight in model.weights])
        if len(evaluations) == stop_at:
            raise Stopped
        return {"dev/accuracy": scores[len(evaluations) - 1] if scores else len(evaluations) / 10, "dev/loss": 1.0}

    defaults = {"evaluate_every": 10, "score": "dev/accuracy", "checkpoint_every": 7, "log_every": 5}
    settings = TrainerSettings(STEPS, **{**defaults, **arguments})
    optimizer = BertAdamW(WarmupSchedule(1e-3, STEPS))
    trainer = Trainer(model, optimizer, RunDirectory(folder, {"toy": 1}), settings, evaluate=evaluate)
    result = trainer.train(batches or tiny_batches())
    return result, [weight.numpy() for weight in model.weights], evaluations, trainer


def test_resumes_an_interrupted_run_exactly(tmp_path):
    whole, weights, _, _ = train(tmp_path / "whole")
    with pytest.raises(Stopped):
        train(tmp_path / "parts", stop_at=2)
    resumed, resumed_weights, _, _ = train(tmp_path / "parts")
    assert difference(weights, resumed_weights) == 0  # with dropout, at update 14 and not at an epoch's end
    assert resumed.step == whole.step == STEPS
    log = RunDirectory(tmp_path / "parts", {"toy": 1}).read_log()
    assert {"event": "resumed", "step": 14} in log
    assert resumed.seconds > 0
    last = [
        [
            record["loss"]
            for record in RunDirectory(tmp_path / run, {"toy": 1}).read_log()
            if record["event"] == "train"
        ][-1]
        for run in ("whole", "parts")
    ]
    assert last[0] == last[1]


def test_keeps_the_best_weights_if_a_resumed_run_scores_otherwise(tmp_path, monkeypatch):
    """The process is killed after a new best and before a checkpoint refers to it."""
    save = TrainingCheckpoints.save

    def save_or_stop(checkpoints, iterator, state):
        if state["step"] == 21:
            raise Stopped
        save(checkpoints, iterator, state)

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(TrainingCheckpoints, "save", save_or_stop)
        train(tmp_path / "run", scores=[0.7, 0.9])
    result, weights, _, trainer = train(tmp_path / "run", scores=[0.1, 0.1])
    assert (result.best_step, result.best_metrics["dev/accuracy"]) == (10, 0.7)
    _, _, evaluations, _ = train(tmp_path / "whole")
    assert difference(weights, evaluations[0]) == 0
    assert [path.name for path in trainer.checkpoints.path.glob("best_*")] == ["best_00000010"]


def test_a_finished_run_does_not_train_again(tmp_path):
    _, weights, _, _ = train(tmp_path / "run")
    result, again, evaluations, _ = train(tmp_path / "run")
    assert difference(weights, again) == 0
    assert result.best_step == 30
    assert not evaluations


def test_restores_the_best_weights(tmp_path):
    result, weights, evaluations, trainer = train(tmp_path / "run", scores=[0.2, 0.9, 0.4])
    assert (result.best_step, result.best_metrics["dev/accuracy"]) == (20, 0.9)
    assert difference(weights, evaluations[1]) == 0
    assert difference(weights, evaluations[2]) > 0
    assert sorted(path.name for path in trainer.checkpoints.path.iterdir()) == [
        "best_00000020",
        "step_00000028",
        "step_00000030",
    ]


@pytest.mark.parametrize(
    ("scores", "best"), [([0.5, 0.5, 0.5], 10), ([float("nan"), 0.1, 0.2], 30), ([0.3, float("nan"), 0.1], 10)]
)
def test_ties_and_scores_that_are_nan(tmp_path, scores, best):
    assert train(tmp_path / "run", scores=scores)[0].best_step == best


def test_without_a_score_keeps_the_last_weights(tmp_path):
    result, weights, evaluations, _ = train(tmp_path / "run", score=None, scores=[0.9, 0.2, 0.1])
    assert result.best_step == 30
    assert difference(weights, evaluations[2]) == 0


@pytest.mark.parametrize("arguments", [{"steps_per_execution": 1}, {"steps_per_execution": 3, "checkpoint_every": 30}])
def test_calls_and_checkpoints_do_not_change_the_weights(tmp_path, arguments):
    _, weights, _, _ = train(tmp_path / "one")
    _, others, _, _ = train(tmp_path / "other", **arguments)
    assert difference(weights, others) == 0


def test_log_and_tensorboard(tmp_path):
    classifier = toy_classifier()
    _, _, _, trainer = train(tmp_path / "run", model=classifier, batches=batches_for(classifier), progress=True)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    trained = [record for record in log if record["event"] == "train"]
    assert [record["step"] for record in trained] == [5, 10, 15, 20, 25, 30]
    rates = [record["learning_rate"] for record in trained]
    np.testing.assert_allclose(rates, [float(trainer.optimizer._learning_rate(step)) for step in range(5, 31, 5)])
    for record in trained:
        assert 0 < record["padding"] < 0.6
        assert record["tokens_per_second"] > record["examples_per_second"] > 0
        assert record["gradient_norm"] > 0
    assert [record for record in log if record["event"] == "evaluation"] == [
        {"event": "evaluation", "step": 10 * i, "dev/accuracy": i / 10, "dev/loss": 1.0} for i in (1, 2, 3)
    ]
    tags = set()
    for file in (tmp_path / "run" / "tensorboard").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            tags |= {value.tag for value in event.summary.value}
    assert {"train/loss", "train/learning_rate", "dev/accuracy"} <= tags


def test_refuses_a_checkpoint_of_another_model(tmp_path):
    train(tmp_path / "run")
    run = RunDirectory(tmp_path / "run", {"toy": 1})
    trainer = Trainer(TinyModel("mixed_float16"), BertAdamW(1e-3), run, TrainerSettings(STEPS))
    with pytest.raises(ValueError, match="does not fit this model and optimizer"):
        trainer.train(tiny_batches())


def test_ignores_an_unfinished_checkpoint(tmp_path):
    _, _, _, trainer = train(tmp_path / "run")
    (trainer.checkpoints.path / "unfinished_step_00000099").mkdir()
    assert trainer.checkpoints.newest() == 30


def test_a_score_needs_an_evaluation(tmp_path):
    with pytest.raises(ValueError, match="need the argument `evaluate`"):
        settings = TrainerSettings(9, score="dev/accuracy")
        Trainer(TinyModel(), BertAdamW(), RunDirectory(tmp_path / "run", {}), settings)


def test_the_evaluation_must_return_the_score(tmp_path):
    with pytest.raises(KeyError, match="does not return the score 'dev/f1'; it returns"):
        train(tmp_path / "run", score="dev/f1")
