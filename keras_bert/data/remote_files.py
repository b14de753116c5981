"""Files that may lie in a bucket of the cloud, where each look-up takes a while."""

from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

_LOOK_UPS_AT_ONCE = 16  # a bucket in the cloud takes some 50 ms for each, whatever their number


def look_up_each(look_up, paths):
    """What a function finds out about each file, many of them at a time.

    Args:
        look_up: function of a path.
        paths: iterable of str.

    Returns:
        list of its results, in the order of the paths.

    Example:

    >>> look_up_each(len, ["gs://bucket/a", "b"])
    [13, 1]
    """
    with ThreadPoolExecutor(_LOOK_UPS_AT_ONCE) as threads:
        return list(threads.map(look_up, paths))


def matching_files(pattern):
    """The files that a user means by a name or a pattern.

    Args:
        pattern: str. A name may have characters that mean something else in a pattern.

    Returns:
        list of str, in alphabetical order.

    Raises:
        FileNotFoundError: if there are none.

    Example:

    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.txt", "a.txt"):
    ...     _ = (folder / name).write_text("text")
    >>> [Path(path).name for path in matching_files(f"{folder}/*.txt")]
    ['a.txt', 'b.txt']
    """
    found = [pattern] if tf.io.gfile.exists(pattern) else sorted(tf.io.gfile.glob(pattern))
    if not found:
        raise FileNotFoundError(f"no file is named {pattern}, and none matches it as a pattern")
    return found
