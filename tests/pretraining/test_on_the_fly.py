import functools
import os
from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf

from keras_bert.pretraining import on_the_fly
from keras_bert.pretraining.instance_maker import InstanceMaker
from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.on_the_fly import text_batches
from keras_bert.pretraining.records import parse_records
from keras_bert.pretraining.shards import Shard, plan_shards
from keras_bert.pretraining.streaming import ShardJob, ShardMaker
from tests.pretraining.corpora import WORDS, assert_is_batch, records, restored, rows, tokenizer, write_corpus

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
    changes = {"next_sentence": task, "do_whole_word_mask": task == "sop"}
    if task == "none":
        changes["short_seq_prob"] = 0  # the same segments in all epochs: only masks differ
    made = settings(**changes)
    copies = streamed_rows(plan, made, 2, tmp_path / "files")
    first, second = ([row for number in copy for row in copy[number]] for copy in copies)
    # Except for a few instances of few tokens.
    assert len(first) > 60 and len(set(first) & set(second)) < 0.1 * len(first)
    found = [epoch_rows(plan, epoch, settings=changes) for epoch in (0, 1)]
    assert Counter(found[0]) == Counter(first)
    assert Counter(found[1]) == Counter(second)
    assert found[0] != first
    both = text_batches(plan, tokenizer(), made, batch_size=2, epochs=2)
    assert len(rows(both)) == (len(first) + len(second)) // 2 * 2


@pytest.mark.slow
def test_workers_split_the_shards_of_an_epoch(plan, shards_read):
    for workers, epochs in ((2, 3), (5, 1)):
        shards = [[] for _ in range(workers)]  # read by each worker in each epoch
        for epoch in range(epochs):
            parts = []
            for worker in range(workers):
                shards_read.clear()
                parts += epoch_rows(plan, epoch, worker_index=worker, num_workers=workers)
                shards[worker].append(shards_read[1:])  # the first was read to see whether there are instances
            assert Counter(parts) == Counter(epoch_rows(plan, epoch))
            assert sorted(number for by_epoch in shards for number in by_epoch[epoch]) == [0, 1, 2, 3, 4]
        assert len({tuple(by_epoch[0]) for by_epoch in shards}) == workers
        sizes = [sum(map(len, by_epoch)) for by_epoch in shards]
        assert max(sizes) - min(sizes) <= 1 and sum(sizes) == 5 * epochs  # not only in each epoch


def test_a_worker_continues_with_the_next_epoch(plan):
    stream = epoch_rows(plan, 1, epochs=2, worker_index=1, num_workers=2)
    parts = [epoch_rows(plan, epoch, worker_index=1, num_workers=2) for epoch in (1, 2)]
    assert Counter(stream) == Counter(parts[0] + parts[1])


def test_shapes_are_static_and_the_order_is_deterministic(plan):
    batches = text_batches(plan, tokenizer(), settings(), batch_size=8)
    assert_is_batch(batches.element_spec, 8, 24, 4)
    options = batches.options()
    assert options.experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF
    assert options.deterministic


def write_shards(folder, texts):
    """Writes texts to shards of one file each."""
    plan = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.txt"
        path.write_text(text)
        plan.append(Shard(number, ((str(path), 0, path.stat().st_size),)))
    return plan


def texts_of_one_word(sizes):
    """Returns a text of each size, in documents, with one word that no other text has."""
    return [f"{' '.join([word] * 6)}\n\n" * size for word, size in zip(WORDS, sizes, strict=False)]


def count_words(batch):
    """Returns the number of instances of a batch from each of `texts_of_one_word`."""
    return Counter(batch["masked_labels"].numpy()[:, 0].tolist())


def test_open_shards_are_interleaved_evenly(tmp_path, monkeypatch):
    plan = write_shards(tmp_path, texts_of_one_word([128] * 4))
    arguments = (plan, tokenizer(), settings(sequence_length=8, next_sentence="none", short_seq_prob=0))
    for at_once in (1, 2):
        monkeypatch.setattr(on_the_fly, "_OPEN_SHARDS", at_once)
        batches = [count_words(batch) for batch in text_batches(*arguments, batch_size=128, epochs=4)]
        assert len(batches) == 16
        assert all(set(batch.values()) == {128 // at_once} for batch in batches)
        if at_once == 2:
            assert len({tuple(sorted(batch)) for batch in batches}) > 2


def take_rows(iterator, number):
    return rows(next(iterator) for _ in range(number))


def test_a_restored_iterator_continues(plan, tmp_path):
    batches, again = (text_batches(plan, tokenizer(), settings(), 8, num_workers=2) for _ in range(2))
    expected = rows(batches.take(35))
    for position in (0, 1, 9, 20):  # a shard has about 20 instances, an epoch about 100
        iterator = restored(batches, position, tmp_path / "iterator", again)
        assert take_rows(iterator, 15) == expected[8 * position : 8 * position + 120]
    assert sum(file.stat().st_size for file in tmp_path.glob("iterator*")) < 20_000


def test_a_restored_iterator_reads_only_open_shards_again(tmp_path, shards_read):
    # One stays open while others come and go.
    plan = write_shards(tmp_path, texts_of_one_word([640, *[64] * 6]))
    made = settings(sequence_length=8, next_sentence="none", short_seq_prob=0)
    batches = text_batches(plan, tokenizer(), made, batch_size=64)
    expected = rows(batches.take(17))
    for position in (1, 9):
        shards_read.clear()
        iterator = restored(batches, position, tmp_path / "iterator")
        read_before = len(shards_read)
        assert take_rows(iterator, 8) == expected[64 * position : 64 * position + 512]
        assert len(shards_read) - read_before <= 8 + 4, (position, shards_read)


def test_invalid_utf_8_is_an_error_of_the_iterator(tmp_path):
    good = b"river stone light\nwalked bright\n\n" * 20
    paths = [str(tmp_path / f"{number}.txt") for number in range(4)]
    for path in paths:
        Path(path).write_bytes(good + b"caf\xe9\n" + good if path == paths[2] else good * 2)
    batches = text_batches(plan_shards(paths, 600), tokenizer(), settings(), batch_size=4)
    message = f"ValueError: {paths[2]} is not UTF-8: byte {len(good) + 3} cannot"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
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
    plan = write_shards(tmp_path, texts)
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
