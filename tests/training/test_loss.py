import pytest
import tensorflow as tf

from keras_bert.training.loss import total_loss


def test_terms_are_means_that_are_summed():
    terms = {"one": (tf.constant(6.0), tf.constant(4.0)), "two": (tf.constant(1.0), tf.constant(2.0))}
    assert float(total_loss(terms)) == pytest.approx(2.0)


def test_a_term_without_weight_is_nothing():
    assert float(total_loss({"masked_lm": (tf.constant(0.0), tf.constant(0.0))})) == 0.0
