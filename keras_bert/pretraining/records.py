"""Instances of pre-training as records of TFRecord files, as google-research/bert and tensorflow/models write them."""

import functools

import tensorflow as tf
from google.protobuf.message import DecodeError

# By form, the name in the file of what is called so here.
FEATURE_NAMES = {
    "bert": {
        "token_ids": "input_ids",
        "padding_mask": "input_mask",
        "segment_ids": "segment_ids",
        "masked_positions": "masked_lm_positions",
        "masked_labels": "masked_lm_ids",
        "masked_weights": "masked_lm_weights",
        "next_sentence_labels": "next_sentence_labels",
    }
}
FEATURE_NAMES["models"] = {
    **FEATURE_NAMES["bert"],
    "token_ids": "input_word_ids",
    "segment_ids": "input_type_ids",
}
_FLOATS = ("masked_weights",)


def serialize(instances, form="bert"):
    """Instances as records.

    Source: `write_instance_to_example_files` in google-research/bert `create_pretraining_data.py`; the form "models" is
    that of tensorflow/models with `--use_v2_feature_names`.

    Args:
        instances: dict of arrays or tensors [instances, ...], as `InstanceMaker.make` gives them.
        form: str, "bert" or "models".

    Returns:
        list of bytes.

    Example:

    >>> instances = {name: np.zeros([1, 2]) for name in FEATURE_NAMES["bert"]}
    >>> instances["next_sentence_labels"] = np.ones([1])
    >>> example = tf.train.Example.FromString(serialize(instances)[0])
    >>> example.features.feature["next_sentence_labels"].int64_list.value
    [1]
    """
    columns = {}
    for name, file_name in FEATURE_NAMES[form].items():
        values = tf.cast(instances[name], _dtype(name))
        columns[file_name] = tf.reshape(values, [tf.shape(values)[0], -1])
    return _serializer(form)(columns).numpy().tolist()


def _dtype(name):
    return tf.float32 if name in _FLOATS else tf.int64


@functools.cache
def _serializer(form):
    """A graph that makes a tf.train.Example of each row: about four times as fast as the messages of Python."""
    columns = {file_name: tf.TensorSpec([None, None], _dtype(name)) for name, file_name in FEATURE_NAMES[form].items()}
    return tf.function(_examples, input_signature=[columns], autograph=False)


def _examples(columns):
    entries = []
    for name, values in sorted(columns.items()):  # in a map any order is right; this one is always the same
        kind, list_name = ("FloatList", "float_list") if values.dtype == tf.float32 else ("Int64List", "int64_list")
        feature = _encode("Feature", {list_name: _encode(kind, {"value": values})[:, None]})
        keys = tf.fill([tf.shape(values)[0], 1], name)
        entries.append(_encode("Features.FeatureEntry", {"key": keys, "value": feature[:, None]}))
    features = _encode("Features", {"feature": tf.stack(entries, axis=1)})
    return _encode("Example", {"features": features[:, None]})


def _encode(message, fields):
    """A batch of messages as strings [batch], from the values [batch, number] of each field."""
    numbers = [tf.fill([tf.shape(values)[0]], tf.shape(values)[1]) for values in fields.values()]
    return tf.io.encode_proto(tf.stack(numbers, axis=1), list(fields.values()), list(fields), f"tensorflow.{message}")


def record_form(record):
    """How long the sequences of a file are, and how they are named, from its first record.

    Args:
        record: bytes.

    Returns:
        dict: `form` ("bert" or "models"), `sequence_length` and `max_predictions`.

    Raises:
        ValueError: if it is not a record of pre-training; the message says what it has.

    Example:

    >>> instances = {name: np.zeros([1, 2]) for name in FEATURE_NAMES["bert"]}
    >>> record_form(serialize(instances, "models")[0])
    {'form': 'models', 'sequence_length': 2, 'max_predictions': 2}
    """
    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError as error:
        raise ValueError(f"a record is no tf.train.Example: {error}") from error
    for form, names in FEATURE_NAMES.items():
        if set(names.values()) <= set(features):
            return {
                "form": form,
                "sequence_length": len(features[names["token_ids"]].int64_list.value),
                "max_predictions": len(features[names["masked_positions"]].int64_list.value),
            }
    raise ValueError(
        f"a record has the features {sorted(features)}; instances of pre-training have "
        f"{sorted(FEATURE_NAMES['bert'].values())}, or input_word_ids and input_type_ids instead of input_ids and "
        "segment_ids"
    )


def parse(records, form, sequence_length, max_predictions):
    """Parses a batch of records.

    Args:
        records: string tensor [batch].
        form, sequence_length, max_predictions: as `record_form` gives them.

    Returns:
        dict of tensors, as of `InstanceMaker.make`.

    Raises:
        tf.errors.InvalidArgumentError: if a record has other features or lengths.
    """
    lengths = dict.fromkeys(("token_ids", "padding_mask", "segment_ids"), sequence_length)
    lengths |= dict.fromkeys(("masked_positions", "masked_labels", "masked_weights"), max_predictions)
    names = FEATURE_NAMES[form]
    features = {
        file_name: tf.io.FixedLenFeature(
            [lengths[name]] if name in lengths else [], tf.float32 if name in _FLOATS else tf.int64
        )
        for name, file_name in names.items()
    }
    parsed = tf.io.parse_example(records, features)
    return {
        name: parsed[file_name] if name in _FLOATS else tf.cast(parsed[file_name], tf.int32)
        for name, file_name in names.items()
    }
