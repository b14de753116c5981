import pytest

from keras_bert.training.trainer_settings import TrainerSettings


def test_intervals_follow_from_the_length_of_the_run():
    for num_train_steps, log, checkpoint in ((9, 1, 200), (1000, 20, 200), (100_000, 100, 10_000)):
        settings = TrainerSettings(num_train_steps)
        assert (settings.log_interval, settings.checkpoint_interval) == (log, checkpoint)
        assert settings.evaluation_interval == num_train_steps
    settings = TrainerSettings(9, log_every=100, evaluate_every=3, checkpoint_every=2)
    assert (settings.log_interval, settings.evaluation_interval, settings.checkpoint_interval) == (100, 3, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_train_steps": 0}, "num_train_steps must be at least 1, got 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1, got 0"),
        ({"keep_checkpoints": 0}, "keep_checkpoints must be at least 1"),
        ({"patience": 2}, "patience=2 needs a score"),
        ({"loss_scale": "static"}, "loss_scale must be"),
        ({"mean_loss_weights": {"loss": 0.0}}, "mean_loss_weights must be positive"),
        ({"mean_loss_weights": {"loss": float("nan")}}, "must be positive and finite"),
    ],
)
def test_rejects_values_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        TrainerSettings(**{"num_train_steps": 9, **arguments})
