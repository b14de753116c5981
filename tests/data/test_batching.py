import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.batching import BUCKET_STEP, BatchPlan, sorted_batches, training_batches
from keras_bert.data.tokenized_examples import TokenizedExamples
from tests.data.conftest import saved_and_restored
from tests.reference.batching import cut_into_batches

LENGTHS = np.random.default_rng(0).integers(1, 60, 203)


def epoch(plan, number):
    return [batch.numpy().tolist() for batch in plan.epoch(number)]


def bucketed(lengths, step):
    return -(-np.asarray(lengths) // step)


def examples_of(lengths):
    ids = np.concatenate([np.full(length, number % 7 + 1) for number, length in enumerate(lengths)])
    return TokenizedExamples(ids, lengths, lengths, labels=np.arange(len(lengths)))


@pytest.mark.parametrize(
    ("batch_size", "token_budget", "bucket_step"), [(8, None, 8), (None, 128, 8), (5, 128, 4), (1, None, 1), (7, 30, 8)]
)
def test_batches_equal_the_reference(batch_size, token_budget, bucket_step):
    plan = BatchPlan(LENGTHS, batch_size, token_budget, bucket_step, seed=3)
    expected = cut_into_batches(LENGTHS, batch_size, token_budget, bucket_step)
    got = sorted(sorted(bucketed(LENGTHS[batch], bucket_step).tolist()) for batch in epoch(plan, 0))
    assert got == sorted(bucketed(batch, bucket_step).tolist() for batch in expected)
    assert plan.batches_per_epoch == len(expected)


@pytest.mark.parametrize("bucket_step", [8, None])
def test_each_epoch_has_every_example_once_in_its_own_order(bucket_step):
    plan, same, other = (BatchPlan(LENGTHS, 8, bucket_step=bucket_step, seed=seed) for seed in (3, 3, 4))
    epochs = [epoch(plan, number) for number in range(3)]
    for batches in epochs:
        assert sorted(itertools.chain(*batches)) == list(range(len(LENGTHS)))
    assert epochs[0] != epochs[1] != epochs[2]
    # The batches differ in their examples, not only in their order.
    assert len({tuple(sorted(batch)) for batches in epochs for batch in batches}) > 1.5 * len(epochs[0])
    assert epochs[1] == epoch(same, 1) != epoch(other, 1)


def test_batches_do_not_come_in_order_of_length():
    plan = BatchPlan(LENGTHS, 8, seed=3)
    longest = [LENGTHS[batch].max() for batch in epoch(plan, 0)]
    assert longest != sorted(longest)
    assert abs(np.corrcoef(np.arange(len(longest)), longest)[0, 1]) < 0.5


def test_without_buckets_batches_are_drawn_from_all_examples():
    plan = BatchPlan(LENGTHS, 50, bucket_step=None, seed=3)
    assert all(np.ptp(LENGTHS[batch]) > 40 for batch in epoch(plan, 0) if len(batch) == 50)


def test_the_dataset_repeats_the_plan_and_resumes_anywhere(tmp_path):
    plan = BatchPlan(LENGTHS, 8, seed=3)
    expected = epoch(plan, 0) + epoch(plan, 1)
    position = 30  # in the second epoch
    resumed = saved_and_restored(training_batches(examples_of(LENGTHS), plan), position, tmp_path / "iterator")
    assert [next(resumed)[1].numpy().tolist() for _ in range(20)] == expected[position:50]


def test_training_batches_are_padded_to_the_end_of_the_bucket():
    for inputs, labels in training_batches(examples_of(LENGTHS), BatchPlan(LENGTHS, 8, seed=3)).take(26):
        longest = LENGTHS[labels.numpy()].max()
        assert inputs["token_ids"].shape[1] == min(-(-longest // BUCKET_STEP) * BUCKET_STEP, LENGTHS.max())
        assert inputs["padding_mask"].numpy().sum(axis=1).tolist() == LENGTHS[labels.numpy()].tolist()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_batches_of_a_static_shape_hold_the_same_examples(workers):
    plan, examples = BatchPlan(LENGTHS, 8, seed=3), examples_of(LENGTHS)
    steps = plan.batches_per_epoch
    for worker in range(workers):
        whole = training_batches(examples, plan, worker, workers).take(steps)
        static = training_batches(examples, plan, worker, workers, static_rows_multiple=4)
        assert {part.shape.as_list()[0] for part in tf.nest.flatten(static.element_spec)} == {8 if workers == 1 else 4}
        for (inputs, labels), (static_inputs, static_labels, weights) in zip(whole, static.take(steps), strict=True):
            rows, length = inputs["token_ids"].shape
            assert weights.numpy().tolist() == [1] * rows + [0] * (len(weights) - rows)
            np.testing.assert_array_equal(static_labels[:rows], labels)
            np.testing.assert_array_equal(static_inputs["token_ids"][:rows, :length], inputs["token_ids"])
            assert static_inputs["token_ids"].shape[1] == 64  # the longest has 59 tokens


@pytest.mark.parametrize(("batch_size", "static_shape"), [(16, False), (8, True)])
def test_sorted_batches_hold_every_example_once(batch_size, static_shape):
    batches, numbers = sorted_batches(examples_of(LENGTHS), batch_size, static_shape=static_shape)
    lengths = np.concatenate([batch["padding_mask"].numpy().sum(axis=1) for batch in batches])
    order = np.concatenate(numbers)
    assert LENGTHS[order].tolist() == sorted(LENGTHS)
    assert lengths.tolist() == [*LENGTHS[order], *[0] * (-len(LENGTHS) % batch_size if static_shape else 0)]


def test_sorted_batches_are_as_large_as_the_budget_allows():
    batches, numbers = sorted_batches(examples_of(LENGTHS), 16, token_budget=200)
    shapes = [tuple(batch["token_ids"].shape) for batch in batches]
    assert [rows for rows, _ in shapes] == [len(rows) for rows in numbers]
    assert all(rows <= 16 and rows * length <= 200 for rows, length in shapes)
    for (rows, _), following in zip(shapes, numbers[1:], strict=False):
        assert rows == 16 or (rows + 1) * LENGTHS[following[0]] > 200
    assert sorted(np.concatenate(numbers)) == list(range(len(LENGTHS)))
    assert all(len(rows) == 1 for rows in sorted_batches(examples_of(LENGTHS), 16, token_budget=1)[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "batch_size"),
        ({"lengths": [], "batch_size": 8}, "no examples"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"token_budget": 9, "bucket_step": None}, "needs length buckets"),
    ],
)
def test_refuses_impossible_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        BatchPlan(**{"lengths": LENGTHS, **arguments})
