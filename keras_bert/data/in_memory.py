"""Texts that a caller holds in memory, as batches of ids."""

import numpy as np
import tensorflow as tf
from absl import logging

# Texts tokenized at once when only their lengths are wanted.
_COUNTING_BATCH_SIZE = 1024


def text_batches(columns, preprocessor, batch_size, labels=None, sample_weight=None, shuffle_seed=None):
    """Batches of packed ids from texts in memory, each batch padded to its own longest text.

    Args:
        columns: dict of column name to array of strings, as `text_columns` gives.
        preprocessor: a function from a dict of string tensors [batch] to a dict of id tensors.
        batch_size: int. Texts in a batch; the last batch may be smaller.
        labels: array [number of texts, ...] or None.
        sample_weight: array [number of texts] or None.
        shuffle_seed: int, or None for the order given. A new order is drawn in every pass; the seed fixes all of them.

    Returns:
        tf.data.Dataset of `ids`, `(ids, labels)` or `(ids, labels, sample_weight)`.

    Example:

    >>> batches = text_batches({"text": np.array(["a", "b", "c"], object)}, lambda columns: columns, batch_size=2)
    >>> [len(batch["text"]) for batch in batches]
    [2, 1]
    """
    parts = [columns] + [np.asarray(part) for part in (labels, sample_weight) if part is not None]
    dataset = tf.data.Dataset.from_tensor_slices(tuple(parts))
    if shuffle_seed is not None:
        dataset = dataset.shuffle(len(next(iter(columns.values()))), seed=shuffle_seed, reshuffle_each_iteration=True)
    dataset = dataset.batch(batch_size, num_parallel_calls=tf.data.AUTOTUNE)
    return preprocess_batches(dataset, preprocessor)


def preprocess_batches(dataset, preprocessor):
    """Turns the texts in a batched dataset into packed ids.

    Args:
        dataset: tf.data.Dataset of batches: texts, or tuples that begin with texts. Texts are a string tensor [batch]
            or a dict of them.
        preprocessor: a function from such texts to a dict of id tensors.

    Returns:
        tf.data.Dataset with ids in the place of texts. Keras takes the rest as labels and sample weights.

    Example:

    >>> dataset = tf.data.Dataset.from_tensors((tf.constant(["a"]), tf.constant([1])))
    >>> next(iter(preprocess_batches(dataset, tf.strings.upper)))[0].numpy()
    array([b'A'], dtype=object)
    """

    def preprocess(texts, *rest):
        ids = preprocessor(texts)
        return (ids, *rest) if rest else ids

    options = tf.data.Options()
    # There are no files to share out between replicas: rows are.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = dataset.map(preprocess, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)


def prepare_dataset(dataset, preprocessor, encode_labels):
    """A caller's dataset of batches of texts or ids, as one of ids and numbers.

    Args:
        dataset: tf.data.Dataset of batches: `x`, `(x, y)` or `(x, y, sample_weight)`; x is a string tensor [batch], a
            pair or a dict of them, or a dict of id tensors [batch, length].
        preprocessor: a function from texts to ids, or None if only ids can be taken.
        encode_labels: a function from a label tensor [batch] to numbers.

    Returns:
        tf.data.Dataset of the same tuples, with ids and numbers.

    Raises:
        ValueError: if the dataset is not batched, or holds texts and there is no preprocessor.

    Example:

    >>> dataset = tf.data.Dataset.from_tensors(({"token_ids": [[2, 45, 3]]}, [1]))
    >>> next(iter(prepare_dataset(dataset, None, lambda y: y + 1)))[1].numpy().tolist()
    [2]
    """
    spec = dataset.element_spec
    inputs = spec[0] if isinstance(spec, tuple) else spec
    leaves = tf.nest.flatten(inputs)
    if any(leaf.shape.rank == 0 for leaf in leaves):
        raise ValueError("the dataset is not batched; call dataset.batch(batch_size) first")
    if isinstance(spec, tuple) and len(spec) > 1:
        dataset = dataset.map(lambda x, y, *rest: (x, encode_labels(y), *rest), num_parallel_calls=tf.data.AUTOTUNE)
    if all(leaf.dtype != tf.string for leaf in leaves):
        return dataset
    if preprocessor is None:
        raise ValueError("the dataset holds texts, but this model has no preprocessor and takes ids only")
    return preprocess_batches(dataset, _counting_long_texts(preprocessor))


def _counting_long_texts(preprocessor):
    """The preprocessor, saying in the log how many texts were too long, at 1, 10, 100, ... of them."""
    total = 0

    def count(number):
        nonlocal total
        before, total = total, total + int(number)
        if len(str(before)) < len(str(total)) or not before:
            logging.warning(
                "%d texts of the dataset so far are longer than %d tokens and were %s",
                total,
                preprocessor.sequence_length,
                treatment_of_long_texts(preprocessor),
            )
        return 0  # a graph can only wait for what has a value

    def preprocess(texts):
        number = tf.reduce_sum(tf.cast(preprocessor.token_counts(texts) > preprocessor.sequence_length, tf.int32))
        counted = tf.cond(number > 0, lambda: tf.py_function(count, [number], tf.int32), lambda: 0)
        with tf.control_dependencies([counted]):
            return {name: tf.identity(values) for name, values in preprocessor(texts).items()}

    return preprocess


