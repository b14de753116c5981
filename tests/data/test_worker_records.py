import random

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.worker_records import WorkerEpochs, worker_records
from tests.data.conftest import saved_and_restored

TFRECORDS = tf.data.TFRecordDataset
SIZES = (13, 7, 0, 21, 5, 1, 30)


def make_files(folder, sizes, compression=""):
    """Writes TFRecord files with records "file/number"; returns their paths and all records."""
    paths, records = [], []
    for number, size in enumerate(sizes):
        paths.append(str(folder / f"{number:03d}.tfrecord"))
        with tf.io.TFRecordWriter(paths[-1], compression) as writer:
            for row in range(size):
                records.append(f"{number}/{row}".encode())
                writer.write(records[-1])
    return paths, records


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_files(tmp_path_factory.mktemp("records"), SIZES)


def values(dataset):
    return list(dataset.as_numpy_iterator())


def epoch(paths, worker_index=0, num_workers=1, number=0, **options):
    return values(worker_records(paths, TFRECORDS, WorkerEpochs(worker_index, num_workers, number, 1), **options))


@pytest.mark.parametrize(
    ("sizes", "num_workers"),
    [
        ((9, 4, 6, 5), 1),
        ((9, 4, 6, 5), 2),  # whole files only
        (SIZES, 5),
        ((17,), 3),  # fewer files than workers
        ((3,), 5),  # fewer records than workers
        ((0, 4, 0, 0, 11), 2),
        ((0, 0), 2),
    ],
)
def test_the_workers_read_each_record_exactly_once_per_epoch(tmp_path, sizes, num_workers):
    paths, records = make_files(tmp_path, sizes)
    options = {"seed": 3, "cycle_length": 3, "shuffle_buffer": 4}
    epochs = ([], [])
    for worker in range(num_workers):
        own = values(worker_records(paths, TFRECORDS, WorkerEpochs(worker, num_workers, epochs=2), **options))
        epochs[0].extend(own[: len(own) // 2])
        epochs[1].extend(own[len(own) // 2 :])
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(records)


def test_fewer_files_than_workers_are_split_evenly(tmp_path):
    paths, _ = make_files(tmp_path, (1, 1, 1, 1, 16))
    assert sorted(len(epoch(paths, worker, 6)) for worker in range(6)) == [3, 3, 3, 3, 4, 4]


def test_whole_files_have_one_reader_and_the_remaining_ones_have_all(files):
    read = [{int(record.split(b"/")[0]) for record in epoch(files[0], worker, 3)} for worker in range(3)]
    assert read == [{0, 3, 6}, {1, 4, 6}, {5, 6}]  # of files 2 and 5, the first is empty


def test_the_split_is_independent_of_epoch_seed_and_order_of_paths(files):
    paths, _ = files
    expected = sorted(epoch(paths, 1, 2))
    assert sorted(epoch(random.Random(0).sample(paths, len(paths)), 1, 2)) == expected
    assert sorted(epoch(paths, 1, 2, seed=4)) == sorted(epoch(paths, 1, 2, 9, seed=5)) == expected


def test_a_worker_with_fewer_records_starts_its_next_pass_earlier(tmp_path):
    paths, records = make_files(tmp_path, (8, 2))
    longer, shorter = (
        values(worker_records(paths, TFRECORDS, WorkerEpochs(worker, 2), seed=0, shuffle_buffer=3).take(8))
        for worker in range(2)
    )
    assert sorted(longer + shorter[:2]) == sorted(records)
    assert all(sorted(shorter[start : start + 2]) == sorted(records)[8:] for start in range(0, 8, 2))


@pytest.mark.parametrize("shuffle_buffer", [None, 10])
def test_epochs_differ_only_in_order(files, shuffle_buffer):
    paths, records = files
    stream = values(worker_records(paths, TFRECORDS, seed=1, shuffle_buffer=shuffle_buffer).take(3 * len(records)))
    epochs = [stream[start : start + len(records)] for start in range(0, len(stream), len(records))]
    assert [sorted(records) for records in epochs] == [sorted(records)] * 3
    assert len(set(map(tuple, epochs))) == 3
    assert epochs[2] == epoch(paths, number=2, seed=1, shuffle_buffer=shuffle_buffer)  # also as the first epoch


def test_the_seed_determines_the_order(files):
    def order(seed):
        return epoch(files[0], seed=seed, shuffle_buffer=10)

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in (0, 1, -1, 2**40)}) == 4


def test_without_a_seed_files_are_interleaved_in_alphabetical_order(tmp_path):
    paths, _ = make_files(tmp_path, (2, 3, 1))
    records = values(worker_records(paths[::-1], TFRECORDS, WorkerEpochs(epochs=2), cycle_length=2))
    assert records == [b"0/0", b"1/0", b"0/1", b"1/1", b"1/2", b"2/0"] * 2
    assert epoch(paths, cycle_length=1)[:3] == [b"0/0", b"0/1", b"1/0"]


def test_all_workers_read_their_files_in_the_same_order(tmp_path):
    paths, _ = make_files(tmp_path, [2] * 11)
    for number in range(2):
        orders = [
            list(dict.fromkeys(int(record.split(b"/")[0]) for record in records))
            for records in (epoch(paths, worker, 2, number, seed=8, cycle_length=1) for worker in range(2))
        ]
        # Files alternate between the two workers, and the last is shared.
        assert [number if number == 10 else number + 1 for number in orders[0]] == orders[1]


def test_workers_and_groups_are_shuffled_differently(tmp_path):
    paths, _ = make_files(tmp_path, (100, 100))

    def rows(*arguments, **options):
        return [int(record.split(b"/")[1]) for record in epoch(*arguments, seed=8, **options)]

    first, second = (rows(paths, worker, 2, shuffle_buffer=100) for worker in range(2))
    assert sorted(first) == sorted(second)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.4
    assert abs(np.corrcoef(first, np.arange(100))[0, 1]) < 0.4
    groups = np.reshape(rows(paths[:1], shuffle_buffer=25), [4, 25]) - 25 * np.arange(4)[:, None]
    assert np.sort(groups).tolist() == [list(range(25))] * 4
    assert len(np.unique(groups, axis=0)) == 4


@pytest.mark.parametrize(("num_workers", "shuffle_buffer", "num_prefetched"), [(1, 8, 0), (3, 8, 3), (2, None, 3)])
def test_resumes_at_the_saved_record(files, tmp_path, num_workers, shuffle_buffer, num_prefetched):
    def read_file(path):
        return TFRECORDS(path).prefetch(num_prefetched) if num_prefetched else TFRECORDS(path)

    options = {"seed": 6, "cycle_length": 3, "shuffle_buffer": shuffle_buffer}
    dataset = worker_records(files[0], read_file, WorkerEpochs(0, num_workers), **options)
    size = len(epoch(files[0], 0, num_workers))
    expected = values(dataset.take(4 * size))
    for position in (0, 8, 9, size, 2 * size + 3):
        restored = saved_and_restored(dataset, position, tmp_path / "position")
        assert [next(restored).numpy() for _ in range(size + 9)] == expected[position : position + size + 9]


def test_resumes_batches_of_parallel_threads(files, tmp_path):
    def batches(threads):
        records = worker_records(files[0], TFRECORDS, seed=6, cycle_length=3, shuffle_buffer=8)
        return records.map(tf.strings.length, num_parallel_calls=threads).batch(5).prefetch(4)

    expected = [batch.tolist() for batch in batches(1).take(40).as_numpy_iterator()]
    for threads, position in ((4, 9), (tf.data.AUTOTUNE, 20)):
        restored = saved_and_restored(batches(threads), position, tmp_path / "position")
        assert [next(restored).numpy().tolist() for _ in range(20)] == expected[position : position + 20]


def test_a_finished_iterator_is_restored_as_finished(files, tmp_path):
    dataset = worker_records(files[0], TFRECORDS, WorkerEpochs(epochs=1), seed=6, shuffle_buffer=8)
    assert not list(saved_and_restored(dataset, len(files[1]), tmp_path / "position"))


def test_a_saved_iterator_is_small_however_many_records_are_shuffled(tmp_path):
    path = str(tmp_path / "large.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for record in np.random.default_rng(0).integers(256, size=[400, 1000], dtype="uint8"):
            writer.write(record.tobytes())
    dataset = worker_records([path], TFRECORDS, seed=0, shuffle_buffer=300)
    saved_and_restored(dataset, 20, tmp_path / "position")
    assert sum(file.stat().st_size for file in tmp_path.glob("position*")) < 20_000


def test_records_may_be_nested_structures(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(30)))

    def read_file(path):
        return tf.data.TextLineDataset(path).map(lambda line: ({"line": line}, tf.strings.to_number(line, tf.int32)))

    records = values(worker_records([tmp_path / "a.txt"], read_file, WorkerEpochs(epochs=1), seed=1, shuffle_buffer=30))
    numbers = [int(number) for _, number in records]
    assert numbers != sorted(numbers) == list(range(30))
    assert all(int(features["line"]) == number for features, number in records)


def test_tf_distribute_does_not_shard_again(files):
    options = worker_records(files[0], TFRECORDS).batch(2).options()
    assert options.experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF
    assert options.deterministic


@pytest.mark.parametrize(
    ("epochs", "options", "message"),
    [
        ({"worker_index": 2, "num_workers": 2}, {}, "worker_index must be from 0 to 1, got 2"),
        ({"worker_index": -1}, {}, "worker_index must be from 0 to 0, got -1"),
        ({"num_workers": 0}, {}, "num_workers must be at least 1, got 0"),
        ({"epochs": 0}, {}, "epochs must be at least 1, got 0"),
        ({"first_epoch": -1}, {}, "first_epoch must be at least 0, got -1"),
        ({}, {"cycle_length": 0}, "cycle_length must be at least 1, got 0"),
        ({}, {"seed": 1, "shuffle_buffer": 0}, "shuffle_buffer must be at least 1, got 0"),
        ({}, {"shuffle_buffer": 9}, "shuffle_buffer=9 needs a seed"),
    ],
)
def test_refuses_impossible_arguments(files, epochs, options, message):
    with pytest.raises(ValueError, match=message):
        worker_records(files[0], TFRECORDS, WorkerEpochs(**epochs), **options)


def test_refuses_missing_and_repeated_paths(files, tmp_path):
    paths, _ = files
    with pytest.raises(ValueError, match="no files are given"):
        worker_records([], TFRECORDS)
    with pytest.raises(ValueError, match=r"read more than once: .*003\.tfrecord, .*003\.tfrecord"):
        worker_records([*paths, paths[3].replace("003", "./003")], TFRECORDS)
    with pytest.raises(FileNotFoundError, match=rf"2 of 9 paths are not files: {tmp_path}, nowhere\.tfrecord"):
        worker_records([*paths, "nowhere.tfrecord", tmp_path], TFRECORDS)
    with pytest.raises(FileNotFoundError, match=r"8 of 8 paths are not files: 0, 1, 2, 3, 4 and 3 more"):
        worker_records(list("01234567"), TFRECORDS)
    with pytest.raises(TypeError, match=r"a list of paths, got '.*\*'; use tf\.io\.gfile\.glob"):
        worker_records(f"{tmp_path}/*", TFRECORDS)


def test_refuses_unreadable_files_at_once(tmp_path):
    paths, _ = make_files(tmp_path, (5, 5), "GZIP")
    with pytest.raises(ValueError, match=r"000\.tfrecord cannot be read: .*format and compression"):
        worker_records(paths, TFRECORDS)
    with pytest.raises(TypeError, match=r"must return a tf\.data\.Dataset, got list"):
        worker_records(paths, lambda path: [path])


def test_refuses_to_shuffle_records_of_varying_shape(tmp_path):
    paths, _ = make_files(tmp_path, (5,))

    def read_file(path):
        return TFRECORDS(path).map(lambda record: tf.io.decode_raw(record, tf.uint8))

    assert len(values(worker_records(paths, read_file, WorkerEpochs(epochs=1)))) == 5
    with pytest.raises(ValueError, match=r"tensors of a fixed shape, got .*None.*parse them after"):
        worker_records(paths, read_file, seed=1, shuffle_buffer=2)


def test_refuses_an_endless_dataset_without_records(tmp_path):
    paths, _ = make_files(tmp_path, (2,))
    with pytest.raises(ValueError, match="worker 2 has no records: 1 file that it reads"):
        worker_records(paths, TFRECORDS, WorkerEpochs(2, 3))
    assert not values(worker_records(paths, TFRECORDS, WorkerEpochs(2, 3, epochs=2)))
