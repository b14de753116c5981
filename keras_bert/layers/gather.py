"""Vectors at chosen places of a row."""

from keras import ops


def gather_positions(hidden, positions):
    """The vectors at some positions of each row.

    Args:
        hidden: float tensor [batch, length, size].
        positions: int tensor [batch, number].

    Returns:
        float tensor [batch, number, size].

    Example:

    >>> gather_positions(np.arange(6.0).reshape([1, 3, 2]), np.array([[2, 0]])).numpy().tolist()
    [[[4.0, 5.0], [0.0, 1.0]]]
    """
    batch, length, size = ops.shape(hidden)
    # One gather of flat rows: its gradient is one scatter-add, and a position given twice counts twice.
    rows = ops.cast(positions, "int32") + length * ops.arange(batch, dtype="int32")[:, None]
    flat = ops.take(ops.reshape(hidden, (-1, size)), ops.reshape(rows, (-1,)), axis=0)
    return ops.reshape(flat, (batch, ops.shape(positions)[1], size))