def treatment_of_long_texts(preprocessor):
    """What a preprocessor does with texts that are too long, in words for the log.

    Args:
        preprocessor: a `BertPreprocessor`.

    Returns:
        str.
    """
    return "truncated" if preprocessor.long_texts == "truncate" else "cut into windows (of a pair, its second text)"


def count_tokens(columns, preprocessor):
    """The tokens of every text, with the special ones, before anything is cut off.

    Args:
        columns: dict of column name to array of strings.
        preprocessor: a `BertPreprocessor`.

    Returns:
        int array [number of texts].
    """
    batches = tf.data.Dataset.from_tensor_slices(columns).batch(_COUNTING_BATCH_SIZE)
    counted = batches.map(preprocessor.token_counts, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    counts = [batch.numpy() for batch in counted]
    return np.concatenate(counts) if counts else np.zeros([0], "int32")


def trim_padding(ids):
    """Cuts off the columns that are padding in the whole batch.

    Args:
        ids: dict of int tensors [batch, length], with `padding_mask`.

    Returns:
        dict of int tensors [batch, length of the longest].

    Example:

    >>> trim_padding({"padding_mask": tf.constant([[1, 0, 0], [1, 1, 0]])})["padding_mask"].numpy().tolist()
    [[1, 0], [1, 1]]
    """
    last = tf.reduce_max(tf.where(ids["padding_mask"] != 0)[:, 1])
    longest = tf.maximum(last + 1, 1)
    return {name: values[:, :longest] for name, values in ids.items()}


def log_long_texts(token_counts, sequence_length, treatment):
    """Says in the log how many texts are longer than the model takes, if any.

    Args:
        token_counts: int array [number of texts]. Tokens of each, with the special ones.
        sequence_length: int. The longest input.
        treatment: str. What happens to such texts, for example "truncated".

    Returns:
        int, the number of long texts.

    Example:

    >>> log_long_texts(np.array([5, 200]), 128, "truncated")
    1
    """
    too_long = int(np.sum(np.asarray(token_counts) > sequence_length))
    if too_long:
        logging.warning(
            "%d of %d texts are longer than %d tokens and were %s (the longest has %d)",
            too_long,
            len(token_counts),
            sequence_length,
            treatment,
            int(np.max(token_counts)),
        )
    return too_long


def encode_single_labels(labels, names):
    """Labels in a tensor, names or numbers, as numbers that are certain to be labels.

    Args:
        labels: string or integer tensor [batch] or [batch, 1].
        names: list of str, the labels in order.

    Returns:
        int32 tensor [batch].

    Raises:
        ValueError: if the tensor is of another shape or dtype.
        tf.errors.InvalidArgumentError: when it runs on a label that is not in the list.

    Example:

    >>> encode_single_labels(tf.constant(["b", "a"]), ["a", "b"]).numpy().tolist()
    [1, 0]
    """
    if labels.shape.rank not in (None, 1) and labels.shape[1:] != [1]:
        raise ValueError(f"single labels in a dataset must have the shape [batch], got {labels.shape}")
    if not (labels.dtype == tf.string or labels.dtype.is_integer or labels.dtype.is_bool):
        raise ValueError(f"single labels in a dataset must be names or whole numbers, got {labels.dtype.name}")
    labels = tf.reshape(labels, [-1])
    if labels.dtype != tf.string:
        labels = tf.cast(labels, tf.int64)
    known_labels = tf.constant(names) if labels.dtype == tf.string else tf.range(len(names), dtype=tf.int64)
    equal = labels[:, None] == known_labels  # [batch, names]
    known = tf.reduce_any(equal, axis=1)
    unknown = tf.boolean_mask(labels, ~known)
    check = tf.debugging.Assert(
        tf.reduce_all(known), ["labels that the model does not have:", unknown, "it has:", known_labels]
    )
    with tf.control_dependencies([check]):
        return tf.argmax(tf.cast(equal, tf.int32), axis=1, output_type=tf.int32)


def encode_label_rows(labels, number, zeros_and_ones):
    """Rows of numbers in a tensor, as the float rows that a loss takes.

    Args:
        labels: number tensor [batch, number], or [batch] if `number` is 1.
        number: int, the width of a row.
        zeros_and_ones: bool. Whether nothing else is allowed.

    Returns:
        float32 tensor [batch, number].

    Raises:
        ValueError: if the tensor is of another width or dtype.
        tf.errors.InvalidArgumentError: when it runs on numbers that are not allowed.

    Example:

    >>> encode_label_rows(tf.constant([3, 4]), 1, zeros_and_ones=False).numpy().tolist()
    [[3.0], [4.0]]
    """
    if number == 1 and labels.shape.rank == 1:
        labels = labels[:, None]
    if labels.dtype == tf.string or labels.shape.rank not in (None, 2) or labels.shape[1] not in (None, number):
        raise ValueError(
            f"labels in a dataset must be numbers of the shape [batch, {number}], "
            f"got {labels.dtype.name} {labels.shape}; "
            "several names at once are written as zeros and ones"
        )
    labels = tf.cast(labels, tf.float32)
    if not zeros_and_ones:
        return labels
    allowed = tf.reduce_all((labels == 0) | (labels == 1))
    with tf.control_dependencies([tf.debugging.Assert(allowed, ["labels other than zeros and ones:", labels])]):
        return tf.identity(labels)
