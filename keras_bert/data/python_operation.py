"""Python functions as operations of a tf.data pipeline, without which a program cannot end.

A pipeline works ahead in threads of its own. If the interpreter ends while one of them is inside a Python function, it
never comes back, and the pipeline's destructor waits for it: the process hangs, above all after an error, whose
traceback holds the iterator until the very end. So, before the interpreter ends, calls that are under way are waited
for, and later ones fail at once.
"""

import atexit
import threading
import time

import tensorflow as tf

_QUIET_SECONDS = 0.1  # a pipeline that fails makes a few more calls, right after one another
_LONGEST_WAIT_SECONDS = 60.0


def python_operation(function, inputs, dtypes):
    """Calls a function of NumPy arrays in a pipeline.

    Args:
        function: function of arrays, one for each input, that gives arrays. The same inputs must give the same result.
        inputs: list of tensors.
        dtypes: tuple of tf.DType, those of the results.

    Returns:
        list of tensors of unknown shape.

    Example:

    >>> numbers = tf.data.Dataset.range(3).map(lambda n: python_operation(lambda n: n * n, [n], (tf.int64,)))
    >>> [int(square) for (square,) in numbers]
    [0, 1, 4]
    """
    return tf.numpy_function(lambda *arrays: _calls.call(function, arrays), inputs, dtypes, stateful=False)


class _Calls:
    """The calls of this process."""

    def __init__(self):
        self._changed = threading.Condition()
        self._running, self._is_closed, self._last_end = 0, False, 0.0

    def call(self, function, arrays):
        with self._changed:
            if self._is_closed:
                self._last_end = time.monotonic()
                raise RuntimeError("the program ends")
            self._running += 1
        try:
            return function(*arrays)
        finally:
            with self._changed:
                self._running -= 1
                self._last_end = time.monotonic()
                self._changed.notify_all()

    def close(self):
        give_up = time.monotonic() + _LONGEST_WAIT_SECONDS
        with self._changed:
            self._is_closed = True
            if not self._running and not self._last_end:
                return
            self._changed.wait_for(lambda: not self._running, _LONGEST_WAIT_SECONDS)
        while time.monotonic() < min(self._last_end + _QUIET_SECONDS, give_up):
            time.sleep(_QUIET_SECONDS / 10)


_calls = _Calls()
atexit.register(_calls.close)
