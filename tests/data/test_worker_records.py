"""Whose records are whose, in which order, and from where a saved iterator goes on."""

import random

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.worker_records import worker_records

TFRECORDS = tf.data.TFRecordDataset
SIZES = (13, 7, 0, 21, 5, 1, 30)


def make_files(folder, sizes, compression=""):
    """TFRecord files whose records say "file/number", and the records of all."""
    paths, records = [], []
    for number, size in enumerate(sizes):
        paths.append(str(folder / f"{number:03d}.tfrecord"))
        own = [f"{number}/{row}".encode() for row in range(size)]
        with tf.io.TFRecordWriter(paths[-1], compression) as writer:
            for record in own:
                writer.write(record)
        records += own
    return paths, records


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_files(tmp_path_factory.mktemp("records"), SIZES)


def values(dataset):
    return list(dataset.as_numpy_iterator())


def file_order(records):
    """The numbers of the files in the order in which they begin."""
    return list(dict.fromkeys(int(record.split(b"/")[0]) for record in records))


@pytest.mark.parametrize(
    ("sizes", "workers"),
    [
        ((9, 4, 6, 5), 1),
        ((9, 4, 6, 5), 2),  # whole files only
        (SIZES, 3),
        (SIZES, 5),
        ((17,), 3),  # fewer files than workers
        ((6, 1, 1), 7),
        ((3,), 5),  # fewer records than workers
        ((0, 4, 0, 0, 11), 2),
        ((0, 0), 2),
    ],
)
def test_the_workers_see_every_example_exactly_once_in_each_epoch(tmp_path, sizes, workers):
    paths, records = make_files(tmp_path, sizes)
    seen = ([], [])
    for worker in range(workers):
        share = values(
            worker_records(paths, TFRECORDS, worker, workers, seed=3, cycle_length=3, shuffle_buffer=4, epochs=2)
        )
        for epoch in range(2):
            seen[epoch].extend(share[len(share) // 2 * epoch : len(share) // 2 * (epoch + 1)])
    assert sorted(seen[0]) == sorted(seen[1]) == sorted(records)


def test_all_workers_have_work_where_there_are_fewer_files(tmp_path):
    paths, _ = make_files(tmp_path, (1, 1, 1, 1, 16))
    shares = [values(worker_records(paths, TFRECORDS, worker, 6, epochs=1)) for worker in range(6)]
    assert sorted(map(len, shares)) == [3, 3, 3, 3, 4, 4]


def test_files_that_go_round_have_one_reader_and_the_rest_has_all(files):
    paths, _ = files
    read = [set(), set(), set()]
    for worker in range(3):
        for record in values(worker_records(paths, TFRECORDS, worker, 3, epochs=1)):
            read[worker].add(int(record.split(b"/")[0]))
    assert read == [{0, 3, 6}, {1, 4, 6}, {5, 6}]  # of files 2 and 5 the first is empty


def test_a_share_depends_neither_on_the_epoch_nor_on_seed_and_order_of_paths(files):
    paths, _ = files
    shuffled = random.Random(0).sample(paths, len(paths))

    def share(paths, **arguments):
        return sorted(values(worker_records(paths, TFRECORDS, 1, 2, epochs=1, **arguments)))

    expected = share(paths)
    assert share(shuffled) == share(paths, seed=4) == share(paths, seed=5, first_epoch=9) == expected


def test_the_passes_of_uneven_shares_together_cover_an_epoch(tmp_path):
    paths, records = make_files(tmp_path, (8, 2))
    longer, shorter = (worker_records(paths, TFRECORDS, worker, 2, seed=0, shuffle_buffer=3) for worker in range(2))
    longer, shorter = values(longer.take(8)), values(shorter.take(8))
    assert sorted(longer + shorter[:2]) == sorted(records)
    passes = [shorter[start : start + 2] for start in range(0, 8, 2)]
    assert all(sorted(once) == sorted(records)[8:] for once in passes)  # it begins its next pass earlier


@pytest.mark.parametrize("shuffle_buffer", [None, 10])
def test_passes_differ_only_in_their_order(files, shuffle_buffer):
    paths, records = files
    stream = worker_records(paths, TFRECORDS, seed=1, cycle_length=2, shuffle_buffer=shuffle_buffer)
    stream = values(stream.take(3 * len(records)))
    passes = [stream[start : start + len(records)] for start in range(0, len(stream), len(records))]
    assert [sorted(once) for once in passes] == [sorted(records)] * 3
    assert len(set(map(tuple, passes))) == 3


def test_an_epoch_is_the_same_wherever_the_stream_begins(files):
    paths, records = files

    def stream(**arguments):
        return worker_records(paths, TFRECORDS, seed=1, shuffle_buffer=10, **arguments)

    size = len(records)
    expected = values(stream().take(3 * size))
    assert values(stream(first_epoch=1, epochs=2)) == expected[size:]
    assert values(stream(first_epoch=2).take(size)) == expected[2 * size :]


def test_orders_are_a_function_of_the_seed(files):
    def order(seed):
        return values(worker_records(files[0], TFRECORDS, seed=seed, shuffle_buffer=10, epochs=2))

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in (0, 1, -1, 2**40)}) == 4


