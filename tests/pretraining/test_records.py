import numpy as np
import pytest
import tensorflow as tf

from keras_bert.pretraining.records import FEATURE_NAMES, describe_record, parse_records, serialize_records
from tests.pretraining.corpora import features

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
def test_features_in_the_file(record_format, token_ids, segment_ids):
    made = instances()
    found = [features(record) for record in serialize_records(made, record_format)]
    names = {token_ids, segment_ids, "input_mask", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights"}
    assert len(found) == 5
    for number, each in enumerate(found):
        assert set(each) == {*names, "next_sentence_labels"}
        assert each[token_ids] == made["token_ids"][number].tolist()
        assert each[segment_ids] == made["segment_ids"][number].tolist()
        assert each["input_mask"] == made["padding_mask"][number].tolist()
        assert each["masked_lm_ids"] == made["masked_labels"][number].tolist()
        assert each["next_sentence_labels"] == [made["next_sentence_labels"][number]]


def test_only_the_weights_are_floats():
    example = tf.train.Example.FromString(serialize_records(instances())[0])
    kinds = {name: feature.WhichOneof("kind") for name, feature in example.features.feature.items()}
    assert {name for name, kind in kinds.items() if kind == "float_list"} == {"masked_lm_weights"}


def test_the_same_instances_give_the_same_bytes():
    assert serialize_records(instances()) == serialize_records(instances())


def test_an_empty_batch_has_no_records():
    assert serialize_records({name: values[:0] for name, values in instances().items()}) == []


@pytest.mark.parametrize("record_format", FEATURE_NAMES)
def test_records_are_read_as_they_were_written(record_format):
    made = instances()
    found = serialize_records(made, record_format)
    read = describe_record(found[0])
    assert read == {"record_format": record_format, "sequence_length": LENGTH, "max_predictions": PREDICTIONS}
    parsed = parse_records(tf.constant(found), **read)
    assert set(parsed) == set(made)
    for name, values in made.items():
        np.testing.assert_array_equal(parsed[name], values)
        assert parsed[name].dtype == (tf.float32 if name == "masked_weights" else tf.int32)


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
