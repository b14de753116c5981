"""One step on the 22.7 million parameters of MiniLM's shape, by `BertAdamW` and by Keras' AdamW."""

from benchmarks.encoder import MINILM
from benchmarks.timing import median_seconds


def measure_ours(repeats):
    """`BertAdamW`, which clips by global norm."""
    import keras_bert

    return _measure(keras_bert.BertAdamW(5e-5), repeats)


def measure_clipped(repeats):
    """Keras' AdamW with clipping by global norm."""
    import keras

    return _measure(keras.optimizers.AdamW(5e-5, global_clipnorm=1.0), repeats)


def measure_not_clipped(repeats):
    """Keras' AdamW without clipping."""
    import keras

    return _measure(keras.optimizers.AdamW(5e-5), repeats)


def _measure(optimizer, repeats):
    import tensorflow as tf

    import keras_bert

    variables = keras_bert.BertEncoder(**MINILM, seed=1).trainable_variables
    gradients = [tf.random.stateless_normal(variable.shape, [1, i]) for i, variable in enumerate(variables)]
    optimizer.build(variables)
    step = tf.function(lambda: optimizer.apply(gradients, variables))
    return {("step", "ms"): 1e3 * median_seconds(step, repeats)}, ""


PROGRAMS = {
    "keras_bert": measure_ours,
    "Keras AdamW, clipped by global norm": measure_clipped,
    "Keras AdamW, not clipped": measure_not_clipped,
}
