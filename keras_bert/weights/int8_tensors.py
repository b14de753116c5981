"""Matrices stored as 8-bit integers with one scale per row, named as in compressed-tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from keras_bert.weights.tensor_file import TensorEntry

_LARGEST = 127
_SCALE_TYPES = ("BF16", "F16", "F32")


def quantize_matrices(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the tensors; a matrix becomes int8 [rows, columns] and, under its name with `_scale`, float32 [rows, 1].

    >>> quantized = quantize_matrices({"weight": np.array([[0.5, -1.0]]), "bias": np.array([0.25])})
    >>> quantized["weight"].tolist(), sorted(quantized)
    ([[64, -127]], ['bias', 'weight', 'weight_scale'])
    """
    result = {}
    for name, tensor in tensors.items():
        tensor = np.asarray(tensor, np.float32, order="C")
        if tensor.ndim == 2:
            scale = np.abs(tensor).max(axis=1, keepdims=True) / np.float32(_LARGEST)
            result[f"{name}_scale"] = scale
            tensor = np.rint(tensor / np.where(scale == 0, 1, scale)).astype(np.int8)
        result[name] = tensor
    return result


def find_scales(entries: Mapping[str, TensorEntry]) -> dict[str, str]:
    """Returns the names of the scales by the names of their 8-bit matrices; those with zero points are left out."""
    scales = {}
    for name, entry in entries.items():
        scale = entries.get(f"{name}_scale")
        if entry.dtype != "I8" or len(entry.shape) != 2 or scale is None or f"{name}_zero_point" in entries:
            continue
        if scale.shape == (entry.shape[0], 1) and scale.dtype in _SCALE_TYPES:
            scales[name] = f"{name}_scale"
    return scales
