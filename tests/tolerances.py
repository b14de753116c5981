"""Tolerances for comparing floating-point numbers, valid on every processor.

Processors differ in the order of sums, in fused multiply-adds and in approximations of functions such as `exp`. Two
ways to compute the same number therefore differ by rounding errors, whose size follows from the precision of the type,
the magnitude of the values and the number of terms in the sums. Compare bit by bit only what runs the same operations
on the same shapes.
"""

import ml_dtypes
import numpy as np

# The rounding error of a sum grows with the square root of its length, times a factor that depends on the order.
_SAFETY_FACTOR = 4.0
GOLDEN_LIMIT = 1e-5  # required of float32 outputs: the difference from stored ones of other implementations
TRAINING_LIMIT = 1e-6  # required of float32 weights after training by `fit`, the Trainer, or the original's optimizer


def tolerance(dtype="float32", magnitude=1.0, num_terms=1):
    """Returns the largest difference to expect between two ways to compute the same number in `dtype`.

    Args:
        dtype: Name of a floating-point type.
        magnitude: Largest absolute value of the result and of the terms that it is a sum of.
        num_terms: Number of terms in the sums, added up over layers that follow each other. For weights after
            training: number of examples or tokens that a gradient is summed over.
    """
    return _SAFETY_FACTOR * float(ml_dtypes.finfo(dtype).eps) * float(magnitude) * num_terms**0.5


def assert_close(actual, expected, num_terms=1, dtype="float32", magnitude=None, limit=None):
    """Fails if two arrays, or sequences or dicts of arrays, differ by more than `limit`, by default `tolerance`.

    The default magnitude is the largest absolute value in `expected`, for each array by itself.
    """
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        actual, expected = [actual[name] for name in expected], [*map(np.atleast_1d, expected.values())]
    if isinstance(expected, list | tuple) and len(expected) and np.ndim(expected[0]):
        for one, other in zip(actual, expected, strict=True):
            assert_close(one, other, num_terms, dtype, magnitude, limit)
        return
    actual, expected = np.asarray(actual).astype("float64"), np.asarray(expected).astype("float64")
    if magnitude is None:
        magnitude = np.abs(expected).max(initial=0.0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=limit or tolerance(dtype, magnitude, num_terms))
