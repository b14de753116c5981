import pytest
import tensorflow as tf

from keras_bert.training.loss_scale import DynamicLossScale


@pytest.mark.parametrize(
    ("initial", "growth_interval", "overflows", "factors"),
    [
        (16.0, 3, [0, 0, 1, 0, 0, 0, 0], [16.0, 16.0, 8.0, 8.0, 8.0, 16.0, 16.0]),
        (2.0, 2000, [1, 1], [1.0, 1.0]),  # not below 1
        (2.0**23, 1, [0, 0, 0], [2.0**24] * 3),  # not above 2**24
    ],
)
def test_halves_after_an_overflow_and_doubles_after_steps_without(initial, growth_interval, overflows, factors):
    eager, compiled = (DynamicLossScale(initial, growth_interval) for _ in range(2))

    @tf.function
    def run():
        for overflow in tf.constant(overflows) > 0:
            compiled.update(~overflow)

    for overflow, factor in zip(overflows, factors, strict=True):
        eager.update(tf.constant(not overflow))
        assert float(eager.factor) == factor
    run()
    assert float(compiled.factor) == factors[-1]


@pytest.mark.parametrize(
    ("initial", "interval", "message"), [(0, 2000, "must be positive, got 0 and 2000"), (2, 0, "got 2 and 0")]
)
def test_rejects_values_that_are_not_positive(initial, interval, message):
    with pytest.raises(ValueError, match=message):
        DynamicLossScale(initial, interval)
