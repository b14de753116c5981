"""Texts without their padding, one after the other in one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_bert.layers.attention_mask import BIDIRECTIONAL, make_attention_mask
from keras_bert.layers.tensorflow.custom_gradients import custom_gradient, first_order_only

# More groups have less padding, and each of them repeats the operations of attention in every layer's graph.
_NUM_GROUPS = 4


class PackedTexts:
    """A padded batch of texts as one row that has their tokens only.

    What an encoder computes token by token takes no time for padding then. Attention works on groups of texts of
    similar length, each of which is padded to its own longest text.

    Args:
        padding_mask: int32 tensor [texts, length], 1 for tokens and 0 for padding.
        attention_direction: that of the encoder.

    Attributes:
        position_ids: int32 [1, tokens], where each token is in its text.
        padding_masks: the padding masks of the groups, int32 [texts, length].
        attention_masks: what `make_attention_mask` returns for each of them.

    >>> packed = PackedTexts(tf.constant([[1, 1, 1], [1, 0, 0]]))
    >>> row = packed.pack(tf.constant([[7, 8, 9], [5, 0, 0]]))
    >>> row.numpy().tolist(), packed.position_ids.numpy().tolist()
    ([[5, 7, 8, 9]], [[0, 0, 1, 2]])
    >>> groups = packed.split(row)
    >>> [group.numpy().tolist() for group in groups]
    [[], [[5]], [], [[7, 8, 9]]]
    >>> packed.join(groups).numpy().tolist()
    [[5, 7, 8, 9]]
    """

    def __init__(self, padding_mask: tf.Tensor, attention_direction: str = BIDIRECTIONAL) -> None:
        texts, length = tf.unstack(tf.shape(padding_mask))
        last_tokens = tf.reduce_max(padding_mask * tf.range(1, length + 1), axis=1)  # [texts], from 1
        order = tf.argsort(last_tokens, stable=True)
        self._places = tf.argsort(order)  # [texts]: where each text is in the order of the row
        padding_mask, last_tokens = tf.gather(padding_mask, order), tf.gather(last_tokens, order)
        self.padding_masks: list[tf.Tensor] = []
        self._indices: list[tf.Tensor] = []  # [tokens of a group]: where they are among its positions
        self._numbers: list[tf.Tensor] = []  # [positions of a group]: the token at each; padding: their number
        for group in range(_NUM_GROUPS):
            rows = slice(texts * group // _NUM_GROUPS, texts * (group + 1) // _NUM_GROUPS)
            mask = padding_mask[rows, : tf.reduce_max(tf.concat([[1], last_tokens[rows]], 0))]
            self.padding_masks.append(mask)
            is_token = tf.reshape(mask, [-1]) > 0
            indices, counts = tf.where(is_token)[:, 0], tf.cumsum(tf.cast(is_token, tf.int32))
            self._indices.append(indices)
            self._numbers.append(tf.where(is_token, counts - 1, tf.size(indices)))
        self.attention_masks = [make_attention_mask(mask, attention_direction) for mask in self.padding_masks]
        tokens = tf.where(padding_mask > 0)
        self._tokens = tf.stack([tf.gather(tf.cast(order, tf.int64), tokens[:, 0]), tokens[:, 1]], axis=1)
        self.position_ids = tf.cast(tokens[None, :, 1], tf.int32)

    def pack(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the row [1, tokens] of a batch [texts, length]."""
        return tf.gather_nd(ids, self._tokens)[None]

    def split(self, row: tf.Tensor) -> list[tf.Tensor]:
        """Returns the groups [texts, length, ...] of a row [1, tokens, ...]; their padding is 0."""
        parts = tf.split(tf.squeeze(row, 0), [tf.size(indices) for indices in self._indices], num=_NUM_GROUPS)
        groups = []
        for part, indices, numbers, mask in zip(parts, self._indices, self._numbers, self.padding_masks, strict=True):
            padded = tf.reshape(_pad(part, indices, numbers), tf.concat([tf.shape(mask), tf.shape(part)[1:]], 0))
            groups.append(tf.ensure_shape(padded, [None, None, *row.shape[2:]]))
        return groups

    def join(self, groups: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the row [1, tokens, ...] of the groups that `split` returns."""
        rows = []
        for group, indices, numbers in zip(groups, self._indices, self._numbers, strict=True):
            rows.append(_drop_padding(tf.reshape(group, tf.concat([[-1], tf.shape(group)[2:]], 0)), indices, numbers))
        return tf.concat(rows, 0)[None]

    def in_order(self, vectors: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the vectors [texts, ...] of all groups in the order of the batch."""
        return tf.gather(tf.concat(vectors, 0), self._places)


# Each of the two is the gradient of the other. TensorFlow's own gradient of a lookup adds up rows, on one core.
def _pad(rows: tf.Tensor, indices: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Returns the positions [texts * length, ...] of a padded batch whose tokens are `rows`; padding is 0."""

    @custom_gradient
    def pad(rows: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return _with_zeros(rows, numbers), lambda upstream: first_order_only(tf.gather(upstream, indices))

    return pad(rows)


def _drop_padding(positions: tf.Tensor, indices: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Returns the tokens among the positions [texts * length, ...] of a padded batch."""

    @custom_gradient
    def drop(positions: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return tf.gather(positions, indices), lambda upstream: first_order_only(_with_zeros(upstream, numbers))

    return drop(positions)


def _with_zeros(rows: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Returns the rows of tokens, and zeros for padding. A lookup, which uses all cores, unlike `tf.scatter_nd`."""
    zero = tf.zeros(tf.concat([[1], tf.shape(rows)[1:]], 0), rows.dtype)
    return tf.gather(tf.concat([rows, zero], 0), numbers)
