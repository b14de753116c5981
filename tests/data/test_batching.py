import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.batching import BatchPlan, sorted_batches, training_batches
from keras_bert.data.tokenized_examples import TokenizedExamples
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
def test_batches_are_those_of_the_slow_version(batch_size, token_budget, bucket_step):
    plan = BatchPlan(LENGTHS, batch_size, token_budget, bucket_step, seed=3)
    expected = cut_into_batches(LENGTHS, batch_size, token_budget, bucket_step)
    got = sorted(sorted(bucketed(LENGTHS[batch], bucket_step).tolist()) for batch in epoch(plan, 0))
    assert got == sorted(bucketed(batch, bucket_step).tolist() for batch in expected)
    assert plan.batches_per_epoch == len(expected)


@pytest.mark.parametrize("bucket_step", [8, None])
def test_an_epoch_has_every_example_once_and_each_epoch_its_own_order(bucket_step):
    plan = BatchPlan(LENGTHS, 8, bucket_step=bucket_step, seed=3)
    epochs = [epoch(plan, number) for number in range(3)]
    for batches in epochs:
        assert sorted(itertools.chain(*batches)) == list(range(len(LENGTHS)))
    assert epochs[0] != epochs[1] != epochs[2]
    # Not only the batches come in another order: they hold other examples.
    assert len({tuple(sorted(batch)) for batches in epochs for batch in batches}) > 1.5 * len(epochs[0])


def test_order_is_a_function_of_the_seed():
    assert epoch(BatchPlan(LENGTHS, 8, seed=3), 1) == epoch(BatchPlan(LENGTHS, 8, seed=3), 1)
    assert epoch(BatchPlan(LENGTHS, 8, seed=3), 1) != epoch(BatchPlan(LENGTHS, 8, seed=4), 1)


def test_batches_do_not_come_in_order_of_length():
    plan = BatchPlan(LENGTHS, 8, seed=3)
    longest = [LENGTHS[batch].max() for batch in epoch(plan, 0)]
    assert longest != sorted(longest)
    assert abs(np.corrcoef(np.arange(len(longest)), longest)[0, 1]) < 0.5


def test_without_buckets_batches_are_drawn_from_all_examples():
    plan = BatchPlan(LENGTHS, 50, bucket_step=None, seed=3)
    assert all(np.ptp(LENGTHS[batch]) > 40 for batch in epoch(plan, 0) if len(batch) == 50)


def test_the_dataset_goes_through_the_epochs_and_resumes_anywhere(tmp_path):
    plan = BatchPlan(LENGTHS, 8, seed=3)
    batches = training_batches(examples_of(LENGTHS), plan)
    expected = epoch(plan, 0) + epoch(plan, 1)
    iterator = iter(batches)
    for _ in range(30):  # into the second epoch
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "iterator"))
    resumed = iter(batches)
    tf.train.Checkpoint(iterator=resumed).read(path)
    assert [next(resumed)[1].numpy().tolist() for _ in range(20)] == expected[30:50]


def test_training_batches_are_padded_to_the_end_of_the_bucket():
    for inputs, labels in training_batches(examples_of(LENGTHS), BatchPlan(LENGTHS, 8, seed=3)).take(26):
        longest = LENGTHS[labels.numpy()].max()
        assert inputs["token_ids"].shape[1] == min(-(-longest // 8) * 8, LENGTHS.max())
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


def test_sorted_batches_of_a_static_shape_end_with_padding():
    examples = examples_of(LENGTHS)
    batches, order = sorted_batches(examples, 8, static_shape=True)
    rows = np.concatenate([batch["padding_mask"].numpy().sum(axis=1) for batch in batches])
    np.testing.assert_array_equal(rows, [*LENGTHS[order], *[0] * (-len(LENGTHS) % 8)])


def test_sorted_batches_hold_every_example_once_and_hardly_any_padding():
    batches, order = sorted_batches(examples_of(LENGTHS), 16)
    lengths = np.concatenate([batch["padding_mask"].numpy().sum(axis=1) for batch in batches])
    assert lengths.tolist() == LENGTHS[order].tolist() == sorted(LENGTHS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "batch_size"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"token_budget": 9, "bucket_step": None}, "needs length buckets"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        BatchPlan(LENGTHS, **arguments)


def test_no_examples():
    with pytest.raises(ValueError, match="no examples"):
        BatchPlan([], 8)
