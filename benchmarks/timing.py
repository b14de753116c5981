"""How long a call takes."""

import statistics
import time


def median_seconds(function, repeats, warm_ups=2):
    """The median time of a call.

    Args:
        function: function without arguments, which is done when it returns.
        repeats: int. Calls that count.
        warm_ups: int. Calls before them that do not: they trace, allocate, and fill caches.

    Returns:
        float.

    Example:

    >>> median_seconds(lambda: None, repeats=3) < 1
    True
    """
    for _ in range(warm_ups):
        function()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
