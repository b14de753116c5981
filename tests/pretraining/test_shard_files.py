import os

import pytest
import tensorflow as tf

from keras_bert.pretraining.shard_files import (
    describe_vocabulary,
    instance_files,
    instances_path,
    open_record_file,
    read_sidecar,
    read_sidecars,
    remove_unfinished,
    write_sidecar,
)
from keras_bert.text.tokenizer import BertTokenizer
from tests.pretraining.corpora import VOCABULARY, contents, records


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = str(tmp_path / "pretraining-00000-of-00001.tfrecord")
    with open_record_file(path) as write:
        write(b"one")
        assert instance_files(tmp_path) == []
        write(b"two")
    assert list(contents(tmp_path)) == ["pretraining-00000-of-00001.tfrecord"]
    assert records(path) == [b"one", b"two"]


def test_gzip_files_are_deterministic(tmp_path):
    for name in ("one", "two"):
        with open_record_file(str(tmp_path / name), "gzip") as write:
            for _ in range(1000):
                write(b"the same again")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one").stat().st_size < 1000
    assert records(tmp_path / "one", "GZIP") == [b"the same again"] * 1000


@pytest.mark.parametrize("folder", ["", "FOLDER/"])
def test_a_sidecar_is_read_as_it_was_written(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    path = folder.replace("FOLDER", str(tmp_path)) + "records"
    with open_record_file(path):
        pass
    (tmp_path / "records").write_bytes(b"four")
    assert read_sidecar(path) is None
    write_sidecar(path, {"rate": 0.15, "text": [["\u00e9.txt", 0, 9]]})
    assert read_sidecar(path) == {"rate": 0.15, "text": [["\u00e9.txt", 0, 9]], "bytes": 4}
    write_sidecar(path, {"rate": 0.2})
    assert read_sidecar(path) == {"rate": 0.2, "bytes": 4}
    assert read_sidecars([f"{path}-2", path]) == {path: {"rate": 0.2, "bytes": 4}}
    assert list(contents(tmp_path)) == ["records", "records.json"]


def test_no_sidecar_is_written_for_a_missing_file(tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match="records"):
        write_sidecar(str(tmp_path / "records"), {"rate": 0.15})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", '{"instances": 3', "[1]", "\x00"])
def test_an_invalid_sidecar_is_refused(tmp_path, content):
    (tmp_path / "records.json").write_text(content)
    with pytest.raises(ValueError, match=r"records.json (is not JSON|is not a JSON object).*delete it"):
        read_sidecar(str(tmp_path / "records"))


@pytest.mark.parametrize("name", ["a folder", "[1] and *", "one/"])
def test_only_unfinished_files_are_removed(tmp_path, name):
    folder = os.path.join(tmp_path, name)
    os.mkdir(folder)
    kept = ["pretraining-00000-of-00002.tfrecord", "pretraining-00000-of-00002.tfrecord.json", "pretraining.txt"]
    kept += [".notes.unfinished-by-me", ".pretraining-plans"]
    unfinished = [f".pretraining-00001-of-00002.tfrecord{end}" for end in (".unfinished-1f", ".json.unfinished-2")]
    for each in kept + unfinished:
        open(os.path.join(folder, each), "w").close()
    assert instance_files(folder) == [instances_path(folder, 0, 2)]
    remove_unfinished(folder)
    assert sorted(os.listdir(folder)) == sorted(kept)


def test_a_missing_folder_has_no_files(tmp_path):
    assert instance_files(str(tmp_path / "missing")) == []
    remove_unfinished(str(tmp_path / "missing"))


@pytest.mark.parametrize("folder, path", [("a", "a/"), ("a/", "a/"), ("", ""), ("gs://bucket/a", "gs://bucket/a/")])
def test_file_names_have_number_and_count(folder, path):
    assert instances_path(folder, 7, 12) == f"{path}pretraining-00007-of-00012.tfrecord"


def test_all_properties_that_change_ids_are_described():
    plain = describe_vocabulary(BertTokenizer(VOCABULARY, lower_case=True))
    assert plain == describe_vocabulary(BertTokenizer(list(VOCABULARY), lower_case=True))
    others = [
        BertTokenizer([*VOCABULARY[:-1], "##es"], lower_case=True),
        BertTokenizer([*VOCABULARY[:-2], VOCABULARY[-1], VOCABULARY[-2]], lower_case=True),
        BertTokenizer(VOCABULARY, lower_case=False),
        BertTokenizer(VOCABULARY, lower_case=True, strip_accents=False),
        BertTokenizer(VOCABULARY, lower_case=True, special_tokens_in_text=True),
        BertTokenizer(VOCABULARY, lower_case=True, max_characters_per_word=100),
    ]
    assert all(describe_vocabulary(other) != plain for other in others)
