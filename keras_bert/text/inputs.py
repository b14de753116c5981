"""Texts given by a caller, as a string tensor."""

import numpy as np
import tensorflow as tf

_WANTED = "Give a str, a list, a NumPy array or a tensor of str (or UTF-8 bytes), of shape [batch] or a single text."


def text_tensor(texts: tf.Tensor | list | str, name: str = "texts") -> tf.Tensor:
    """Makes a string tensor of texts and says clearly what is wrong where they are none.

    Source: stands where google-research/bert has `convert_to_unicode` (`tokenization.py`).

    Args:
        texts: str, bytes, list or array of them `[batch]`, or string tensor `[batch]` or scalar.
        name: str, what error messages call the argument. Defaults to "texts".

    Returns:
        String tensor, `[batch]` or scalar.

    Raises:
        TypeError: something other than text, or a str that UTF-8 cannot encode (half of a surrogate pair).
        ValueError: more than one dimension.

    Example:
        >>> text_tensor(["a text", b"bytes"]).shape
        TensorShape([2])
    """
    if isinstance(texts, tf.RaggedTensor | tf.SparseTensor):
        raise TypeError(f"{name} must be text. Received: a {type(texts).__name__}. {_WANTED}")
    if texts is None:
        raise TypeError(f"{name} must be text. Received: None. {_WANTED}")
    try:
        # An empty list says nothing of its type, and TensorFlow would take it for floats.
        empty = texts.shape == (0,) if isinstance(texts, np.ndarray) else isinstance(texts, list | tuple) and not texts
        tensor = tf.zeros([0], tf.string) if empty else tf.convert_to_tensor(texts)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be text. Received: {_describe(texts)} ({error}). {_WANTED}") from error
    if tensor.dtype != tf.string:
        raise TypeError(
            f"{name} must be text. Received: values of type {tensor.dtype.name}, {_describe(texts)}. {_WANTED}"
        )
    if tensor.shape.rank is None or tensor.shape.rank > 1:
        raise ValueError(f"{name} must have at most one dimension. Received: shape {tensor.shape}. {_WANTED}")
    return tensor


def _describe(texts: object) -> str:
    shown = repr(texts)
    return f"{type(texts).__name__} {shown if len(shown) <= 80 else shown[:77] + '...'}"
