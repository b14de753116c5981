"""How a training ends before its last update: asked to, out of patience, out of data, or with numbers gone bad."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.run_dir import RunDirectory
from keras_bert.training.trainer import Trainer, TrainingDiverged, TrainingInterrupted
from keras_bert.training.trainer_settings import TrainerSettings
from tests.toys import toy_classifier
from tests.training.test_step import batches_for, difference

STEPS = 12
FLOAT16 = {"encoder_arguments": {"dtype": "mixed_float16"}}


def make_trainer(folder, classifier=None, **arguments):
    classifier = classifier or toy_classifier()
    defaults = {"checkpoint_every": 4, "steps_per_execution": 2, "log_every": 100}
    of_trainer = {name: arguments.pop(name) for name in ("evaluate", "should_stop") if name in arguments}
    settings = TrainerSettings(STEPS, **{**defaults, **arguments})
    return Trainer(classifier, BertAdamW(1e-3), RunDirectory(folder, {}), settings, **of_trainer)


def weights_of(trainer):
    return [weight.numpy() for weight in trainer.model.weights]


def test_asked_to_stop_it_saves_and_the_next_process_goes_on(tmp_path):
    whole = make_trainer(tmp_path / "whole")
    whole.train(batches_for(whole.model))
    answers = iter([False, False, True])
    first = make_trainer(tmp_path / "parts", should_stop=lambda: next(answers))
    with pytest.raises(TrainingInterrupted, match=f"stopped at step 6 of {STEPS}. .* same command"):
        first.train(batches_for(first.model))
    assert first.checkpoints.newest() == 6
    second = make_trainer(tmp_path / "parts", should_stop=lambda: False)
    second.train(batches_for(second.model))
    assert difference(weights_of(whole), weights_of(second)) == 0


def test_asked_to_stop_at_the_end_it_is_simply_done(tmp_path):
    trainer = make_trainer(
        tmp_path / "run", steps_per_execution=STEPS, checkpoint_every=STEPS, should_stop=lambda: True
    )
    assert trainer.train(batches_for(trainer.model)).step == STEPS


def test_without_better_scores_it_loses_patience_and_stays_ended(tmp_path):
    scores = iter([0.5, 0.7, 0.6, 0.7, 0.9])
    arguments = {"evaluate": lambda: {"f1": next(scores)}, "evaluate_every": 2, "score": "f1", "patience": 2}
    result = make_trainer(tmp_path / "run", **arguments).train(batches_for(toy_classifier()))
    assert (result.step, result.best_step) == (8, 4)
    again = make_trainer(tmp_path / "run", **arguments).train(batches_for(toy_classifier()))
    assert (again.step, again.best_step) == (8, 4)


def test_training_ends_with_the_data(tmp_path):
    trainer = make_trainer(tmp_path / "run")
    result = trainer.train(batches_for(trainer.model).take(5))
    assert result.step == 5
    assert trainer.checkpoints.newest() == 5
    log = trainer.run_directory.read_log()
    assert [record["step"] for record in log if record["event"] == "train"] == [5]


def test_data_that_end_at_a_log_record_are_recorded_once(tmp_path):
    trainer = make_trainer(tmp_path / "run", log_every=4)
    trainer.train(batches_for(trainer.model).take(4))
    log = trainer.run_directory.read_log()
    assert [record["step"] for record in log if record["event"] == "train"] == [4]


def test_a_place_that_cannot_be_saved_begins_anew(tmp_path):
    answers = iter([True])
    trainer = make_trainer(tmp_path / "run", saves_data_position=False, should_stop=lambda: next(answers))
    with pytest.raises(TrainingInterrupted):
        trainer.train(batches_for(trainer.model))
    again = make_trainer(tmp_path / "run", saves_data_position=False)
    # Ten batches are enough for the ten updates that remain only if the pass begins anew.
    assert again.train(batches_for(again.model).take(10)).step == STEPS


def spoilt_batches(classifier, good):
    """Batches of which the first ones are good; the sample weights of the others are not finite."""

    def with_weights(number, batch):
        inputs, labels = batch
        bad = tf.where(number < good, 1.0, np.inf)
        return inputs, labels, tf.fill(tf.shape(labels), bad)

    return batches_for(classifier).enumerate().map(with_weights)


def test_a_loss_that_is_not_finite_stops_it_and_nothing_bad_is_saved(tmp_path):
    trainer = make_trainer(tmp_path / "run")
    message = (
        r"stopped at step 6: .* is not finite \(loss terms: loss nan\)\. The step was not applied.*"
        r"newest checkpoint in .* is of step 4"
    )
    with pytest.raises(TrainingDiverged, match=message):
        trainer.train(spoilt_batches(trainer.model, good=5))
    last = weights_of(trainer)
    assert all(np.isfinite(weight).all() for weight in last)
    assert trainer.checkpoints.newest() == 4
    assert trainer.optimizer.iterations.numpy() == 5
    log = trainer.run_directory.read_log()
    assert [(record["event"], record["step"]) for record in log] == [("train", 5), ("diverged", 6)]
    assert np.isfinite(log[0]["loss"])


def test_it_names_the_variable_whose_gradient_is_not_finite(tmp_path):
    classifier = toy_classifier(freeze="encoder")
    classifier.logits.bias.assign([float("nan"), 0.0])
    trainer = make_trainer(tmp_path / "run", classifier)
    with pytest.raises(TrainingDiverged, match=r"step 1: the gradient of .*logits/kernel is not finite.*no checkpoint"):
        trainer.train(batches_for(classifier))


def test_float16_passes_over_an_overflow_and_lowers_the_loss_scale(tmp_path):
    trainer = make_trainer(tmp_path / "run", toy_classifier(**FLOAT16), log_every=1)
    scale = trainer._step.loss_scale
    scale.factor.assign(2.0**26)  # the first gradients overflow
    result = trainer.train(batches_for(trainer.model))
    records = [record for record in trainer.run_directory.read_log() if record["event"] == "train"]
    skipped = sum(record["skipped"] for record in records)
    assert 0 < skipped < STEPS
    assert float(scale.factor) == 2.0 ** (26 - skipped)
    assert result.step == STEPS
    assert trainer.optimizer.iterations.numpy() == STEPS - skipped
    assert all(np.isfinite(weight).all() for weight in weights_of(trainer))


def test_the_loss_scale_is_resumed(tmp_path):
    answers = iter([True])
    first = make_trainer(tmp_path / "run", toy_classifier(**FLOAT16), should_stop=lambda: next(answers))
    first._step.loss_scale.factor.assign(4.0)
    with pytest.raises(TrainingInterrupted):
        first.train(batches_for(first.model))
    second = make_trainer(tmp_path / "run", toy_classifier(**FLOAT16))
    second.train(batches_for(second.model))
    assert float(second._step.loss_scale.factor) == 4.0


def test_float16_that_no_loss_scale_helps_stops(tmp_path):
    classifier = toy_classifier(**FLOAT16)
    classifier.logits.bias.assign([float("nan"), 0.0])
    trainer = make_trainer(tmp_path / "run", classifier)
    trainer._step.loss_scale.factor.assign(4.0)
    with pytest.raises(TrainingDiverged, match=r"step 3: .*not finite"):
        trainer.train(batches_for(classifier))


def test_short_runs_log_every_update(tmp_path):
    trainer = make_trainer(tmp_path / "run", log_every=None)
    trainer.train(batches_for(trainer.model))
    log = trainer.run_directory.read_log()
    assert [record["step"] for record in log if record["event"] == "train"] == list(range(1, STEPS + 1))
