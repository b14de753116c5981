"""Many parts of a few texts, in time and memory that grow with the texts and the parts, not with their product."""

import functools

import tensorflow as tf


class Substrings:
    """Looks up parts of texts `[batch]` by their bytes, in the graph.

    `tf.strings.substr(tf.gather(texts, rows), ...)` copies a whole text for each part of it.
    """

    def __init__(self, texts: tf.Tensor):
        self._joined = tf.strings.reduce_join(texts)
        self._begins = tf.cumsum(tf.strings.length(texts), exclusive=True)  # [batch], in `_joined`

    def between(self, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Returns the bytes from `starts` to `ends`, int32 `[parts]`, of the texts number `rows`: string `[parts]`."""
        return tf.strings.substr(self._joined, tf.gather(self._begins, rows) + starts, ends - starts)

    def characters_before(self, rows: tf.Tensor, *offsets: tf.Tensor) -> list[tf.Tensor]:
        """Converts byte offsets, each int32 `[parts]`, in the texts number `rows` to offsets of characters."""
        begins = tf.gather(self._begins, rows)
        before = tf.gather(self._num_characters, begins)
        return [tf.gather(self._num_characters, begins + offset) - before for offset in offsets]

    @functools.cached_property
    def _num_characters(self) -> tf.Tensor:
        """Number of characters before each byte of the joined texts and before their end, int32 [bytes + 1]."""
        is_first_byte = tf.bitwise.bitwise_and(tf.io.decode_raw(self._joined, tf.uint8), 0xC0) != 0x80
        return tf.pad(tf.cumsum(tf.cast(is_first_byte, tf.int32)), [[1, 0]])
