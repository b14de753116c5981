import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf

from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.record_reader import check_shards, describe_shards, shard_batches
from keras_bert.pretraining.records import parse_records
from keras_bert.pretraining.shard_files import instances_path
from keras_bert.pretraining.shards import Shard
from keras_bert.pretraining.streaming import ShardJob, ShardMaker
from keras_bert.text.tokenizer import BertTokenizer
from tests.pretraining.corpora import VOCABULARY, assert_is_batch, random_text, records, restored, rows, tokenizer

LENGTH, PREDICTIONS = 24, 4
KINDS = [("bert", "none"), ("models", "none"), ("bert", "gzip")]


def make_files(folder, record_format="bert", compression="none", files=4, empty=2, **settings):
    """Makes finished files, one of them without instances; returns their paths."""
    folder.mkdir()
    made = InstanceSettings(
        **{"sequence_length": LENGTH, "max_predictions": PREDICTIONS, "next_sentence": "sop", "seed": 1, **settings}
    )
    job = ShardJob(str(folder), files, tokenizer().get_config(), made, 1, record_format, compression)
    make = ShardMaker(job)
    for number in range(files):
        text = folder / f"{number}.txt"
        text.write_text("river stone\n\n" * 9 if number == empty else random_text(number, documents=20, sentences=6))
        make(Shard(number, ((str(text), 0, text.stat().st_size),)))
    return [instances_path(str(folder), number, files) for number in range(files)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Files of each kind, made once."""
    folder = tmp_path_factory.mktemp("files")
    return {
        (kind, compression): make_files(folder / (kind + compression), kind, compression) for kind, compression in KINDS
    }


@pytest.fixture
def files(finished, tmp_path):
    """Copies of files that a test may damage."""
    source = Path(finished["bert", "none"][0]).parent
    shutil.copytree(source, tmp_path / "files")
    return [str(tmp_path / "files" / Path(path).name) for path in finished["bert", "none"]]


def stored_rows(paths, record_format="bert", compression="none"):
    stored = [record for path in paths for record in records(path, "GZIP" if compression == "gzip" else None)]
    return rows([parse_records(tf.constant(stored), record_format, LENGTH, PREDICTIONS)])


@pytest.mark.parametrize("kind", KINDS)
def test_every_instance_is_read_once_per_epoch(finished, kind, warnings):
    expected = stored_rows(finished[kind], *kind)
    assert len(expected) == len(set(expected)) > 50
    found = rows(shard_batches(finished[kind], 1, seed=5, shuffle_buffer=30, epochs=2))
    passes = found[: len(expected)], found[len(expected) :]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(expected)
    assert len({tuple(passes[0]), tuple(passes[1]), tuple(expected)}) == 3
    assert not warnings


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_described(finished, kind):
    record_format, compression = kind
    sidecars = [json.loads(Path(path + ".json").read_text()) for path in finished[kind]]
    expected = {"record_format": record_format, "compression": compression, "sidecars": sidecars}
    expected |= {"sequence_length": LENGTH, "max_predictions": PREDICTIONS}
    expected["instances"] = len(stored_rows(finished[kind], record_format, compression))
    assert describe_shards(finished[kind]) == expected
    assert sidecars[2]["instances"] == 0
    assert describe_shards(finished[kind][::-1]) == {**expected, "sidecars": sidecars[::-1]}


@pytest.mark.parametrize("names", [["tf_examples.tfrecord"], ["a-0-of-2", "a-1-of-2"]])
def test_files_of_the_original_have_no_sidecars(files, warnings, names):
    folder = Path(files[0]).parent
    paths = [shutil.copy(path, f"{folder}/{name}") for path, name in zip(files[::3], names, strict=False)]
    found = describe_shards(paths)
    assert found["sidecars"] == [None] * len(names) and found["instances"] is None
    assert warnings == [f"{paths[0]} has no sidecar: the vocabulary of the instances cannot be checked"]
    assert Counter(rows(shard_batches(paths, 1, seed=1, epochs=1))) == Counter(stored_rows(paths))
    check_shards(found, tokenizer(), LENGTH)


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_are_static(finished, kind):
    assert_is_batch(shard_batches(finished[kind], 8).element_spec, 8, LENGTH, PREDICTIONS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_iterator_continues(finished, kind, tmp_path):
    batches, again = (shard_batches(finished[kind], 4, seed=1, shuffle_buffer=20) for _ in range(2))
    expected = rows(batches.take(45))
    for position in (0, 5, 30):
        iterator = restored(batches, position, tmp_path / "iterator", again)
        assert rows(next(iterator) for _ in range(15)) == expected[4 * position : 4 * position + 60]
    assert sum(file.stat().st_size for file in tmp_path.glob("iterator*")) < 20_000


def test_a_single_path_is_refused():
    with pytest.raises(TypeError, match="paths must be a list of paths, got 'instances'"):
        describe_shards("instances")


def test_missing_files_are_refused(tmp_path):
    for read in (describe_shards, lambda paths: shard_batches(paths, 4)):
        with pytest.raises(FileNotFoundError, match="no files of instances are given"):
            read([])
        for path in (f"{tmp_path}/missing.tfrecord", f"{tmp_path}/no/folder", str(tmp_path)):
            with pytest.raises(FileNotFoundError, match=f"{path} does not exist or is a folder"):
                read([path])


def test_an_incomplete_set_of_files_is_refused(files):
    message = r"2 of the 4 files .*/pretraining-\*-of-00004.tfrecord are missing, such as number 1"
    with pytest.raises(FileNotFoundError, match=message):
        describe_shards([files[0], files[3]])
    other = Path(files[3]).rename(files[3].replace("00003-of", "00004-of"))
    with pytest.raises(FileNotFoundError, match=r"1 of the 4 files .* such as number 3"):
        describe_shards([*files[:3], str(other)])


def test_an_unfinished_file_is_refused(files):
    Path(files[1] + ".json").unlink()
    with pytest.raises(ValueError, match=f"{files[1]} is unfinished: it has no sidecar"):
        shard_batches(files, 4)


def test_files_without_instances_are_refused(files):
    path = shutil.copy(files[2], f"{Path(files[2]).parent}/empty.tfrecord")
    with pytest.raises(ValueError, match=f"none of the 1 files contains an instance, such as {path}"):
        describe_shards([path])


@pytest.mark.parametrize("with_sidecars", [True, False])
@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"record_format": "models"}, "has record_format 'models', but .* has 'bert'"),
        ({"compression": "gzip"}, "has compression 'gzip', but .* has 'none'"),
        ({"sequence_length": 32, "max_predictions": 5}, "has sequence_length 32, but .* has 24"),
    ],
)
def test_files_of_two_formats_are_refused(files, tmp_path, other, message, with_sidecars):
    (stranger,) = make_files(tmp_path / "other", files=1, empty=None, **other)
    if not with_sidecars:
        for path in [*files, stranger]:
            Path(path + ".json").unlink()
    with pytest.raises(ValueError, match=f"{stranger} {message}; give files of one format"):
        describe_shards([*files, stranger])


def test_a_foreign_sidecar_is_refused(files):
    for path in files:
        Path(path + ".json").write_text('{"dataset": "theirs"}')
    with pytest.raises(ValueError, match=f"{files[0]} has record_format None, but {files[0]} has 'bert'"):
        describe_shards(files)
    Path(files[1] + ".json").write_text('{"dataset"')
    with pytest.raises(ValueError, match=rf"{files[1]}.json is not JSON"):
        describe_shards(files)


def test_instances_for_another_model_are_refused(finished):
    description = describe_shards(finished["bert", "none"])
    check_shards(description, tokenizer(), LENGTH)
    hashes = "SHA-256 is [0-9a-f]{64} for the instances and [0-9a-f]{64} for the model"
    others = [
        (hashes, [*VOCABULARY[:-1], "##es"], {}),
        ("the vocabulary's SHA-256 is", [*VOCABULARY, "new"], {}),
        ("lower_case is True for the instances and False for the model", VOCABULARY, {"lower_case": False}),
        ("strip_accents is True for", VOCABULARY, {"strip_accents": False}),
    ]
    for message, vocabulary, options in others:
        with pytest.raises(ValueError, match=message):
            check_shards(description, BertTokenizer(vocabulary, **{"lower_case": True, **options}), LENGTH)
    with pytest.raises(ValueError, match="the instances have 24 tokens, but the model has 23 positions"):
        check_shards(description, tokenizer(), LENGTH - 1)


def test_text_files_and_other_records_are_refused(tmp_path):
    path = tmp_path / "other.tfrecord"
    path.write_text("a line of text\n" * 50)
    with pytest.raises(ValueError, match=f"{path} is not a TFRecord file, or is damaged: .*corrupted record at 0"):
        describe_shards([str(path)])
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"\xff no message")
    with pytest.raises(ValueError, match=f"{path}: a record is not a tf.train.Example"):
        shard_batches([str(path)], 4)


@pytest.mark.parametrize("cut_between_records", [False, True])
def test_a_truncated_file_is_refused(files, cut_between_records):
    path = Path(files[3])
    whole = path.read_bytes()
    cut = len(records(path)[-1]) + 16 if cut_between_records else 40
    path.write_bytes(whole[:-cut])
    sizes = f"it has {len(whole) - cut:,} bytes instead of {len(whole):,}"
    with pytest.raises(ValueError, match=f"{path} is damaged: {sizes}. Make it"):
        shard_batches(files, 4)


@pytest.mark.parametrize("number", [0, 3])
def test_damaged_records_are_not_used(files, number):
    sound = Counter(stored_rows(files))
    data = bytearray(Path(files[number]).read_bytes())
    data[len(data) // 2] ^= 1
    Path(files[number]).write_bytes(data)
    found = []
    with pytest.raises((ValueError, tf.errors.DataLossError), match="corrupted record at"):
        for batch in shard_batches(files, 1, epochs=1):
            found += rows([batch])
    assert not Counter(found) - sound


def test_invalid_batch_sizes_are_refused(finished):
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        shard_batches(finished["bert", "none"], 0)
