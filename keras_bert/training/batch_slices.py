"""How a batch is shared out between replicas, and cut into micro-batches."""

import tensorflow as tf


def slice_batch(batch, number, parts):
    """The rows of one of several parts of a batch, as even as can be.

    Args:
        batch: nested structure of tensors [rows, ...].
        number: int, or int scalar tensor, from 0.
        parts: int.

    Returns:
        The same structure. Where the number of rows is static and divides evenly, its parts have a static one, too, as
        XLA on a TPU wants.

    Example:

    >>> [slice_batch(tf.range(5), number, 2).numpy().tolist() for number in range(2)]
    [[0, 1], [2, 3, 4]]
    """

    def rows_of(values):
        rows = values.shape[0]
        if rows is not None and rows % parts == 0:
            sizes = [size if size is not None else tf.shape(values)[axis] for axis, size in enumerate(values.shape)]
            return tf.reshape(values, [parts, rows // parts, *sizes[1:]])[number]
        rows = tf.shape(values)[0]
        return values[rows * number // parts : rows * (number + 1) // parts]

    return tf.nest.map_structure(rows_of, batch)
