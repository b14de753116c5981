"""Random numbers by seed, step, micro-batch, replica and layer."""

import itertools

import keras
import numpy as np
import tensorflow as tf

from keras_bert.training.dropout_seeds import DropoutSeeds
from tests.toys import toy_classifier


def two_dropouts():
    inputs = keras.Input([256])
    return keras.Model(inputs, [keras.layers.Dropout(0.5)(inputs), keras.layers.Dropout(0.5)(inputs)])


def masks(model, seed=1, step=0, replica=0, micro_batch=0):
    state = DropoutSeeds(model, seed)
    with state.scope(state.values(state.key(step, replica), micro_batch)):
        return [np.array(mask) > 0 for mask in model(tf.ones([1, 256]), training=True)]


def test_every_part_of_the_place_changes_the_draw_and_the_same_place_repeats_it():
    model = two_dropouts()
    places = [{}, {"seed": 2}, {"step": 1}, {"replica": 1}, {"micro_batch": 1}]
    drawn = [mask for place in places for mask in masks(model, **place)]
    for one, other in itertools.combinations(drawn, 2):
        assert 0.3 < (one == other).mean() < 0.7  # independent halves agree on half
    for place in places:
        assert all((one == two).all() for one, two in zip(masks(model, **place), masks(model, **place), strict=True))


def test_the_draw_does_not_depend_on_what_was_drawn_before():
    model = two_dropouts()
    before = masks(model)
    model(tf.ones([1, 256]), training=True)
    assert all((one == two).all() for one, two in zip(before, masks(model), strict=True))


def test_all_generators_of_a_classifier_are_found():
    classifier = toy_classifier(encoder_arguments={"num_hidden_layers": 2})
    state = DropoutSeeds(classifier, seed=1)
    # The embeddings, per block two of hidden states and one of probabilities, and the head.
    assert len(state.values(state.key(0, 0), 0)) == 1 + 3 * classifier.encoder.num_hidden_layers + 1


def test_a_layer_that_draws_twice_in_a_scope_draws_anew():
    dropout = keras.layers.Dropout(0.5)
    inputs = keras.Input([256])
    model = keras.Model(inputs, [dropout(inputs), dropout(inputs)])
    one, two = masks(model)
    assert 0.3 < (one == two).mean() < 0.7


def test_running_means_are_still_updated():
    model = keras.Sequential([keras.Input([2]), keras.layers.BatchNormalization(momentum=0.5)])
    state = DropoutSeeds(model, seed=1)
    with state.scope(state.values(state.key(0, 0), 0)):
        model(tf.ones([4, 2]), training=True)
    np.testing.assert_allclose(model.layers[0].moving_mean.numpy(), [0.5, 0.5])


def test_a_model_without_random_numbers():
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    state = DropoutSeeds(model, seed=1)
    assert state.values(state.key(0, 0), 0) == []
