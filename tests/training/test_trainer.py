import numpy as np
import pytest
import tensorflow as tf

from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.run_dir import RunDirectory
from keras_bert.training.schedule import WarmupSchedule
from keras_bert.training.trainer import Trainer, TrainingDiverged, TrainingInterrupted
from keras_bert.training.trainer_settings import TrainerSettings
from keras_bert.training.training_checkpoints import TrainingCheckpoints
from tests.toys import toy_classifier
from tests.training.models import HAS_FLOAT16, tiny_batches, tiny_model
from tests.training.test_step import batches_for

needs_float16 = pytest.mark.skipif(not HAS_FLOAT16, reason="oneDNN is limited to instructions without float16")


class Stopped(Exception):
    pass


def make_trainer(folder, model=None, evaluate=None, should_stop=None, **settings):
    defaults = {"num_train_steps": 12, "checkpoint_every": 4, "steps_per_execution": 2, "log_every": 100}
    settings = TrainerSettings(**{**defaults, **settings})
    optimizer = BertAdamW(WarmupSchedule(1e-3, settings.num_train_steps))
    run_directory = RunDirectory(folder, {"toy": 1})
    return Trainer(
        model or tiny_model(), optimizer, run_directory, settings, evaluate=evaluate, should_stop=should_stop
    )


def train(folder, stop_at=None, scores=(0.1, 0.2, 0.3), model=None, batches=None, **settings):
    """Trains 30 steps; one of the three evaluations may stop it. Also returns the weights at every evaluation."""
    evaluations = []

    def evaluate():
        evaluations.append(trainer.model.get_weights())
        if len(evaluations) == stop_at:
            raise Stopped
        return {"dev/accuracy": scores[len(evaluations) - 1], "dev/loss": 1.0}

    defaults = {"num_train_steps": 30, "checkpoint_every": 7, "steps_per_execution": 20, "log_every": 5}
    defaults |= {"evaluate_every": 10, "score": "dev/accuracy"}
    trainer = make_trainer(folder, model, evaluate, **{**defaults, **settings})
    return trainer.train(batches or tiny_batches()), trainer, evaluations


def records(trainer, event):
    return [record for record in trainer.run_directory.read_log() if record["event"] == event]


def difference(one, other):
    return max(np.abs(a - b).max() for a, b in zip(one, other, strict=True))


def weight_difference(*trainers):
    return difference(*(trainer.model.get_weights() for trainer in trainers))


def test_resumes_an_interrupted_run_exactly(tmp_path):
    whole, one, _ = train(tmp_path / "whole")
    with pytest.raises(Stopped):
        train(tmp_path / "parts", stop_at=2)
    resumed, other, _ = train(tmp_path / "parts")
    assert weight_difference(one, other) == 0  # with dropout, from step 14, which is not at the end of an epoch
    assert resumed.step == whole.step == 30
    assert resumed.seconds > 0
    assert records(other, "resumed") == [{"event": "resumed", "step": 14}]
    assert records(one, "train")[-1]["loss"] == records(other, "train")[-1]["loss"]


@pytest.mark.slow
def test_resumes_a_run_with_adapters_exactly(tmp_path):
    def run(folder, **stop):
        model = toy_classifier(lora_rank=2, lora_dropout=0.1)
        return train(folder, model=model, batches=batches_for(model), **stop)

    _, one, evaluations = run(tmp_path / "whole")
    with pytest.raises(Stopped):
        run(tmp_path / "parts", stop_at=2)
    _, other, _ = run(tmp_path / "parts")
    assert weight_difference(one, other) == 0
    trainable = {id(variable) for variable in one.model.trainable_variables}
    moved = [(before != after).any() for before, after in zip(evaluations[0], evaluations[2], strict=True)]
    assert moved == [id(variable) in trainable for variable in one.model.weights]
    assert len(one.optimizer.variables) == 2 * len(trainable) + 1  # and the number of steps


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
    result, trainer, _ = train(tmp_path / "run", scores=[0.1, 0.1])
    assert (result.best_step, result.best_metrics["dev/accuracy"]) == (10, 0.7)
    _, _, evaluations = train(tmp_path / "whole")
    assert difference(trainer.model.get_weights(), evaluations[0]) == 0
    assert [path.name for path in trainer.checkpoints.path.glob("best_*")] == ["best_00000010"]


