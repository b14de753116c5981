import numpy as np
import pytest
import tensorflow as tf

from keras_bert.pretraining.row_packing import first_fit, pack_dataset, pack_instances
from tests.pretraining.corpora import restored
from tests.reference import sequence_packing
from tests.tolerances import assert_close
from tests.toys import VOCABULARY, toy_encoder

CAPS = {"sequence_length": 48, "max_instances": 5, "max_predictions": 9}


def random_instances(number, longest=48, max_predicted=9, seed=0):
    """Instances without padding, as dicts of lists."""
    generator = np.random.default_rng(seed)

    def random_instance(length):
        predicted = generator.integers(0, min(length, max_predicted) + 1)
        return {
            "token_ids": generator.integers(1, len(VOCABULARY), length).tolist(),
            "segment_ids": np.sort(generator.integers(0, 2, length)).tolist(),
            "masked_positions": np.sort(generator.choice(length, predicted, replace=False)).tolist(),
            "masked_labels": generator.integers(1, len(VOCABULARY), predicted).tolist(),
            "next_sentence_label": int(generator.integers(2)),
        }

    return [random_instance(length) for length in generator.integers(1, longest + 1, number)]


def padded(instances, length=None, predictions=None):
    """The same instances as a dict of arrays, with garbage on padding."""
    lengths = np.array([len(instance["token_ids"]) for instance in instances])
    counts = np.array([len(instance["masked_positions"]) for instance in instances])
    length, predictions = length or lengths.max(), predictions or counts.max()

    def array(name, width, fill):
        rows = [instance[name] + [fill] * (width - len(instance[name])) for instance in instances]
        return np.array(rows, "int32").reshape(len(instances), width)

    return {
        "token_ids": array("token_ids", length, 3),
        "segment_ids": array("segment_ids", length, 1),
        "padding_mask": (np.arange(length) < lengths[:, None]).astype("int32"),
        "masked_positions": array("masked_positions", predictions, 10_000),
        "masked_labels": array("masked_labels", predictions, 7),
        "masked_weights": (np.arange(predictions) < counts[:, None]).astype("float32"),
        "next_sentence_labels": np.array([instance["next_sentence_label"] for instance in instances], "int32"),
    }


def batches_of(instances, batch_size):
    """A dataset of batches, each padded to its own longest instance."""
    batches = [padded(instances[i : i + batch_size]) for i in range(0, len(instances), batch_size)]
    spec = {name: tf.TensorSpec([None] * array.ndim, array.dtype) for name, array in batches[0].items()}
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)


def stacked(rows):
    rows = list(rows.as_numpy_iterator())
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


@pytest.mark.parametrize("seed", range(4))
def test_first_fit_equals_the_reference(seed):
    generator = np.random.default_rng(seed)
    capacity = int(generator.integers(1, 70))
    lengths = generator.integers(1, generator.integers(1, capacity + 1) + 1, 150)
    predictions = generator.integers(0, generator.integers(1, 8), 150)
    for max_instances in (1, 3, 200):
        for max_predictions in (8, 1000):
            bounds = (capacity, max_instances, max_predictions)
            rows, offsets = first_fit(lengths, predictions, *bounds)
            expected = sequence_packing.first_fit(lengths.tolist(), predictions.tolist(), *bounds)
            assert (rows.tolist(), offsets.tolist()) == expected


def test_no_instances_need_no_rows():
    assert [array.tolist() for array in first_fit([], [], 8, 2, 2)] == [[], []]
    instances = {name: array[:0] for name, array in padded(random_instances(3)).items()}
    assert pack_instances(instances, **CAPS)["masked_weights"].shape == (0, 9)


@pytest.mark.parametrize("seed", range(5))
def test_packed_rows_equal_the_reference(seed):
    instances = random_instances(60, longest=[48, 12, 30, 5, 48][seed], seed=seed)
    rows = pack_instances(padded(instances, length=50, predictions=11), **CAPS)
    expected = sequence_packing.pack(instances, **CAPS)
    assert set(rows) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(rows[name], values, err_msg=name)
        assert rows[name].dtype == ("float32" if name.endswith("weights") else "int32")


