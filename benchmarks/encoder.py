"""The encoder at a fixed shape: forward pass from ids to pooled output, and a whole training step of a classifier.

`matmul` is the fraction of the machine's matrix multiplication speed that the training step reaches.
"""

import numpy as np

from benchmarks.timing import median_seconds

MINILM = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
_PEAK_SIZE = 2048  # rows and columns of the matrices whose product measures the machine's speed


def measure(values):
    """Measures a forward pass and a training step; `values` are the flags of the suite."""
    sizes = {name: values[name].value for name in MINILM}
    ids, labels, arguments = make_inputs(values.batch_size, values.sequence_length, sizes)
    forward = median_seconds(make_forward_pass(ids, values.precision, arguments), values.repeats)
    train = median_seconds(make_training_step(ids, labels, values.precision, arguments), values.repeats)
    flops = count_training_flops(values.batch_size, values.sequence_length, **sizes)
    figures = {
        "forward ms": 1e3 * forward,
        "train ms": 1e3 * train,
        "matmul %": 100 * flops / train / measure_peak_flops(values.precision, values.repeats),
    }
    return figures, f"{1e-9 * flops:.3g} GFLOP per training step"


def make_inputs(batch_size, sequence_length, sizes):
    """Returns ids and labels of a batch, and the arguments of an encoder of `sizes` that takes them."""
    generator = np.random.default_rng(1)
    shape = (batch_size, sequence_length)
    ids = {
        "token_ids": generator.integers(sizes["vocab_size"], size=shape, dtype="int32"),
        "segment_ids": np.zeros(shape, "int32"),
        "padding_mask": np.ones(shape, "int32"),
    }
    labels = generator.integers(2, size=batch_size, dtype="int32")
    return ids, labels, {**sizes, "max_position_embeddings": max(512, sequence_length), "seed": 1}


def make_forward_pass(ids, precision, arguments):
    """Returns a call of an encoder for serving, whose weights are bfloat16 for mixed_bfloat16."""
    import tensorflow as tf

    import keras_bert

    encoder = keras_bert.BertEncoder(**arguments, dtype="bfloat16" if precision == "mixed_bfloat16" else precision)
    ids = {name: tf.constant(array) for name, array in ids.items()}
    compiled = tf.function(lambda ids: encoder(ids, training=False)["pooled_output"])
    return lambda: compiled(ids).numpy()


def make_training_step(ids, labels, precision, arguments, first_batch=None):
    """Returns a call of a classifier's training step; see `make_step`."""
    import keras_bert

    encoder = keras_bert.BertEncoder(**arguments, dtype=precision)
    return make_step(keras_bert.BertClassifier(encoder, labels=2, seed=1), (ids, labels), first_batch)


def make_step(model, batch, first_batch=None):
    """Returns a call of a training step: forward with dropout, backward, clipping and optimizer.

    A batch is ids and labels. The first call trains on `first_batch`, if there is one; its shape may be another.
    """
    import tensorflow as tf

    import keras_bert
    from keras_bert.training.step import TrainStep

    step = TrainStep(model, keras_bert.BertAdamW(1e-5))
    batches = tf.data.Dataset.from_tensors(batch).repeat()
    if first_batch is not None:
        batches = tf.data.Dataset.from_tensors(first_batch).concatenate(batches)
    batches = iter(batches)
    return lambda: step.run(batches, first_step=0, steps=1)["gradient_norm"].numpy()


def count_training_flops(
    batch_size, sequence_length, vocab_size, hidden_size, num_hidden_layers, num_attention_heads, intermediate_size
):
    """Counts the floating-point operations of a training step's matrix products, from ids to pooled output."""
    num_tokens = batch_size * sequence_length
    layer = num_tokens * hidden_size * (4 * hidden_size + 2 * intermediate_size + 2 * sequence_length)
    pooler = batch_size * hidden_size**2
    # A multiplication and an addition per term; both factors of a product have a gradient that is a product, too.
    return 3 * 2 * (num_hidden_layers * layer + pooler)


def measure_peak_flops(precision, repeats):
    """Measures the floating-point operations per second of a large matrix product."""
    import tensorflow as tf

    matrix = tf.ones([_PEAK_SIZE, _PEAK_SIZE], tf.float32 if precision == "float32" else tf.bfloat16)
    return 2 * _PEAK_SIZE**3 / median_seconds(lambda: tf.matmul(matrix, matrix).numpy(), repeats)


PROGRAMS = {"keras_bert": measure}