def test_restores_the_best_weights_and_does_not_train_again(tmp_path):
    result, trainer, evaluations = train(tmp_path / "run", scores=[0.2, 0.9, 0.4])
    assert (result.best_step, result.best_metrics["dev/accuracy"]) == (20, 0.9)
    assert difference(trainer.model.get_weights(), evaluations[1]) == 0
    assert difference(trainer.model.get_weights(), evaluations[2]) > 0
    files = ["best_00000020", "step_00000028", "step_00000030"]
    assert sorted(path.name for path in trainer.checkpoints.path.iterdir()) == files
    result, again, evaluations = train(tmp_path / "run")
    assert weight_difference(trainer, again) == 0
    assert (result.best_step, evaluations) == (20, [])


@pytest.mark.parametrize(
    ("scores", "best"), [([0.5, 0.5, 0.5], 10), ([float("nan"), 0.1, 0.2], 30), ([0.3, float("nan"), 0.1], 10)]
)
def test_first_best_score_is_kept_and_nan_ignored(tmp_path, scores, best):
    assert train(tmp_path / "run", scores=scores)[0].best_step == best


def test_keeps_the_last_weights_without_a_score(tmp_path):
    result, trainer, evaluations = train(tmp_path / "run", score=None, scores=[0.9, 0.2, 0.1])
    assert result.best_step == 30
    assert difference(trainer.model.get_weights(), evaluations[2]) == 0


@pytest.mark.parametrize("settings", [{"steps_per_execution": 1}, {"steps_per_execution": 3, "checkpoint_every": 30}])
def test_calls_and_checkpoints_do_not_change_the_weights(tmp_path, settings):
    _, one, _ = train(tmp_path / "one")
    _, other, _ = train(tmp_path / "other", **settings)
    assert weight_difference(one, other) == 0


def test_writes_log_and_tensorboard(tmp_path):
    classifier = toy_classifier()
    _, trainer, _ = train(tmp_path / "run", model=classifier, batches=batches_for(classifier), progress=True)
    trained = records(trainer, "train")
    assert [record["step"] for record in trained] == [5, 10, 15, 20, 25, 30]
    rates = [record["learning_rate"] for record in trained]
    np.testing.assert_allclose(rates, [float(trainer.optimizer._learning_rate(step)) for step in range(5, 31, 5)])
    for record in trained:
        assert 0 < record["padding"] < 0.6
        assert record["tokens_per_second"] > record["examples_per_second"] > 0
        assert record["gradient_norm"] > 0
    assert records(trainer, "evaluation") == [
        {"event": "evaluation", "step": 10 * i, "dev/accuracy": i / 10, "dev/loss": 1.0} for i in (1, 2, 3)
    ]
    tags = set()
    for file in (tmp_path / "run" / "tensorboard").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            tags |= {value.tag for value in event.summary.value}
    assert {"train/loss", "train/learning_rate", "dev/accuracy"} <= tags


def test_score_must_be_one_of_the_evaluation(tmp_path):
    with pytest.raises(ValueError, match="need the argument `evaluate`"):
        make_trainer(tmp_path / "none", score="dev/accuracy")
    with pytest.raises(KeyError, match="does not return the score 'dev/f1'; it returns"):
        train(tmp_path / "run", score="dev/f1")


def test_saves_when_asked_to_stop_and_resumes(tmp_path):
    whole = make_trainer(tmp_path / "whole")
    whole.train(tiny_batches())
    answers = iter([False, False, True])
    first = make_trainer(tmp_path / "parts", should_stop=lambda: next(answers))
    with pytest.raises(TrainingInterrupted, match=r"stopped at step 6 of 12. .* same command"):
        first.train(tiny_batches())
    assert first.checkpoints.newest() == 6
    second = make_trainer(tmp_path / "parts", should_stop=lambda: False)
    second.train(tiny_batches())
    assert weight_difference(whole, second) == 0


def test_a_request_to_stop_after_the_last_step_is_no_interruption(tmp_path):
    trainer = make_trainer(tmp_path / "run", steps_per_execution=12, checkpoint_every=12, should_stop=lambda: True)
    assert trainer.train(tiny_batches()).step == 12


