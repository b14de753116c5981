"""Files of instances are found and read a batch at a time, and what is wrong with one is said with its name."""

import gzip
import os
import re

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.pretraining.instance_settings import InstanceSettings
from keras_bert.pretraining.records import serialize
from keras_bert.pretraining.shard_files import record_file, write_sidecar
from tools.instances import shards
from tools.instances.shards import InstanceReader, describe_files, find_shards

SETTINGS = InstanceSettings(sequence_length=6, max_predictions=2)


def made(number, first_id=0, length=6, **values):
    """Instances of which each token tells the number of its instance."""
    ids = np.arange(first_id, first_id + number)[:, None]
    instances = {name: np.zeros([number, length], int) for name in ("padding_mask", "segment_ids")}
    instances |= {name: np.zeros([number, 2], int) for name in ("masked_positions", "masked_labels", "masked_weights")}
    return instances | {"token_ids": np.tile(ids, length), "next_sentence_labels": np.zeros([number], int)} | values


def write(path, number, first_id=0, form="bert", compression="none", sidecar=False, **values):
    instances = made(number, first_id, **values)
    with record_file(str(path), compression) as put:
        for record in serialize(instances, form) if number else ():
            put(record)
    if sidecar:
        write_sidecar(str(path), {**SETTINGS.to_dict(), "form": form, "instances": number})
    return str(path)


def read(paths, most=0, vocab_size=None):
    """The ids of the instances read, and the reader."""
    reader = InstanceReader(describe_files(paths), most, vocab_size)
    return [token for batch in reader for token in batch.instances["token_ids"][:, 0].tolist()], reader


# Finding.


def names_of(folder, *names):
    return [os.path.relpath(path, folder) for path in find_shards([str(folder / name) for name in names])]


def test_files_of_a_folder(tmp_path):
    files = [
        "pretraining-00001-of-00002.tfrecord",
        "pretraining-00000-of-00002.tfrecord",
        "pretraining-00000-of-00002.tfrecord.json",
        ".pretraining-00001-of-00002.tfrecord.unfinished-1",
        "tf_examples.tfrecord.gz",
        "tf_examples.tf_record",
        "exact",
        "exact.json",
        "notes.txt",
        "other.json",
    ]
    for name in files:
        (tmp_path / name).touch()
    (tmp_path / "older.tfrecord").mkdir()
    expected = ["exact", *sorted(files[:2]), "tf_examples.tf_record", "tf_examples.tfrecord.gz"]
    assert names_of(tmp_path, "") == expected
    assert names_of(tmp_path, "pre*") == expected[1:3]
    assert names_of(tmp_path, "pre*0-of*", "notes.txt", "exact") == [expected[1], "notes.txt", "exact"]
    assert names_of(tmp_path, "exact", "exact.json") == ["exact"]  # as a shell expands exact*


def test_a_name_with_characters_of_patterns(tmp_path):
    folder = tmp_path / "a[1]"
    folder.mkdir()
    (folder / "x*.tfrecord").touch()
    assert names_of(tmp_path, "a[1]") == ["a[1]/x*.tfrecord"]
    assert names_of(tmp_path, "a[1]/x*.tfrecord") == ["a[1]/x*.tfrecord"]


def test_what_is_not_found_is_named(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FileNotFoundError, match="no files are given; name files of instances"):
        find_shards([])
    with pytest.raises(FileNotFoundError, match=r"no file of instances is named .*missing\*"):
        names_of(tmp_path, "missing*")
    with pytest.raises(FileNotFoundError, match=r"the folder .* has no files of instances"):
        names_of(tmp_path, "")
    with pytest.raises(ValueError, match=r"notes.txt is given twice"):
        names_of(tmp_path, "notes.txt", "n*")


# Reading.


