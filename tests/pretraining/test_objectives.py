import numpy as np
import pytest
import tensorflow as tf

from keras_bert.pretraining.instance_maker import InstanceMaker
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.objectives import inputs_and_labels
from keras_bert.pretraining.row_packing import pack_instances
from keras_bert.pretraining.shards import plan_shards
from tests.pretraining.corpora import tokenizer, write_corpus

LENGTH = 24


@pytest.fixture(scope="module")
def instances(tmp_path_factory):
    """Instances of random text, as arrays."""
    (shard,) = plan_shards(write_corpus(tmp_path_factory.mktemp("objectives") / "corpus", files=1))
    maker = InstanceMaker(tokenizer(), InstanceSettings(sequence_length=LENGTH, max_predictions=5))
    documents = maker.read(shard)
    made = maker.make(documents.token_ids, maker.choose(documents, 0, 0))
    return {name: values.numpy() for name, values in made.items()}


def pack(instances):
    return pack_instances(instances, sequence_length=64, max_instances=8, max_predictions=40)


def reference_labels(instances, step):
    """Returns the label of each position by row, and the tokens without masks."""
    rows, tokens = [], instances["token_ids"].copy()
    sequences = instances.get("sequence_ids", instances["padding_mask"])
    for row, weights in enumerate(instances["masked_weights"]):
        masked = weights > 0
        tokens[row, instances["masked_positions"][row, masked]] = instances["masked_labels"][row, masked]
        neighbors = ((position, position + step) for position in range(tokens.shape[1]))
        rows.append(
            {
                position: tokens[row, neighbor]
                for position, neighbor in neighbors
                if 0 <= neighbor < tokens.shape[1] and sequences[row, position] == sequences[row, neighbor] != 0
            }
        )
    return rows, tokens


@pytest.mark.parametrize("convert", [dict, pack])
@pytest.mark.parametrize(("objective", "step"), [("left_to_right", 1), ("right_to_left", -1)])
def test_every_neighbor_is_a_label(instances, convert, objective, step):
    converted = convert(instances)
    inputs, labels = inputs_and_labels({name: tf.constant(values) for name, values in converted.items()}, objective)
    rows, tokens = reference_labels(converted, step)
    np.testing.assert_array_equal(inputs["token_ids"], tokens)
    assert (tokens != converted["token_ids"]).sum() > 50
    for row, expected in enumerate(rows):
        weights = labels["masked_weights"][row].numpy()
        chosen = weights == 1
        assert set(weights) <= {0, 1}
        positions = inputs["masked_positions"][row].numpy()[chosen].tolist()
        assert dict(zip(positions, labels["masked_labels"][row].numpy()[chosen].tolist(), strict=True)) == expected


@pytest.mark.parametrize("convert", [dict, pack])
def test_masked_instances_are_only_split(instances, convert):
    converted = {name: tf.constant(values) for name, values in convert(instances).items()}
    inputs, labels = inputs_and_labels(converted)
    assert {**inputs, **labels}.keys() == converted.keys() and not inputs.keys() & labels.keys()
    assert {"masked_labels", "masked_weights", "next_sentence_labels"} <= labels.keys()
    assert {"masked_positions", "token_ids"} <= inputs.keys()
    assert all(value is converted[name] for name, value in {**inputs, **labels}.items())


@pytest.mark.parametrize("objective", ["left_to_right", "right_to_left"])
def test_shapes_are_known_in_a_pipeline(instances, objective):
    batches = tf.data.Dataset.from_tensor_slices(instances).batch(4, drop_remainder=True)
    inputs, labels = batches.map(lambda batch: inputs_and_labels(batch, objective)).element_spec
    assert inputs["token_ids"].shape == [4, LENGTH]
    for spec in (inputs["masked_positions"], labels["masked_labels"], labels["masked_weights"]):
        assert spec.shape == [4, LENGTH - 1]


def test_an_unknown_objective_is_refused(instances):
    with pytest.raises(ValueError, match="objective must be one of mlm, left_to_right, right_to_left, got 'rtl'"):
        inputs_and_labels(instances, "rtl")
