"""Conversion of the texts that callers pass to string tensors."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

# A str, bytes, or a list, tuple, NumPy array, pandas Series or string tensor of them.
Texts = Any

_ALLOWED = (
    "Pass a str, or a list, a NumPy array, a pandas Series or a tensor of str (or UTF-8 bytes), of shape [batch] or a "
    "single text."
)


def as_text_tensor(texts: Texts, name: str = "texts") -> tf.Tensor:
    """Converts texts to a string tensor `[batch]` or scalar, with clear errors that call the argument `name`."""
    if texts is None or isinstance(texts, tf.RaggedTensor | tf.SparseTensor):
        received = "None" if texts is None else f"a {type(texts).__name__}"
        raise TypeError(f"{name} must be text. Received: {received}. {_ALLOWED}")
    if hasattr(texts, "to_numpy"):  # a pandas Series
        texts = np.asarray(texts, dtype=object)
    try:
        # TensorFlow would convert an empty list to floats.
        is_empty = (
            texts.shape == (0,) if isinstance(texts, np.ndarray) else isinstance(texts, list | tuple) and not texts
        )
        tensor = tf.zeros([0], tf.string) if is_empty else tf.convert_to_tensor(texts)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be text. Received: {_describe(texts)} ({error}). {_ALLOWED}") from error
    if tensor.dtype != tf.string:
        raise TypeError(
            f"{name} must be text. Received: values of type {tensor.dtype.name}, {_describe(texts)}. {_ALLOWED}"
        )
    if tensor.shape.rank is None or tensor.shape.rank > 1:
        raise ValueError(f"{name} must have at most one dimension. Received: shape {tensor.shape}. {_ALLOWED}")
    return tensor


def as_segment_tensors(inputs: Any) -> list[tf.Tensor]:
    """Converts the inputs of `BertPreprocessor` to one string tensor `[batch]`, or two for pairs."""
    if hasattr(inputs, "columns") and hasattr(inputs, "to_numpy"):  # a DataFrame
        inputs = {name: inputs[name] for name in inputs.columns}
    if isinstance(inputs, Mapping):
        if set(inputs) not in ({"text"}, {"text_a", "text_b"}):
            raise ValueError(
                'The inputs must have the key "text", or the keys "text_a" and "text_b". '
                f"Received: {sorted(map(str, inputs))}. Rename or drop the others."
            )
        named = {name: inputs[name] for name in sorted(inputs)}
    elif isinstance(inputs, tuple):
        if len(inputs) != 2:
            raise ValueError(
                f"A tuple must hold two batches of texts, text_a and text_b. Received: {len(inputs)} elements. "
                "For single texts, pass a list, an array or a tensor."
            )
        named = {"text_a": inputs[0], "text_b": inputs[1]}
    else:
        named = {"text": inputs}
    tensors = {name: as_text_tensor(texts, name) for name, texts in named.items()}
    for name, tensor in tensors.items():
        if tensor.shape.rank != 1:
            raise ValueError(
                f"{name} must be a batch of texts, of shape [batch]. Received: a single text. Put it into a list. "
                "(A list of strings is a batch of single texts, a tuple of two lists a batch of pairs.)"
            )
    return list(tensors.values())


def _describe(texts: Any) -> str:
    shown = repr(texts)
    return f"{type(texts).__name__} {shown if len(shown) <= 80 else shown[:77] + '...'}"
