import tensorflow as tf

from keras_bert.training.loss import total_loss


def test_a_term_without_weight_is_zero():
    assert float(total_loss({"one": (tf.constant(6.0), 4.0), "masked_lm": (tf.zeros([]), tf.zeros([]))})) == 1.5
