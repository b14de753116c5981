"""Instances as TFRecord records, in the formats of google-research/bert ("bert") and tensorflow/models ("models")."""

import functools
from collections.abc import Mapping

import tensorflow as tf
from google.protobuf.message import DecodeError

# By format, the feature of the file for each of our names.
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
FEATURE_NAMES["models"] = {**FEATURE_NAMES["bert"], "token_ids": "input_word_ids", "segment_ids": "input_type_ids"}


def serialize_records(instances: Mapping[str, tf.Tensor], record_format: str = "bert") -> list[bytes]:
    """Serializes a batch of instances, a dict of arrays `[batch, ...]`, to one record per instance.

    Source: `write_instance_to_example_files` in google-research/bert; "models" is the format of tensorflow/models.
    """
    columns = {}
    for name, feature_name in FEATURE_NAMES[record_format].items():
        values = tf.cast(instances[name], _dtype(name))
        columns[feature_name] = tf.reshape(values, [tf.shape(values)[0], -1])
    return _serializer(record_format)(columns).numpy().tolist()


def _dtype(name: str) -> tf.DType:
    return tf.float32 if name == "masked_weights" else tf.int64


@functools.cache
def _serializer(record_format: str) -> tf.types.experimental.PolymorphicFunction:
    """Returns a graph that makes a tf.train.Example of each row, about four times as fast as protobuf in Python."""
    names = FEATURE_NAMES[record_format]
    columns = {feature_name: tf.TensorSpec([None, None], _dtype(name)) for name, feature_name in names.items()}
    return tf.function(_encode_examples, input_signature=[columns], autograph=False)


def _encode_examples(columns: dict[str, tf.Tensor]) -> tf.Tensor:
    entries = []
    for name, values in sorted(columns.items()):  # any order is valid in a map; this one is reproducible
        kind, list_name = ("FloatList", "float_list") if values.dtype == tf.float32 else ("Int64List", "int64_list")
        feature = _encode("Feature", {list_name: _encode(kind, {"value": values})[:, None]})
        keys = tf.fill([tf.shape(values)[0], 1], name)
        entries.append(_encode("Features.FeatureEntry", {"key": keys, "value": feature[:, None]}))
    features = _encode("Features", {"feature": tf.stack(entries, axis=1)})
    return _encode("Example", {"features": features[:, None]})


def _encode(message: str, fields: dict[str, tf.Tensor]) -> tf.Tensor:
    """Encodes a batch of messages to strings `[batch]`, from values `[batch, n]` of each field."""
    sizes = [tf.fill([tf.shape(values)[0]], tf.shape(values)[1]) for values in fields.values()]
    return tf.io.encode_proto(tf.stack(sizes, axis=1), list(fields.values()), list(fields), f"tensorflow.{message}")


def describe_record(record: bytes) -> dict[str, str | int]:
    """Returns `record_format`, `sequence_length` and `max_predictions` of a record."""
    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError as error:
        raise ValueError(f"a record is not a tf.train.Example: {error}") from error
    for record_format, names in FEATURE_NAMES.items():
        if set(names.values()) <= set(features):
            return {
                "record_format": record_format,
                "sequence_length": len(features[names["token_ids"]].int64_list.value),
                "max_predictions": len(features[names["masked_positions"]].int64_list.value),
            }
    raise ValueError(
        f"a record has the features {sorted(features)}; pre-training instances have "
        f"{sorted(FEATURE_NAMES['bert'].values())}, or input_word_ids and input_type_ids instead of input_ids and "
        "segment_ids"
    )


def parse_records(
    records: tf.Tensor, record_format: str, sequence_length: int, max_predictions: int
) -> dict[str, tf.Tensor]:
    """Parses serialized records, strings `[batch]`, to the dict of tensors that `InstanceMaker.make` returns."""
    lengths = dict.fromkeys(("token_ids", "padding_mask", "segment_ids"), sequence_length)
    lengths |= dict.fromkeys(("masked_positions", "masked_labels", "masked_weights"), max_predictions)
    names = FEATURE_NAMES[record_format]
    features = {
        feature_name: tf.io.FixedLenFeature([lengths[name]] if name in lengths else [], _dtype(name))
        for name, feature_name in names.items()
    }
    parsed = tf.io.parse_example(records, features)
    return {
        name: parsed[feature_name] if name == "masked_weights" else tf.cast(parsed[feature_name], tf.int32)
        for name, feature_name in names.items()
    }
