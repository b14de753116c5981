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


def matching_files(patterns):
    """The files that a user means by names and patterns.

    Args:
        patterns: list of str. A name may have characters that mean something else in a pattern; `**` is none.

    Returns:
        list of str, those of each pattern in alphabetical order.

    Raises:
        FileNotFoundError: if one has no files, or is the name of a folder.

    Example:

    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.txt", "a.txt"):
    ...     _ = (folder / name).write_text("text")
    >>> [Path(path).name for path in matching_files([f"{folder}/*.txt"])]
    ['a.txt', 'b.txt']
    """
    return [file for pattern in patterns for file in _files_of(pattern)]


def _files_of(pattern):
    if tf.io.gfile.isdir(pattern):
        raise FileNotFoundError(f"{pattern} is a folder; give a pattern of its files, such as '{pattern}/*.txt'")
    found = [pattern] if tf.io.gfile.exists(pattern) else sorted(tf.io.gfile.glob(pattern))
    if not found:
        raise FileNotFoundError(f"no file is named {pattern}, and none matches it as a pattern")
    return found
