"""Python functions as operations of a tf.data pipeline that do not prevent a program from exiting.

A pipeline works ahead in its own threads. If the interpreter ends while one of them is inside a Python function, that
call never returns, and the pipeline's destructor waits for it: the process hangs, typically after an error, whose
traceback holds the iterator until the very end. So at exit, running calls are waited for, and later ones fail at once.
"""

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_QUIET_SECONDS = 0.1  # a failing pipeline makes a few more calls, shortly one after another
_MAX_WAIT_SECONDS = 60.0


def python_operation(
    function: Callable[..., Any], inputs: Sequence[tf.Tensor], dtypes: Sequence[tf.DType]
) -> list[tf.Tensor]:
    """Calls a deterministic function of NumPy arrays in a pipeline; the results have unknown shapes."""
    return tf.numpy_function(lambda *arrays: _calls.call(function, arrays), inputs, dtypes, stateful=False)


class _Calls:
    """Keeps track of the running calls of this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_running, self._is_closed, self._last_end = 0, False, 0.0

    def call(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        with self._changed:
            if self._is_closed:
                self._last_end = time.monotonic()
                raise RuntimeError("the program is exiting")
            self._num_running += 1
        try:
            return function(*arrays)
        finally:
            with self._changed:
                self._num_running -= 1
                self._last_end = time.monotonic()
                self._changed.notify_all()

    def close(self) -> None:
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        with self._changed:
            self._is_closed = True
            if not self._num_running and not self._last_end:
                return
            self._changed.wait_for(lambda: not self._num_running, _MAX_WAIT_SECONDS)
        while time.monotonic() < min(self._last_end + _QUIET_SECONDS, deadline):
            time.sleep(_QUIET_SECONDS / 10)


_calls = _Calls()
atexit.register(_calls.close)