def test_without_a_seed_the_files_come_in_alphabetical_order_in_turn(tmp_path):
    paths, _ = make_files(tmp_path, (2, 3, 1))
    records = values(worker_records(paths[::-1], TFRECORDS, cycle_length=2, epochs=2))
    assert records == [b"0/0", b"1/0", b"0/1", b"1/1", b"1/2", b"2/0"] * 2
    assert values(worker_records(paths, TFRECORDS, cycle_length=1, epochs=1))[:3] == [b"0/0", b"0/1", b"1/0"]


def test_all_workers_take_their_files_in_one_order(tmp_path):
    paths, _ = make_files(tmp_path, [2] * 11)
    for epoch in range(3):
        orders = [
            file_order(
                values(worker_records(paths, TFRECORDS, worker, 2, seed=8, cycle_length=1, first_epoch=epoch, epochs=1))
            )
            for worker in range(2)
        ]
        # Dealt out in turn, each file of the one is followed by one of the other; the last they share.
        assert [number if number == 10 else number + 1 for number in orders[0]] == orders[1]


def test_the_workers_shuffle_differently(tmp_path):
    paths, _ = make_files(tmp_path, (100, 100))
    first, second = (
        [
            int(record.split(b"/")[1])
            for record in values(worker_records(paths, TFRECORDS, worker, 2, seed=8, shuffle_buffer=100, epochs=1))
        ]
        for worker in range(2)
    )
    assert sorted(first) == sorted(second)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.4
    assert abs(np.corrcoef(first, np.arange(100))[0, 1]) < 0.4


def test_each_group_is_shuffled_in_its_own_way(tmp_path):
    paths, _ = make_files(tmp_path, (40,))
    records = values(worker_records(paths, TFRECORDS, seed=8, shuffle_buffer=10, epochs=1))
    groups = np.reshape([int(record.split(b"/")[1]) for record in records], [4, 10]) - 10 * np.arange(4)[:, None]
    assert np.sort(groups).tolist() == [list(range(10))] * 4
    assert len(np.unique(groups, axis=0)) == 4


def saved_and_restored(dataset, position, path):
    """A fresh iterator, set to where another stood after so many elements."""
    iterator = iter(dataset)
    for _ in range(position):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).write(str(path))
    restored = iter(dataset)
    tf.train.Checkpoint(iterator=restored).read(saved)
    return restored


def read_ahead(path):
    return TFRECORDS(path).prefetch(3)


@pytest.mark.parametrize(
    ("workers", "shuffle_buffer", "read_file"), [(1, 8, TFRECORDS), (3, 8, read_ahead), (2, None, read_ahead)]
)
def test_a_saved_iterator_goes_on_with_the_same_records(files, tmp_path, workers, shuffle_buffer, read_file):
    arguments = {"seed": 6, "cycle_length": 3, "shuffle_buffer": shuffle_buffer}
    dataset = worker_records(files[0], read_file, 0, workers, **arguments)
    size = len(values(worker_records(files[0], read_file, 0, workers, epochs=1)))
    expected = values(dataset.take(4 * size))
    for position in (0, 1, 8, 9, size - 1, size, 2 * size + 3):
        restored = saved_and_restored(dataset, position, tmp_path / "place")
        assert [next(restored).numpy() for _ in range(size + 9)] == expected[position : position + size + 9]


def test_a_saved_iterator_of_batches_that_threads_made_goes_on(files, tmp_path):
    def batches(threads):
        records = worker_records(files[0], TFRECORDS, seed=6, cycle_length=3, shuffle_buffer=8)
        return records.map(tf.strings.length, num_parallel_calls=threads).batch(5).prefetch(4)

    expected = [batch.tolist() for batch in batches(1).take(40).as_numpy_iterator()]
    for threads, position in ((1, 9), (4, 9), (tf.data.AUTOTUNE, 20)):
        restored = saved_and_restored(batches(threads), position, tmp_path / "place")
        assert [next(restored).numpy().tolist() for _ in range(20)] == expected[position : position + 20]


def test_an_ended_iterator_is_restored_as_ended(files, tmp_path):
    dataset = worker_records(files[0], TFRECORDS, seed=6, shuffle_buffer=8, epochs=1)
    assert not list(saved_and_restored(dataset, len(files[1]), tmp_path / "place"))


