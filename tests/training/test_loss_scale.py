"""Loss scaling for float16."""

import pytest
import tensorflow as tf

from keras_bert.training.loss_scale import DynamicLossScale


def factors(scale, overflows):
    found = []
    for overflow in overflows:
        scale.update(tf.constant(not overflow))
        found.append(float(scale.factor))
    return found


def test_it_halves_at_an_overflow_and_doubles_after_a_while_without():
    scale = DynamicLossScale(initial=16.0, growth_interval=3)
    assert factors(scale, [0, 0, 1, 0, 0, 0, 0]) == [16.0, 16.0, 8.0, 8.0, 8.0, 16.0, 16.0]


def test_it_does_not_fall_below_one():
    scale = DynamicLossScale(initial=2.0)
    assert factors(scale, [1, 1]) == [1.0, 1.0]


def test_it_does_not_grow_without_end():
    scale = DynamicLossScale(initial=2.0**23, growth_interval=1)
    assert factors(scale, [0, 0, 0]) == [2.0**24] * 3


def test_a_compiled_loop_has_the_same_factors():
    overflows = tf.constant([False, True, False, False])
    scale = DynamicLossScale(initial=8.0, growth_interval=2)

    @tf.function
    def run():
        for overflow in overflows:
            scale.update(~overflow)

    run()
    assert float(scale.factor) == 8.0  # 8, 4, 4, 8


def test_refusals():
    with pytest.raises(ValueError, match="must be positive, got 0 and 2000"):
        DynamicLossScale(initial=0)
    with pytest.raises(ValueError, match=r"got 2\.0 and 0"):
        DynamicLossScale(initial=2.0, growth_interval=0)
