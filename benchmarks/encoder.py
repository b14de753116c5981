"""The encoder at a fixed shape: ids to pooled output, and a whole training step of a classifier; beside them what the
machine does when it only multiplies matrices."""

import numpy as np

from benchmarks.timing import median_seconds

MINILM = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
_LEAST_FLOPS = 10**10  # of the products that are timed together
CEILING_SIZE = 2048  # rows and columns of the matrices whose product is the ceiling


def matrix_products(
    batch_size, sequence_length, hidden_size, num_hidden_layers, num_attention_heads, intermediate_size
):
    """The matrix products of a forward pass, from ids to the pooled output.

    Args:
        batch_size, sequence_length, hidden_size, num_hidden_layers, num_attention_heads, intermediate_size: int.

    Returns:
        list of (number, rows, inner size, columns).

    Example:

    >>> matrix_products(16, 128, 384, 6, 12, 1536)[0]
    (6, 2048, 384, 1152)
    """
    tokens = batch_size * sequence_length
    heads, head_size = num_hidden_layers * batch_size * num_attention_heads, hidden_size // num_attention_heads
    return [
        (num_hidden_layers, tokens, hidden_size, 3 * hidden_size),  # query, key and value
        (heads, sequence_length, head_size, sequence_length),  # scores
        (heads, sequence_length, sequence_length, head_size),  # context
        (num_hidden_layers, tokens, hidden_size, hidden_size),  # output of the attention
        (num_hidden_layers, tokens, hidden_size, intermediate_size),
        (num_hidden_layers, tokens, intermediate_size, hidden_size),
        (1, batch_size, hidden_size, hidden_size),  # pooler
    ]


def forward_flops(products):
    """Floating-point operations in matrix products: a multiplication and an addition for each of their terms.

    A training step has three times as many, since either factor of a product has a gradient that is such a product.

    Args:
        products: list as `matrix_products` gives.

    Returns:
        int.

    Example:

    >>> 3 * forward_flops(matrix_products(16, 128, 384, 6, 12, 1536)) // 10**9
    137
    """
    return sum(2 * number * rows * inner * columns for number, rows, inner, columns in products)


def measure_ours(batch_size, sequence_length, vocab_size, precision, repeats, **sizes):
    """Forward pass, training step, and the machine's ceiling.

    Args:
        batch_size, sequence_length, vocab_size: int.
        precision: str. "float32" or "mixed_bfloat16".
        repeats: int. Calls whose median counts.
        **sizes: `hidden_size`, `num_hidden_layers`, `num_attention_heads`, `intermediate_size`.

    Returns:
        A pair: dict of (name, unit) to float, and a remark. `fwd` and `train` are the forward pass and the training
        step, `products` the step's matrix products a second, `ceiling` those of one large product, `largest` those of
        the largest product of the forward pass, and `share` the part of the ceiling that the step reaches.
    """
    generator = np.random.default_rng(1)
    ids = {
        "token_ids": generator.integers(vocab_size, size=(batch_size, sequence_length), dtype="int32"),
        "segment_ids": np.zeros((batch_size, sequence_length), "int32"),
        "padding_mask": np.ones((batch_size, sequence_length), "int32"),
    }
    labels = generator.integers(2, size=batch_size, dtype="int32")
    arguments = {
        **sizes,
        "vocab_size": vocab_size,
        "max_position_embeddings": max(512, sequence_length),
        "seed": 1,
    }
    forward = median_seconds(forward_pass(ids, precision, arguments), repeats)
    train = median_seconds(training_step(ids, labels, precision, arguments), repeats)
    products = matrix_products(batch_size, sequence_length, **sizes)
    largest = max((product[1:] for product in products), key=np.prod)
    ceiling = product_speed((CEILING_SIZE,) * 3, precision, repeats)
    speed = 3e-9 * forward_flops(products) / train
    return {
        ("fwd", "ms"): 1e3 * forward,
        ("train", "ms"): 1e3 * train,
        ("products", "GFLOP/s"): speed,
        ("ceiling", "GFLOP/s"): ceiling,
        ("largest", "GFLOP/s"): product_speed(largest, precision, repeats),
        ("share", "%"): 100 * speed / ceiling,
    }, f"a step has {3e-9 * forward_flops(products):.3g} GFLOP, the largest product is {'x'.join(map(str, largest))}"


def forward_pass(ids, precision, arguments):
    """A call of an encoder that was made to be served: with mixed_bfloat16 its weights are bfloat16.

    Args:
        ids: dict of int arrays [batch, length].
        precision: str.
        arguments: dict, the encoder's constructor arguments.

    Returns:
        function without arguments.
    """
    import tensorflow as tf

    import keras_bert

    encoder = keras_bert.BertEncoder(**arguments, dtype="bfloat16" if precision == "mixed_bfloat16" else precision)
    ids = {name: tf.constant(values) for name, values in ids.items()}
    compiled = tf.function(lambda ids: encoder(ids, training=False)["pooled_output"])
    return lambda: compiled(ids).numpy()


def training_step(ids, labels, precision, arguments):
    """A call of one training step of a classifier of two labels: forward with dropout, backward, clipping, optimizer.

    Args:
        ids: dict of int arrays [batch, length].
        labels: int array [batch].
        precision: str.
        arguments: dict, the encoder's constructor arguments.

    Returns:
        function without arguments.
    """
    import tensorflow as tf

    import keras_bert
    from keras_bert.training.step import TrainStep

    encoder = keras_bert.BertEncoder(**arguments, dtype=precision)
    step = TrainStep(keras_bert.BertClassifier(encoder, labels=2, seed=1), keras_bert.BertAdamW(1e-5))
    batches = iter(tf.data.Dataset.from_tensors((ids, labels)).repeat())
    return lambda: step.run(batches, first_step=0, steps=1)["gradient_norm"].numpy()


def product_speed(sizes, precision, repeats):
    """GFLOP/s of one matrix product.

    Args:
        sizes: (rows, inner size, columns).
        precision: str. With mixed_bfloat16 the factors are bfloat16.
        repeats: int.

    Returns:
        float.
    """
    import tensorflow as tf

    rows, inner, columns = sizes
    dtype = tf.float32 if precision == "float32" else tf.bfloat16
    left, right = tf.ones([rows, inner], dtype), tf.ones([inner, columns], dtype)
    # A small product takes less than a millisecond: several make a time that can be measured.
    number = min(max(_LEAST_FLOPS // (2 * rows * inner * columns), 1), 100)

    def multiply():
        for _ in range(number):
            tf.matmul(left, right)

    return 2e-9 * number * rows * inner * columns / median_seconds(multiply, repeats)


PROGRAMS = {"keras_bert": measure_ours}
