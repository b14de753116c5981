"""Parallel look-ups of paths that may be in cloud storage, where each one is slow."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_PARALLEL_LOOKUPS = 16  # cloud storage takes about 50 ms for each, however many there are


def look_up_each(look_up: Callable[[str], T], paths: Iterable[str]) -> list[T]:
    """Calls a function for each path, several at a time, and returns the results in the order of the paths."""
    with ThreadPoolExecutor(_PARALLEL_LOOKUPS) as threads:
        return list(threads.map(look_up, paths))


def matching_files(patterns: Iterable[str]) -> list[str]:
    """Expands glob patterns on any file system of `tf.io.gfile`; a path that exists is not taken for a pattern.

    The files of each pattern are sorted; `**` is not supported. Raises FileNotFoundError if a pattern matches no file,
    or a path is a folder.
    """
    import tensorflow as tf  # only this function of the module needs it

    files = []
    for pattern in patterns:
        if tf.io.gfile.isdir(pattern):
            raise FileNotFoundError(f"{pattern} is a folder; give a pattern of its files, such as '{pattern}/*.txt'")
        found = [pattern] if tf.io.gfile.exists(pattern) else sorted(tf.io.gfile.glob(pattern))
        if not found:
            raise FileNotFoundError(f"no file is named {pattern}, and none matches it as a pattern")
        files += found
    return files
