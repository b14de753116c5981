"""One step on the 22.7 million parameters of MiniLM's shape, by `BertAdamW` and by Keras' AdamW."""

from benchmarks.encoder import MINILM
from benchmarks.timing import median_seconds


def measure(optimizer, repeats):
    """Measures the time of a step."""
    import tensorflow as tf

    import keras_bert

    variables = keras_bert.BertEncoder(**MINILM, seed=1).trainable_variables
    gradients = [tf.random.stateless_normal(variable.shape, [1, i]) for i, variable in enumerate(variables)]
    optimizer.build(variables)
    step = tf.function(lambda: optimizer.apply(gradients, variables))
    return {"step ms": 1e3 * median_seconds(step, repeats)}, ""


def measure_bert_adamw(values):
    import keras_bert

    return measure(keras_bert.BertAdamW(5e-5), values.repeats)


def measure_keras_adamw(values):
    import keras

    return measure(keras.optimizers.AdamW(5e-5, global_clipnorm=1.0), values.repeats)


PROGRAMS = {"keras_bert": measure_bert_adamw, "Keras AdamW with clipping": measure_keras_adamw}
