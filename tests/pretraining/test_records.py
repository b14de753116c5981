import numpy as np
import pytest
import tensorflow as tf

from keras_bert.pretraining.records import FEATURE_NAMES, describe_record, parse_records, serialize_records
from tests.pretraining.corpora import assert_is_batch, features

LENGTH, PREDICTIONS = 6, 2


def instances(number=5):
    generator = np.random.default_rng(0)
    made = {name: generator.integers(0, 100, [number, LENGTH]) for name in ("token_ids", "padding_mask", "segment_ids")}
    made |= {name: generator.integers(0, 100, [number, PREDICTIONS]) for name in ("masked_positions", "masked_labels")}
    made["masked_weights"] = generator.integers(0, 2, [number, PREDICTIONS]).astype("float32")
    made["next_sentence_labels"] = generator.integers(0, 2, [number])
    return made


@pytest.mark.parametrize(
    "record_format, token_ids, segment_ids",
    [("bert", "input_ids", "segment_ids"), ("models", "input_word_ids", "input_type_ids")],
)
def test_records_have_the_features_of_their_format(record_format, token_ids, segment_ids):
    made = instances()
    names = {token_ids: "token_ids", segment_ids: "segment_ids", "input_mask": "padding_mask"}
    names |= {"masked_lm_positions": "masked_positions", "masked_lm_ids": "masked_labels"}
    names |= {"masked_lm_weights": "masked_weights", "next_sentence_labels": "next_sentence_labels"}
    found = serialize_records(made, record_format)
    assert found == serialize_records(instances(), record_format)
    for number, record in enumerate(found):
        expected = {feature: np.reshape(made[name][number], -1).tolist() for feature, name in names.items()}
        assert features(record) == expected
    assert len(found) == 5
    example = tf.train.Example.FromString(found[0]).features.feature
    assert [name for name, values in example.items() if values.HasField("float_list")] == ["masked_lm_weights"]
    assert serialize_records({name: values[:0] for name, values in made.items()}, record_format) == []


@pytest.mark.parametrize("record_format", FEATURE_NAMES)
def test_records_are_read_as_they_were_written(record_format):
    made = instances()
    found = serialize_records(made, record_format)
    read = describe_record(found[0])
    assert read == {"record_format": record_format, "sequence_length": LENGTH, "max_predictions": PREDICTIONS}
    parsed = parse_records(tf.constant(found), **read)
    assert_is_batch(parsed, 5, LENGTH, PREDICTIONS)
    for name, values in made.items():
        np.testing.assert_array_equal(parsed[name], values)


def test_a_record_of_another_length_is_refused():
    (record,) = serialize_records({name: values[:1, ...] for name, values in instances().items()})
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Values size: 6 but output shape: \[7\]"):
        parse_records(tf.constant([record]), "bert", LENGTH + 1, PREDICTIONS)


def test_records_of_another_kind_are_refused():
    other = tf.train.Example()
    other.features.feature["label"].int64_list.value.append(1)
    with pytest.raises(ValueError, match=r"has the features \['label'\]; pre-training instances have \['input_ids'"):
        describe_record(other.SerializeToString())
    with pytest.raises(ValueError, match=r"a record is not a tf\.train\.Example"):
        describe_record(b"\xff not a protocol buffer")