@pytest.mark.parametrize("form", ["bert", "models"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_all_instances_are_read_in_their_order(tmp_path, monkeypatch, form, compression):
    monkeypatch.setattr(shards, "_INSTANCES_AT_ONCE", 4)
    paths = [write(tmp_path / str(start), 11, start, form, compression) for start in (0, 11)]
    ids, reader = read(paths)
    assert ids == list(range(22))
    assert reader.form == {"form": form, "sequence_length": 6, "max_predictions": 2}
    assert (reader.compressions, reader.is_complete, reader.empty) == ({compression}, True, [])
    batches = list(InstanceReader(describe_files(paths), 0))
    assert [(batch.shard.path, batch.start) for batch in batches[2:4]] == [(paths[0], 8), (paths[1], 0)]
    assert len(batches) == 6


@pytest.mark.parametrize("sidecar", [True, False])
def test_a_sample_is_spread_by_the_sizes_of_the_files(tmp_path, sidecar):
    sizes = [100, 200, 0, 50, 50]
    paths = [write(tmp_path / str(n), size, 1000 * n, sidecar=sidecar) for n, size in enumerate(sizes)]
    ids, reader = read(paths, most=40)
    numbers = np.bincount(np.array(ids) // 1000, minlength=5)
    if sidecar:
        assert numbers.tolist() == [10, 20, 0, 5, 5]
    assert numbers.sum() == 40
    np.testing.assert_allclose(numbers, [10, 20, 0, 5, 5], atol=2)  # by their bytes, without sidecars
    assert [token % 1000 for token in ids] == [place for number in numbers for place in range(number)]
    assert not reader.is_complete
    assert reader.empty == [paths[2]]


@pytest.mark.parametrize("sidecar", [True, False])
def test_a_sample_of_more_than_there_are_is_complete(tmp_path, sidecar):
    paths = [write(tmp_path / str(start), 7, start, sidecar=sidecar) for start in (0, 7, 14)]
    for most in (21, 1000):
        ids, reader = read(paths, most)
        assert ids == list(range(21))
        assert reader.is_complete


def test_a_sample_of_fewer_than_files(tmp_path):
    paths = [write(tmp_path / str(number), 3, 100 * number, sidecar=True) for number in range(6)]
    ids, reader = read(paths, 2)
    assert len(ids) == 2
    assert not reader.is_complete


def test_a_file_from_somewhere_else(tmp_path):
    path = str(tmp_path / "in several parts.gz")
    for start in (0, 3):
        write(tmp_path / "part", 3, start)
        with open(path, "ab") as file:
            file.write(gzip.compress((tmp_path / "part").read_bytes()))
    assert read([path])[0] == list(range(6))


# What is refused.


def refuse(paths, match, **options):
    with pytest.raises(ValueError, match=match):
        read(paths, **options)


def test_files_of_something_else(tmp_path):
    (tmp_path / "text").write_text("This is text and holds no records.\n" * 9)
    refuse([str(tmp_path / "text")], r"text is no TFRecord file, or is truncated or damaged: corrupted record at 0")
    (tmp_path / "short").write_text("abc")
    refuse([str(tmp_path / "short")], r"short is truncated, or no TFRecord file: after 0 instances there are 3 bytes")
    example = tf.train.Example()
    example.features.feature["label"].int64_list.value.append(1)
    for name, record in (("other", example.SerializeToString()), ("bytes", b"\xff")):
        with record_file(str(tmp_path / name)) as put:
            put(record)
    refuse([str(tmp_path / "other")], r"other: a record has the features \['label'\]")
    refuse([str(tmp_path / "bytes")], r"bytes: a record is no tf.train.Example")


@pytest.mark.parametrize("missing", [1, 15, 100, -5])
def test_a_truncated_file(tmp_path, missing):
    """Also where a few bytes of the next record are all that is left, which TensorFlow takes for the end."""
    whole = (tmp_path / "whole").read_bytes() if write(tmp_path / "whole", 20) else b""
    record = len(whole) - os.path.getsize(write(tmp_path / "fewer", 19))
    (tmp_path / "cut").write_bytes(whole[:-missing] if missing > 0 else whole[: missing - record + 10])
    refuse([str(tmp_path / "cut")], r"cut is (truncated, or no TFRecord file|no TFRecord file, or is truncated)")


@pytest.mark.parametrize("missing", [1, 4, 8, 200])
def test_a_truncated_gzip_file(tmp_path, missing):
    whole = (tmp_path / "whole").read_bytes() if write(tmp_path / "whole", 200, compression="gzip") else b""
    (tmp_path / "cut").write_bytes(whole[:-missing])
    refuse([str(tmp_path / "cut")], r"cut is (truncated or damaged|no TFRecord file, or is truncated)")


def test_a_file_with_other_instances_than_it_should(tmp_path):
    path = write(tmp_path / "a", 5, sidecar=True)
    write(tmp_path / "a", 4)
    refuse([path], r"a has 4 instances, and .*a\.json says 5")
    write(tmp_path / "a", 5, length=7)
    refuse([path], r"a has sequence_length 7, and .*a\.json has 6")


def test_files_of_different_kinds(tmp_path):
    paths = [write(tmp_path / "a", 2), write(tmp_path / "b", 2, length=7), write(tmp_path / "c", 2, form="models")]
    refuse(paths[:2], r"b has sequence_length 7, and .*a has 6; read one kind at a time")
    refuse([paths[0], paths[2]], r"c has form 'models', and .*a has 'bert'")
    for path, length in zip(paths, (6, 7), strict=False):
        write_sidecar(path, {**SETTINGS.to_dict(), "sequence_length": length, "form": "bert", "instances": 2})
    with pytest.raises(ValueError, match=r"b has sequence_length 7, and .*a has 6"):
        describe_files(paths[:2])
    with record_file(str(tmp_path / "mixed")) as put:
        for record in serialize(made(3)) + serialize(made(1, length=7)):
            put(record)
    refuse([str(tmp_path / "mixed")], r"mixed: one of the records 1 to 4 is of another kind than the first")


@pytest.mark.parametrize(
    "facts",
    [{"name": "x"}, {"instances": "2"}, {"documents": None}, {"masking_rate": 2}, {"seed": 1, "mask_share": "x"}],
)
def test_a_sidecar_of_something_else(tmp_path, facts):
    path = write(tmp_path / "a", 2)
    whole = {} if "name" in facts else {**SETTINGS.to_dict(), "form": "bert", "instances": 2}
    write_sidecar(path, {**whole, **facts})
    with pytest.raises(ValueError, match=r"a\.json (does not say what made instances|has settings that cannot be)"):
        describe_files([path])


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("token_ids", -1, "0 to 99"),
        ("masked_labels", 100, "0 to 99. Give the vocabulary that made them"),
        ("masked_positions", 6, "0 to 5"),
        ("segment_ids", 2, "0 to 1"),
        ("padding_mask", -1, "0 to 1"),
        ("next_sentence_labels", 7, "0 to 1"),
    ],
)
def test_numbers_that_cannot_be(tmp_path, name, value, allowed):
    values = np.array(made(3)[name])
    values[1] = value
    path = write(tmp_path / "a", 3, **{name: values})
    refuse([path], re.escape(f"a: instance 2 has {name} {value}, and they can be {allowed}"), vocab_size=100)
