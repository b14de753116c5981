import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.training.dropout_seeds import DropoutSeeds
from tests.toys import toy_classifier

POSITIONS = [{}, {"seed": 2}, {"step": 1}, {"replica": 1}, {"micro_batch": 1}]


def two_dropouts(*layers):
    inputs = keras.Input([256])
    return keras.Model(inputs, [dropout(inputs) for dropout in layers])


def masks(model, seed=1, step=0, replica=0, micro_batch=0):
    seeds = DropoutSeeds(model, seed)
    with seeds.scope(seeds.values(seeds.key(step, replica), micro_batch)):
        return [np.array(mask) > 0 for mask in model(tf.ones([1, 256]), training=True)]


def test_masks_depend_on_seed_step_replica_micro_batch_and_layer_alone():
    model = two_dropouts(keras.layers.Dropout(0.5), keras.layers.Dropout(0.5))
    drawn = [mask for position in POSITIONS for mask in masks(model, **position)]
    for one, other in itertools.combinations(drawn, 2):
        assert 0.3 < (one == other).mean() < 0.7  # independent halves agree on half
    model(tf.ones([1, 256]), training=True)  # what was drawn before does not matter
    np.testing.assert_array_equal([mask for position in POSITIONS for mask in masks(model, **position)], drawn)


def test_a_layer_that_is_called_twice_draws_different_masks():
    dropout = keras.layers.Dropout(0.5)
    one, two = masks(two_dropouts(dropout, dropout))
    assert 0.3 < (one == two).mean() < 0.7


@pytest.mark.parametrize("layers", [0, 2])
def test_finds_all_generators_of_a_model(layers):
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    if layers:
        model = toy_classifier(encoder_arguments={"num_hidden_layers": layers})
    seeds = DropoutSeeds(model, seed=1)
    # The embeddings, per block two of hidden states and one of probabilities, and the head.
    assert len(seeds.values(seeds.key(0, 0), 0)) == (1 + 3 * layers + 1 if layers else 0)


def test_moving_averages_are_still_updated():
    model = keras.Sequential([keras.Input([2]), keras.layers.BatchNormalization(momentum=0.5)])
    seeds = DropoutSeeds(model, seed=1)
    with seeds.scope(seeds.values(seeds.key(0, 0), 0)):
        model(tf.ones([4, 2]), training=True)
    np.testing.assert_allclose(model.layers[0].moving_mean.numpy(), [0.5, 0.5])