def test_masked_positions_are_sorted():
    instances = padded(random_instances(40))
    expected = pack_instances(instances, **CAPS)
    order = np.random.default_rng(0).permutation(instances["masked_positions"].shape[1])
    shuffled = {name: array[:, order] if "masked" in name else array for name, array in instances.items()}
    for name, values in pack_instances(shuffled, **CAPS).items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


def test_weights_of_predictions_are_kept():
    instances = padded(random_instances(40))
    instances["masked_weights"] *= 0.25
    rows = pack_instances(instances, **CAPS)
    assert set(np.unique(rows["masked_weights"])) == {0.0, 0.25}
    assert rows["masked_weights"].sum() == instances["masked_weights"].sum()


def test_rows_of_random_lengths_are_full():
    lengths = np.clip(np.random.default_rng(0).lognormal(3.6, 0.7, 4096).astype(int), 5, 512)
    predictions = np.maximum(np.rint(0.15 * lengths).astype(int), 1)
    assert lengths.mean() < 0.1 * 512
    num_rows, num_rows_of_three = (first_fit(lengths, predictions, 512, most, 96)[0].max() + 1 for most in (128, 3))
    assert lengths.sum() / (num_rows * 512) > 0.99
    # Rows have as many instances as a tight bound allows.
    assert lengths.sum() / (num_rows_of_three * 512) == pytest.approx(3 * lengths.mean() / 512, rel=0.02)


def test_packed_instances_have_the_outputs_of_single_ones():
    encoder = toy_encoder()  # of 32 positions, fewer than a row has tokens
    instances = padded(random_instances(20, longest=20))
    inputs = ("token_ids", "segment_ids", "padding_mask")
    alone = np.array(encoder({name: instances[name] for name in inputs})["sequence_output"])
    rows = pack_instances(instances, sequence_length=64, max_instances=8, max_predictions=40)
    together = encoder({name: rows[name] for name in (*inputs, "sequence_ids", "position_ids")})["sequence_output"]
    lengths = instances["padding_mask"].sum(axis=1)
    placed, offsets = first_fit(lengths, instances["masked_weights"].sum(axis=1), 64, 8, 40)
    assert np.bincount(placed).max() > 2
    for instance, (row, offset, length) in enumerate(zip(placed, offsets, lengths, strict=True)):
        assert_close(together[row, offset : offset + length], alone[instance, :length], num_terms=64)
    assert np.isfinite(together).all()  # of padding too
    # Without sequence_ids instances would attend to each other.
    mixed = encoder({name: rows[name] for name in (*inputs, "position_ids")})["sequence_output"]
    assert np.abs(np.array(mixed) - together).max() > 0.1


def test_each_window_is_packed_on_its_own():
    instances = random_instances(95, longest=24)
    for window in (1, 10, 32, 1000):
        groups = [padded(instances[start : start + window]) for start in range(0, 95, window)]
        expected = [pack_instances(group, sequence_length=48, max_instances=12, max_predictions=9) for group in groups]
        found = stacked(pack_dataset(batches_of(instances, 7), 48, 9, window=window))
        for name, values in found.items():
            np.testing.assert_array_equal(values, np.concatenate([rows[name] for rows in expected]), err_msg=name)


def test_the_padding_of_batches_does_not_matter():
    instances = random_instances(60)
    instances += [{**instance, "masked_positions": [], "masked_labels": []} for instance in random_instances(7, seed=1)]
    far = tf.data.Dataset.from_tensor_slices(padded(instances, 100, 20)).batch(10)
    rows, expected = (stacked(pack_dataset(batches, **CAPS, seed=1)) for batches in (far, batches_of(instances, 7)))
    for name, values in expected.items():
        np.testing.assert_array_equal(rows[name], values, err_msg=name)


