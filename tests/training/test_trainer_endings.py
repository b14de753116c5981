"""Training that ends early: on request, without better scores, at the end of the data, or when it diverges."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.run_dir import RunDirectory
from keras_bert.training.trainer import Trainer, TrainingDiverged, TrainingInterrupted
from keras_bert.training.trainer_settings import TrainerSettings
from tests.training.test_step import difference
from tests.training.tiny_model import HAS_FLOAT16, TinyModel, tiny_batches

STEPS = 12


needs_float16 = pytest.mark.skipif(not HAS_FLOAT16, reason="oneDNN is limited to instructions without float16")


def make_trainer(folder, model=None, **arguments):
    defaults = {"checkpoint_every": 4, "steps_per_execution": 2, "log_every": 100}
    of_trainer = {name: arguments.pop(name) for name in ("evaluate", "should_stop") if name in arguments}
    settings = TrainerSettings(STEPS, **{**defaults, **arguments})
    return Trainer(model or TinyModel(), BertAdamW(1e-3), RunDirectory(folder, {}), settings, **of_trainer)


def weights_of(trainer):
    return [weight.numpy() for weight in trainer.model.weights]


def test_saves_when_asked_to_stop_and_resumes(tmp_path):
    whole = make_trainer(tmp_path / "whole")
    whole.train(tiny_batches())
    answers = iter([False, False, True])
    first = make_trainer(tmp_path / "parts", should_stop=lambda: next(answers))
    with pytest.raises(TrainingInterrupted, match=f"stopped at step 6 of {STEPS}. .* same command"):
        first.train(tiny_batches())
    assert first.checkpoints.newest() == 6
    second = make_trainer(tmp_path / "parts", should_stop=lambda: False)
    second.train(tiny_batches())
    assert difference(weights_of(whole), weights_of(second)) == 0


def test_a_request_to_stop_at_the_end_is_no_interruption(tmp_path):
    trainer = make_trainer(
        tmp_path / "run", steps_per_execution=STEPS, checkpoint_every=STEPS, should_stop=lambda: True
    )
    assert trainer.train(tiny_batches()).step == STEPS


def test_stops_without_better_scores_and_does_not_resume(tmp_path):
    scores = iter([0.5, 0.7, 0.6, 0.7, 0.9])
    arguments = {"evaluate": lambda: {"f1": next(scores)}, "evaluate_every": 2, "score": "f1", "patience": 2}
    result = make_trainer(tmp_path / "run", **arguments).train(tiny_batches())
    assert (result.step, result.best_step) == (8, 4)
    again = make_trainer(tmp_path / "run", **arguments).train(tiny_batches())
    assert (again.step, again.best_step) == (8, 4)


def test_stops_at_the_end_of_the_data(tmp_path):
    trainer = make_trainer(tmp_path / "run")
    result = trainer.train(tiny_batches().take(5))
    assert result.step == 5
    assert trainer.checkpoints.newest() == 5
    log = trainer.run_directory.read_log()
    assert [record["step"] for record in log if record["event"] == "train"] == [5]


def test_writes_one_record_if_the_data_end_at_a_record(tmp_path):
    trainer = make_trainer(tmp_path / "run", log_every=4)
    trainer.train(tiny_batches().take(4))
    log = trainer.run_directory.read_log()
    assert [record["step"] for record in log if record["event"] == "train"] == [4]


def test_without_a_saved_position_starts_a_new_pass(tmp_path):
    answers = iter([True])
    trainer = make_trainer(tmp_path / "run", saves_data_position=False, should_stop=lambda: next(answers))
    with pytest.raises(TrainingInterrupted):
        trainer.train(tiny_batches())
    again = make_trainer(tmp_path / "run", saves_data_position=False)
    # Ten batches are enough for the remaining ten steps only if a new pass starts.
    assert again.train(tiny_batches().take(10)).step == STEPS


def spoilt_batches(good):
    """Batches whose labels are infinite after the first ones."""

    def spoil(number, batch):
        inputs, labels = batch
        return inputs, tf.where(number < good, labels, np.inf)

    return tiny_batches().enumerate().map(spoil)


def test_a_nonfinite_loss_stops_training_and_is_not_saved(tmp_path):
    trainer = make_trainer(tmp_path / "run")
    message = (
        r"stopped at step 6: .* is not finite \(loss terms: first (?:inf|nan), second (?:inf|nan)\)\. "
        r"The step was not applied.*"
        r"newest checkpoint in .* is of step 4"
    )
    with pytest.raises(TrainingDiverged, match=message):
        trainer.train(spoilt_batches(good=5))
    last = weights_of(trainer)
    assert all(np.isfinite(weight).all() for weight in last)
    assert trainer.checkpoints.newest() == 4
    assert trainer.optimizer.iterations.numpy() == 5
    log = trainer.run_directory.read_log()
    assert [(record["event"], record["step"]) for record in log] == [("train", 5), ("diverged", 6)]
    assert np.isfinite(log[0]["loss"])


def test_names_the_variable_with_a_nonfinite_gradient(tmp_path):
    model = TinyModel()
    model.dense.bias.assign([float("nan"), 0.0])
    trainer = make_trainer(tmp_path / "run", model)
    message = r"step 1: the gradient of .*dense.*/kernel is not finite.*no checkpoint"
    with pytest.raises(TrainingDiverged, match=message):
        trainer.train(tiny_batches())


@needs_float16
def test_float16_skips_an_overflow_and_lowers_the_loss_scale(tmp_path):
    trainer = make_trainer(tmp_path / "run", TinyModel("mixed_float16"), log_every=1)
    scale = trainer._step.loss_scale
    scale.factor.assign(2.0**26)  # the first gradients overflow
    result = trainer.train(tiny_batches())
    records = [record for record in trainer.run_directory.read_log() if record["event"] == "train"]
    skipped = sum(record["skipped"] for record in records)
    assert 0 < skipped < STEPS
    assert float(scale.factor) == 2.0 ** (26 - skipped)
    assert result.step == STEPS
    assert trainer.optimizer.iterations.numpy() == STEPS - skipped
    assert all(np.isfinite(weight).all() for weight in weights_of(trainer))


@needs_float16
def test_resumes_the_loss_scale(tmp_path):
    answers = iter([True])
    first = make_trainer(tmp_path / "run", TinyModel("mixed_float16"), should_stop=lambda: next(answers))
    first._step.loss_scale.factor.assign(4.0)
    with pytest.raises(TrainingInterrupted):
        first.train(tiny_batches())
    second = make_trainer(tmp_path / "run", TinyModel("mixed_float16"))
    second.train(tiny_batches())
    assert float(second._step.loss_scale.factor) == 4.0


@needs_float16
def test_float16_stops_if_no_loss_scale_helps(tmp_path):
    model = TinyModel("mixed_float16")
    model.dense.bias.assign([float("nan"), 0.0])
    trainer = make_trainer(tmp_path / "run", model)
    trainer._step.loss_scale.factor.assign(4.0)
    with pytest.raises(TrainingDiverged, match=r"step 3: .*not finite"):
        trainer.train(tiny_batches())


def test_short_runs_log_every_step(tmp_path):
    trainer = make_trainer(tmp_path / "run", log_every=None)
    trainer.train(tiny_batches())
    log = trainer.run_directory.read_log()
    assert [record["step"] for record in log if record["event"] == "train"] == list(range(1, STEPS + 1))
