"""A caller's tf.data datasets of texts and labels, as datasets of ids and numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging


def holds_texts(dataset: tf.data.Dataset) -> bool:
    """Returns whether the inputs of a dataset, `x`, `(x, y)` or `(x, y, sample_weight)`, are texts."""
    return any(leaf.dtype == tf.string for leaf in _input_specs(dataset))


def prepare_dataset(
    dataset: tf.data.Dataset,
    preprocessor: Callable[[Any], dict[str, tf.Tensor]] | None,
    encode_labels: Callable[[Any], Any],
) -> tf.data.Dataset:
    """Converts a batched dataset of texts or ids, `x`, `(x, y)` or `(x, y, sample_weight)`, to ids and numbers.

    x is a string tensor [batch], a pair or a dict of them, or a dict of id tensors [batch, length]; `encode_labels`
    turns a label tensor [batch] into numbers. Raises ValueError if the dataset is not batched, or holds texts and there
    is no preprocessor.
    """
    spec = dataset.element_spec
    if any(leaf.shape.rank == 0 for leaf in _input_specs(dataset)):
        raise ValueError("the dataset is not batched; call dataset.batch(batch_size) first")
    if isinstance(spec, tuple) and len(spec) > 1:
        dataset = dataset.map(lambda x, y, *rest: (x, encode_labels(y), *rest), num_parallel_calls=tf.data.AUTOTUNE)
    if not holds_texts(dataset):
        return dataset
    if preprocessor is None:
        raise ValueError("the dataset holds texts, but this model has no preprocessor and takes ids only")
    preprocess = _counting_long_texts(preprocessor)

    def to_ids(texts: Any, *rest: Any) -> Any:
        ids = preprocess(texts)
        return (ids, *rest) if rest else ids

    options = tf.data.Options()
    # There are no files to distribute among replicas: rows are.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = dataset.map(to_ids, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)


def _input_specs(dataset: tf.data.Dataset) -> list[Any]:
    spec = dataset.element_spec
    return tf.nest.flatten(spec[0] if isinstance(spec, tuple) else spec)


def _counting_long_texts(preprocessor: Any) -> Callable[[Any], dict[str, tf.Tensor]]:
    """Wraps the preprocessor: logs how many texts were too long, at 1, 10, 100, ... of them."""
    total = 0

    def count(number: tf.Tensor) -> int:
        nonlocal total
        before, total = total, total + int(number)
        if len(str(before)) < len(str(total)) or not before:
            logging.warning(
                "%d texts of the dataset so far are longer than %d tokens and were truncated or split into windows",
                total,
                preprocessor.sequence_length,
            )
        return 0  # a graph can only wait for what has a value

    def preprocess(texts: Any) -> dict[str, tf.Tensor]:
        number = tf.reduce_sum(tf.cast(preprocessor.token_counts(texts) > preprocessor.sequence_length, tf.int32))
        counted = tf.cond(number > 0, lambda: tf.py_function(count, [number], tf.int32), lambda: 0)
        with tf.control_dependencies([counted]):
            return {name: tf.identity(values) for name, values in preprocessor(texts).items()}

    return preprocess


def encode_single_labels(labels: tf.Tensor, names: Sequence[str]) -> tf.Tensor:
    """Encodes label names or numbers, [batch] or [batch, 1], in the graph as int32 [batch].

    Raises ValueError on another shape or dtype, and InvalidArgumentError when it runs on a label that is not in
    `names`.
    """
    if labels.shape.rank not in (None, 1) and labels.shape[1:] != [1]:
        raise ValueError(f"single labels in a dataset must have the shape [batch], got {labels.shape}")
    if not (labels.dtype == tf.string or labels.dtype.is_integer or labels.dtype.is_bool):
        raise ValueError(f"single labels in a dataset must be names or whole numbers, got {labels.dtype.name}")
    labels = tf.reshape(labels, [-1])
    if labels.dtype != tf.string:
        labels = tf.cast(labels, tf.int64)
    known_labels = tf.constant(names) if labels.dtype == tf.string else tf.range(len(names), dtype=tf.int64)
    is_label = labels[:, None] == known_labels  # [batch, names]
    is_known = tf.reduce_any(is_label, axis=1)
    check = tf.debugging.Assert(
        tf.reduce_all(is_known),
        ["labels that the model does not have:", tf.boolean_mask(labels, ~is_known), "it has:", known_labels],
    )
    with tf.control_dependencies([check]):
        return tf.argmax(tf.cast(is_label, tf.int32), axis=1, output_type=tf.int32)


def encode_label_rows(labels: tf.Tensor, num_labels: int, is_binary: bool) -> tf.Tensor:
    """Checks rows of numbers, [batch, num_labels] or [batch], in the graph; returns float32 [batch, num_labels].

    With `is_binary` only 0 and 1 are allowed. Raises ValueError on another width or dtype, and InvalidArgumentError
    when it runs on numbers that are not allowed.
    """
    if num_labels == 1 and labels.shape.rank == 1:
        labels = labels[:, None]
    if labels.dtype == tf.string or labels.shape.rank not in (None, 2) or labels.shape[1] not in (None, num_labels):
        raise ValueError(
            f"labels in a dataset must be numbers of the shape [batch, {num_labels}], got {labels.dtype.name} "
            f"{labels.shape}; write several label names at once as zeros and ones"
        )
    labels = tf.cast(labels, tf.float32)
    if not is_binary:
        return labels
    is_allowed = tf.reduce_all((labels == 0) | (labels == 1))
    with tf.control_dependencies([tf.debugging.Assert(is_allowed, ["labels other than zeros and ones:", labels])]):
        return tf.identity(labels)