def test_rows_of_a_dataset_have_static_shapes():
    rows = pack_dataset(batches_of(random_instances(95), 7), 48, max_predictions=9, window=32, seed=1)
    shapes = {name: tuple(spec.shape) for name, spec in rows.element_spec.items()}
    assert shapes == {name: array.shape[1:] for name, array in stacked(rows).items()}
    assert (shapes["token_ids"], shapes["masked_weights"]) == ((48,), (9,))
    assert shapes["cls_positions"] == (12,)  # one for every 4 tokens


def test_the_order_of_rows_depends_on_seed_and_window():
    instances = random_instances(60)

    def windows(seed):
        rows = stacked(pack_dataset(batches_of(instances * 2, 20), **CAPS, window=60, seed=seed))["token_ids"].tolist()
        return rows[: len(rows) // 2], rows[len(rows) // 2 :]

    in_order = pack_instances(padded(instances), **CAPS)["token_ids"].tolist()
    assert windows(None) == (in_order, in_order)
    first, second = windows(seed=1)
    assert sorted(first) == sorted(second) == sorted(in_order)
    assert first != second and first != in_order and second != in_order
    assert windows(seed=1) == (first, second)
    assert windows(seed=2)[0] != first


def test_a_restored_iterator_continues(tmp_path):
    instances = tf.data.Dataset.from_tensor_slices(padded(random_instances(200))).batch(16)
    rows = pack_dataset(instances, **CAPS, window=50, seed=1).batch(4)
    expected = list(rows.as_numpy_iterator())
    for number in (0, len(expected) // 2):
        iterator = restored(rows, number, tmp_path / str(number))
        for batch, expected_batch in zip(iterator, expected[number:], strict=True):
            for name, values in expected_batch.items():
                np.testing.assert_array_equal(batch[name], values, err_msg=name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([3, 9, 4], [1] * 3, 8, 2, 5), "instance 1 has 9 tokens, but a row takes instances of 1 to 8; truncate or"),
        (([3, 0], [1] * 2, 8, 2, 5), "instance 1 has 0 tokens, but a row takes instances of 1 to 8"),
        (([3, 4], [1, 6], 8, 2, 5), "instance 1 has 6 predictions, but a row takes instances of 0 to 5; raise max_pre"),
    ],
)
def test_first_fit_refuses_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        first_fit(*arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"segment_ids": np.zeros([5, 3], "int32")}, r"must have one shape.*'segment_ids': \(5, 3\)"),
        ({"masked_labels": np.zeros([5, 1], "int32")}, r"must have one shape.*'masked_labels': \(5, 1\)"),
        ({"next_sentence_labels": np.zeros([4], "int32")}, r"must have one shape.*'next_sentence_labels': \(4,\)"),
        ({"padding_mask": np.tile([1, 0, 1, 0], [5, 12])}, "1 on the tokens of an instance and 0 after them"),
        ({"padding_mask": np.zeros([5, 48]), "masked_weights": np.zeros([5, 9])}, "instance 0 has 0 tokens, but a row"),
        ({"masked_positions": np.full([5, 9], 48)}, r"instance \d+ has \d+ tokens, but a masked token at position 48"),
        ({"labels": np.zeros([5])}, "instances must be a dict of .*, got .*'labels'"),
    ],
)
def test_pack_instances_refuses_invalid_arrays(change, message):
    instances = {**padded(random_instances(5), 48, 9), **change}
    with pytest.raises(ValueError, match=message):
        pack_instances(instances, **CAPS)


def test_invalid_datasets_and_bounds_are_refused():
    instances = batches_of(random_instances(5), 5)
    for name in (*CAPS, "window"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            pack_dataset(instances, **{**CAPS, name: 0})
    with pytest.raises(ValueError, match=r"instances must be a dict of .*, got \['token_ids'\]"):
        pack_dataset(instances.map(lambda batch: {"token_ids": batch["token_ids"]}), **CAPS)
    too_long = pack_dataset(batches_of(random_instances(50), 5), 20, max_predictions=9)
    with pytest.raises(tf.errors.InvalidArgumentError, match="tokens, but a row takes instances of 1 to 20"):
        next(iter(too_long))
