"""Instances made on the fly equal those of the files, with a new order and new masks in each epoch."""

import functools
import os
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.pretraining import on_the_fly
from keras_bert.pretraining.instance_maker import InstanceMaker
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.on_the_fly import text_batches
from keras_bert.pretraining.records import parse_records
from keras_bert.pretraining.shards import Shard, plan_shards
from keras_bert.pretraining.streaming import ShardJob, ShardMaker
from tests.pretraining.corpora import VOCABULARY, WORDS, records, rows, tokenizer, write_corpus

SHARD_BYTES = 2000
TASKS = ("nsp", "sop", "none")


def settings(**changes):
    return InstanceSettings(**{"sequence_length": 24, "max_predictions": 4, "seed": 3, **changes})


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    paths = write_corpus(tmp_path_factory.mktemp("corpus") / "text", files=3, documents=20, sentences=5)
    plan = plan_shards(paths, SHARD_BYTES)
    assert len(plan) == 5
    return plan


@pytest.fixture(autouse=True, scope="module")
def cached_makers():
    """Makes the graph of each settings once."""
    make = functools.cache(lambda settings: InstanceMaker(tokenizer(), settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_the_fly, "InstanceMaker", lambda _, settings: make(settings))
        yield


@pytest.fixture
def shards_read(monkeypatch):
    """The numbers of the shards that are read, in order."""
    numbers = []
    read = InstanceMaker.read
    monkeypatch.setattr(InstanceMaker, "read", lambda self, shard: numbers.append(shard.number) or read(self, shard))
    return numbers


def epoch_rows(plan, epoch, epochs=1, batch_size=1, **arguments):
    made = settings(**arguments.pop("settings", {}))
    return rows(text_batches(plan, tokenizer(), made, batch_size, first_epoch=epoch, epochs=epochs, **arguments))


def streamed_rows(plan, made, copies, folder):
    """The instances of each copy in files, by shard."""
    job = ShardJob(str(folder), len(plan), tokenizer().get_config(), made, copies)
    os.makedirs(folder)
    make, found = ShardMaker(job), [{} for _ in range(copies)]
    for shard in plan:
        make(shard)
        for copy, path in enumerate(job.paths(shard)):
            stored = tf.constant(records(path))
            found[copy][shard.number] = rows(
                [parse_records(stored, "bert", made.sequence_length, made.max_predictions)]
            )
    return found


@pytest.mark.parametrize("task", TASKS)
def test_an_epoch_has_the_instances_of_a_copy_of_the_files(plan, tmp_path, task):
    made = settings(next_sentence=task, whole_words=task == "sop")
    copies = streamed_rows(plan, made, 2, tmp_path / "files")
    first, second = ([row for number in copy for row in copy[number]] for copy in copies)
    # Sentences or masks differ, except in a few instances of few tokens.
    assert len(first) > 60 and len(set(first) & set(second)) < 0.1 * len(first)
    changes = {"next_sentence": task, "whole_words": task == "sop"}
    found = [epoch_rows(plan, epoch, settings=changes) for epoch in (0, 1)]
    assert Counter(found[0]) == Counter(first)
    assert Counter(found[1]) == Counter(second)
    assert found[0] != first
    both = text_batches(plan, tokenizer(), made, batch_size=2, epochs=2)
    assert len(rows(both)) == (len(first) + len(second)) // 2 * 2


@pytest.mark.slow
def test_workers_split_the_shards_of_an_epoch(plan, shards_read):
    for workers, epochs in ((2, 3), (5, 1)):
        dealt = [[] for _ in range(workers)]
        for epoch in range(epochs):
            parts = []
            for worker in range(workers):
                shards_read.clear()
                parts += epoch_rows(plan, epoch, worker_index=worker, num_workers=workers)
                dealt[worker].append(shards_read[1:])  # the first was read to see whether there are instances
            assert Counter(parts) == Counter(epoch_rows(plan, epoch))
            assert sorted(number for shares in dealt for number in shares[epoch]) == [0, 1, 2, 3, 4]
        assert len({tuple(shares[0]) for shares in dealt}) == workers
        sizes = [sum(map(len, shares)) for shares in dealt]
        assert max(sizes) - min(sizes) <= 1 and sum(sizes) == 5 * epochs  # not only in each epoch


def test_a_worker_continues_with_the_next_epoch(plan):
    stream = epoch_rows(plan, 1, epochs=2, worker_index=1, num_workers=2)
    parts = [epoch_rows(plan, epoch, worker_index=1, num_workers=2) for epoch in (1, 2)]
    assert Counter(stream) == Counter(parts[0] + parts[1])


def test_masks_change_in_each_epoch(plan):
    made = settings(next_sentence="none", short_sequence_rate=0.0)
    masks = []
    for epoch in (0, 1, 7):
        of_text = {}
        for batch in text_batches(plan, tokenizer(), made, 1, first_epoch=epoch, epochs=1).as_numpy_iterator():
            original, number = batch["token_ids"][0].copy(), int(batch["masked_weights"].sum())
            original[batch["masked_positions"][0, :number]] = batch["masked_labels"][0, :number]
            of_text[original.tobytes()] = batch["masked_positions"].tolist()
        masks.append(of_text)
    assert masks[0].keys() == masks[1].keys() == masks[2].keys() and len(masks[0]) > 60
    for other in masks[1:]:
        assert np.mean([masks[0][text] == other[text] for text in other]) < 0.1


def test_another_seed_gives_other_instances(plan):
    found = [epoch_rows(plan, 0, settings={"seed": seed}) for seed in (3, 3, 4)]
    assert found[0] == found[1]
    assert not set(found[0]) & set(found[2])


def test_shapes_are_static_and_the_order_is_deterministic(plan):
    batches = text_batches(plan, tokenizer(), settings(), batch_size=8)
    shapes = {name: tuple(spec.shape) for name, spec in batches.element_spec.items()}
    tokens, predictions = ("token_ids", "segment_ids", "padding_mask"), ("masked_positions", "masked_labels")
    expected = {**dict.fromkeys(tokens, (8, 24)), **dict.fromkeys((*predictions, "masked_weights"), (8, 4))}
    assert shapes == {**expected, "next_sentence_labels": (8,)}
    dtypes = {name: spec.dtype for name, spec in batches.element_spec.items()}
    assert dtypes.pop("masked_weights") == tf.float32 and set(dtypes.values()) == {tf.int32}
    options = batches.options()
    assert options.experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF
    assert options.deterministic


def write_shards(folder, sizes):
    """Shards of one file each, with one word that no other shard has."""
    plan = []
    for number, size in enumerate(sizes):
        path = folder / f"{number}.txt"
        path.write_text(f"{' '.join([WORDS[number]] * 6)}\n\n" * size)
        plan.append(Shard(number, ((str(path), 0, path.stat().st_size),)))
    return plan


def sources(batch):
    """The number of instances of a batch from each shard of `write_shards`."""
    words = [VOCABULARY[label] for label in batch["masked_labels"].numpy()[:, 0]]
    return Counter(WORDS.index(word) for word in words)


def test_open_shards_are_interleaved_evenly(tmp_path, monkeypatch):
    plan = write_shards(tmp_path, [128] * 4)
    arguments = (plan, tokenizer(), settings(sequence_length=8, next_sentence="none", short_sequence_rate=0))
    for at_once in (1, 2):
        monkeypatch.setattr(on_the_fly, "_OPEN_SHARDS", at_once)
        batches = [sources(batch) for batch in text_batches(*arguments, batch_size=128, epochs=4)]
        assert len(batches) == 16
        assert all(set(batch.values()) == {128 // at_once} for batch in batches)
        if at_once == 2:
            assert len({tuple(sorted(batch)) for batch in batches}) > 2


def saved_and_restored(dataset, again, position, path):
    """Saves the position of an iterator after some elements; returns a new iterator of `again`, restored to it."""
    iterator = iter(dataset)
    for _ in range(position):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).write(str(path))
    restored = iter(again)
    tf.train.Checkpoint(iterator=restored).read(saved)
    return restored


def take_rows(iterator, number):
    return rows(next(iterator) for _ in range(number))


def test_a_restored_iterator_continues(plan, tmp_path):
    batches, again = (text_batches(plan, tokenizer(), settings(), 8, num_workers=2) for _ in range(2))
    expected = rows(batches.take(35))
    for position in (0, 1, 9, 20):  # a shard has about 20 instances, an epoch about 100
        restored = saved_and_restored(batches, again, position, tmp_path / "place")
        assert take_rows(restored, 15) == expected[8 * position : 8 * position + 120]
    assert sum(file.stat().st_size for file in tmp_path.glob("place*")) < 20_000


def test_a_restored_iterator_reads_only_open_shards_again(tmp_path, shards_read):
    # One stays open while others come and go.
    plan = write_shards(tmp_path, [640, *[64] * 6])
    made = settings(sequence_length=8, next_sentence="none", short_sequence_rate=0)
    batches = text_batches(plan, tokenizer(), made, batch_size=64)
    expected = rows(batches.take(17))
    for position in (1, 9):
        shards_read.clear()
        restored = saved_and_restored(batches, batches, position, tmp_path / "place")
        read_before = len(shards_read)
        assert take_rows(restored, 8) == expected[64 * position : 64 * position + 512]
        assert len(shards_read) - read_before <= 8 + 4, (position, shards_read)


def bad_corpus(tmp_path, place):
    good = b"river stone light\nwalked bright\n\n" * 20
    paths = []
    for number in range(4):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(good + b"caf\xe9\n" + good if number == place else good * 2)
        paths.append(str(path))
    return paths, len(good) + 3


def test_invalid_utf_8_is_an_error_of_the_iterator(tmp_path):
    paths, byte = bad_corpus(tmp_path, place=2)
    batches = text_batches(plan_shards(paths, 600), tokenizer(), settings(), batch_size=4)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=f"ValueError: {paths[2]} is not UTF-8: byte {byte} cannot"
    ):
        for _ in batches.take(200):
            pass


@pytest.mark.parametrize(
    ("text", "task", "needed"),
    [
        ("river stone\n\n" * 50, "sop", "documents of at least two sentences"),
        ("\n \n" * 50, "nsp", "documents of at least one sentence"),
        ("\u200b\n\x07\n" * 50, "none", "documents of at least one sentence"),  # nothing is left of such characters
    ],
)
def test_text_without_instances_is_refused(tmp_path, text, task, needed):
    (tmp_path / "corpus.txt").write_text(text)
    plan = plan_shards([str(tmp_path / "corpus.txt")], 100)
    assert len(plan) > 1
    with pytest.raises(ValueError, match=f"the text gives no instances: next_sentence='{task}' needs {needed}"):
        text_batches(plan, tokenizer(), settings(next_sentence=task), batch_size=4)


def test_shards_without_instances_are_skipped(tmp_path):
    texts = ["river stone\n\n" * 50] * 5
    texts[4] = ("river stone\nlight walked\n" * 20 + "\n") * 4
    plan = []
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
        plan.append(Shard(number, ((str(tmp_path / f"{number}.txt"), 0, len(text)),)))
    for worker in range(2):
        batches = text_batches(plan, tokenizer(), settings(next_sentence="sop"), 4, worker, num_workers=2)
        assert len(rows(batches.take(5))) == 20
    assert len(epoch_rows(plan, 0, settings={"next_sentence": "sop"})) > 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"first_epoch": -1}, "first_epoch must be at least 0, got -1"),
        ({"num_workers": 6}, "got 5 shards for 6 workers; make smaller shards"),
    ],
)
def test_invalid_numbers_are_refused(plan, arguments, message):
    with pytest.raises(ValueError, match=message):
        text_batches(plan, tokenizer(), settings(), **{"batch_size": 4, **arguments})