def test_stops_without_better_scores_and_does_not_resume(tmp_path):
    scores = iter([0.5, 0.7, 0.6, 0.7, 0.9])
    settings = {"evaluate_every": 2, "score": "f1", "patience": 2}
    for _ in range(2):
        result = make_trainer(tmp_path / "run", evaluate=lambda: {"f1": next(scores)}, **settings).train(tiny_batches())
        assert (result.step, result.best_step) == (8, 4)


@pytest.mark.parametrize(("num_batches", "log_every"), [(5, 100), (4, 4)])
def test_stops_at_the_end_of_the_data_and_writes_one_record(tmp_path, num_batches, log_every):
    trainer = make_trainer(tmp_path / "run", log_every=log_every)
    assert trainer.train(tiny_batches().take(num_batches)).step == num_batches
    assert trainer.checkpoints.newest() == num_batches
    assert [record["step"] for record in records(trainer, "train")] == [num_batches]


def test_starts_a_new_pass_without_a_saved_position(tmp_path):
    trainer = make_trainer(tmp_path / "run", saves_data_position=False, should_stop=lambda: True)
    with pytest.raises(TrainingInterrupted):
        trainer.train(tiny_batches())
    again = make_trainer(tmp_path / "run", saves_data_position=False)
    # Ten batches are enough for the remaining ten steps only if a new pass starts.
    assert again.train(tiny_batches().take(10)).step == 12


def test_a_nonfinite_loss_stops_training_and_is_not_saved(tmp_path):
    trainer = make_trainer(tmp_path / "run")
    message = (
        r"stopped at step 6: .* is not finite \(loss terms: first (?:inf|nan), second (?:inf|nan)\)\. "
        r"The step was not applied.*newest checkpoint in .* is of step 4"
    )
    batches = tiny_batches().enumerate()
    with pytest.raises(TrainingDiverged, match=message):
        trainer.train(batches.map(lambda number, batch: (batch[0], tf.where(number < 5, batch[1], np.inf))))
    assert all(np.isfinite(weight).all() for weight in trainer.model.get_weights())
    assert trainer.checkpoints.newest() == 4
    assert trainer.optimizer.iterations.numpy() == 5
    log = trainer.run_directory.read_log()
    assert [(record["event"], record["step"]) for record in log] == [("train", 5), ("diverged", 6)]
    assert np.isfinite(log[0]["loss"])


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (None, r"step 1: the gradient of .*dense.*/kernel is not finite.*no checkpoint"),
        pytest.param(
            "mixed_float16", r"step 3: .*not finite", marks=needs_float16
        ),  # a smaller loss scale does not help
    ],
)
def test_a_nonfinite_gradient_stops_training(tmp_path, dtype, message):
    model = tiny_model(dtype)
    model.dense.bias.assign([float("nan"), 0.0])
    trainer = make_trainer(tmp_path / "run", model)
    if dtype is not None:
        trainer._step.loss_scale.factor.assign(4.0)
    with pytest.raises(TrainingDiverged, match=message):
        trainer.train(tiny_batches())


@needs_float16
def test_float16_skips_overflows_and_lowers_the_loss_scale(tmp_path):
    trainer = make_trainer(tmp_path / "run", tiny_model("mixed_float16"), log_every=1)
    scale = trainer._step.loss_scale
    scale.factor.assign(2.0**26)  # the first gradients overflow
    result = trainer.train(tiny_batches())
    skipped = sum(record["skipped"] for record in records(trainer, "train"))
    assert 0 < skipped < 12
    assert float(scale.factor) == 2.0 ** (26 - skipped)
    assert result.step == 12
    assert trainer.optimizer.iterations.numpy() == 12 - skipped
    assert all(np.isfinite(weight).all() for weight in trainer.model.get_weights())


@needs_float16
def test_resumes_the_loss_scale(tmp_path):
    first = make_trainer(tmp_path / "run", tiny_model("mixed_float16"), should_stop=lambda: True)
    first._step.loss_scale.factor.assign(4.0)
    with pytest.raises(TrainingInterrupted):
        first.train(tiny_batches())
    second = make_trainer(tmp_path / "run", tiny_model("mixed_float16"))
    second.train(tiny_batches())
    assert float(second._step.loss_scale.factor) == 4.0