def test_a_place_is_small_however_many_records_are_shuffled(tmp_path):
    records = np.random.default_rng(0).bytes(400_000)
    path = str(tmp_path / "large.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for start in range(0, len(records), 1000):
            writer.write(records[start : start + 1000])
    dataset = worker_records([path], TFRECORDS, seed=0, shuffle_buffer=300)
    saved_and_restored(dataset, 20, tmp_path / "place")
    assert sum(file.stat().st_size for file in tmp_path.glob("place*")) < 20_000


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_files(tmp_path, compression):
    paths, records = make_files(tmp_path, (20, 10, 30), compression)
    dataset = worker_records(
        paths, lambda path: TFRECORDS(path, compression), 1, 2, seed=2, cycle_length=2, shuffle_buffer=5
    )
    own = values(dataset.take(25))
    assert len(set(own)) == 25 and set(own) < set(records)
    restored = saved_and_restored(dataset, 7, tmp_path / "place")
    assert [next(restored).numpy() for _ in range(18)] == own[7:]


def test_records_may_have_several_parts(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(30)))

    def read_file(path):
        lines = tf.data.TextLineDataset(path)
        return lines.map(lambda line: ({"line": line}, tf.strings.to_number(line, tf.int32)))

    parts = values(worker_records([tmp_path / "a.txt"], read_file, seed=1, shuffle_buffer=30, epochs=1))
    assert [number for _, number in parts] != list(range(30))
    assert sorted(number for _, number in parts) == list(range(30))
    assert all(int(features["line"]) == number for features, number in parts)


def test_tf_distribute_does_not_share_out_the_share(files):
    options = worker_records(files[0], TFRECORDS, epochs=1).batch(2).options()
    assert options.experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF
    assert options.deterministic


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"worker_index": 2, "num_workers": 2}, "worker_index must be from 0 to 1, got 2"),
        ({"worker_index": -1}, "worker_index must be from 0 to 0, got -1"),
        ({"num_workers": 0}, "num_workers must be at least 1, got 0"),
        ({"cycle_length": 0}, "cycle_length must be at least 1, got 0"),
        ({"seed": 1, "shuffle_buffer": 0}, "shuffle_buffer must be at least 1, got 0"),
        ({"shuffle_buffer": 9}, "shuffle_buffer=9 needs a seed"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"first_epoch": -1}, "first_epoch must be at least 0, got -1"),
    ],
)
def test_refused_numbers(files, arguments, message):
    with pytest.raises(ValueError, match=message):
        worker_records(files[0], TFRECORDS, **arguments)


def test_refused_paths(files, tmp_path):
    paths, _ = files
    with pytest.raises(ValueError, match="no files are given"):
        worker_records([], TFRECORDS)
    with pytest.raises(ValueError, match=r"read more than once: .*003\.tfrecord, .*003\.tfrecord"):
        worker_records([*paths, paths[3].replace("003", "./003")], TFRECORDS)
    with pytest.raises(FileNotFoundError, match=rf"2 of 9 paths are no files: {tmp_path}, nowhere\.tfrecord"):
        worker_records([*paths, "nowhere.tfrecord", tmp_path], TFRECORDS)
    with pytest.raises(FileNotFoundError, match=r"8 of 8 paths are no files: 0, 1, 2, 3, 4 and 3 more"):
        worker_records(list("01234567"), TFRECORDS)
    with pytest.raises(TypeError, match=r"a list of paths, got '.*\*'; tf\.io\.gfile\.glob"):
        worker_records(f"{tmp_path}/*", TFRECORDS)


def test_files_that_are_read_in_another_form_are_refused_at_once(tmp_path):
    paths, _ = make_files(tmp_path, (5, 5), "GZIP")
    with pytest.raises(ValueError, match=r"000\.tfrecord cannot be read: .*form and compression"):
        worker_records(paths, TFRECORDS)
    with pytest.raises(TypeError, match=r"must return a tf\.data\.Dataset, got list"):
        worker_records(paths, lambda path: [path])


def test_records_of_varying_shape_are_not_shuffled(tmp_path):
    paths, _ = make_files(tmp_path, (5,))

    def read_file(path):
        return TFRECORDS(path).map(lambda record: tf.io.decode_raw(record, tf.uint8))

    assert len(values(worker_records(paths, read_file, epochs=1))) == 5
    with pytest.raises(ValueError, match=r"tensors of one shape, got .*None.*parse them in what comes out"):
        worker_records(paths, read_file, seed=1, shuffle_buffer=2)


def test_a_worker_without_records_is_told_so_and_does_not_wait_without_end(tmp_path):
    paths, _ = make_files(tmp_path, (2,))
    with pytest.raises(ValueError, match="no record falls to worker 2, which reads 1 file: empty"):
        worker_records(paths, TFRECORDS, 2, 3)
    assert not values(worker_records(paths, TFRECORDS, 2, 3, epochs=2))
