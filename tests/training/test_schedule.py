import keras
import pytest

from keras_bert.training.schedule import WarmupSchedule
from tests.reference import optimizer as reference
from tests.tolerances import assert_close


@pytest.mark.parametrize("decay", ["bert", "linear"])
@pytest.mark.parametrize(
    "total,warmup,end", [(1, 0, 0.0), (7, 7, 0.0), (60, 6, 1e-5), (1_000_000, 10_000, 0.0), (16_000_000, 1, 0.0)]
)
def test_equals_the_reference(decay, total, warmup, end):
    schedule = WarmupSchedule(1e-4, total, warmup, decay=decay, end_learning_rate=end)
    candidates = {0, 1, 3, warmup - 1, warmup, warmup + 1, total // 2, total - 1}
    steps = sorted(step for step in candidates if 0 <= step < total)
    for step in steps:
        assert_close(float(schedule(step)), reference.learning_rate(step, 1e-4, total, warmup, decay, end))


def test_the_rate_stays_constant_after_training():
    for decay in ("bert", "linear"):
        schedule = WarmupSchedule(1e-4, 10, 10, decay=decay, end_learning_rate=1e-6)
        assert [float(schedule(step)) for step in (10, 11, 500)] == pytest.approx([1e-6] * 3)


def test_number_of_warmup_steps_equals_the_original():
    assert WarmupSchedule(1e-4, 343).num_warmup_steps == 34
    assert WarmupSchedule(1e-4, 9).num_warmup_steps == 0
    assert WarmupSchedule(1e-4, 100, warmup_proportion=0.25).num_warmup_steps == 25
    assert WarmupSchedule(1e-4, 100, num_warmup_steps=0, warmup_proportion=0.25).num_warmup_steps == 0


def test_accepts_a_step_variable_and_returns_float32():
    counter = keras.Variable(5, dtype="int64", trainable=False)
    rate = WarmupSchedule(1e-4, 100)(counter)
    assert keras.backend.standardize_dtype(rate.dtype) == "float32"
    assert float(rate) == pytest.approx(5e-5)


def test_serialization_keeps_every_argument():
    schedule = WarmupSchedule(3e-5, 50, 7, decay="linear", end_learning_rate=1e-7)
    again = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    assert isinstance(again, WarmupSchedule)
    assert again.get_config() == schedule.get_config()


@pytest.mark.parametrize(
    "arguments,error,message",
    [
        ({"num_warmup_steps": 101}, ValueError, "longer than the training: num_warmup_steps=101, num_train_steps=100"),
        ({"num_warmup_steps": -1}, ValueError, "num_warmup_steps must not be negative"),
        ({"num_warmup_steps": 0.1}, TypeError, "num_warmup_steps must be an integer"),
        ({"num_train_steps": 0}, ValueError, "fewer examples than one batch"),
        ({"num_train_steps": -5}, ValueError, "num_train_steps must not be negative"),
        ({"num_train_steps": 10.5}, TypeError, "num_train_steps must be an integer"),
        ({"peak_learning_rate": -1e-4}, ValueError, "peak_learning_rate must be a finite number of at least 0"),
        ({"end_learning_rate": float("inf")}, ValueError, "end_learning_rate must be a finite number of at least 0"),
        ({"warmup_proportion": 10}, ValueError, "use num_warmup_steps"),
        ({"decay": "cosine"}, ValueError, r"decay must be one of \['bert', 'linear'\], got 'cosine'"),
    ],
)
def test_rejects_arguments_out_of_range(arguments, error, message):
    with pytest.raises(error, match=message):
        WarmupSchedule(**{"peak_learning_rate": 1e-4, "num_train_steps": 100, **arguments})
