import json

import pytest
from safetensors.numpy import save_file

from keras_bert.weights.checkpoint_reader import read_checkpoint

SHARD = "model-00001-of-00001.safetensors"


@pytest.fixture
def folder(hugging_face_folder):
    """A folder with one shard and its index."""
    folder = hugging_face_folder.write()
    (folder / "model.safetensors").rename(folder / SHARD)
    write_index(folder, dict.fromkeys(hugging_face_folder.tensors, SHARD))
    return folder


def write_index(folder, weight_map):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/b", "a\\b", "..", ".", "", "a\0b", None, ["a"], "é"])
def test_refuses_shards_outside_the_folder(folder, name):
    target = folder.parent / "outside"
    (folder / SHARD).rename(target)
    write_index(folder, {"a": str(target) if name == "/outside" else name})
    with pytest.raises((ValueError, FileNotFoundError), match=r"index.json: (shards must be files in its|lists the)"):
        read_checkpoint(folder)


def test_follows_links_into_a_cache_only(folder, tmp_path):
    cache = tmp_path / "cache"
    snapshot = cache / "models--a--b" / "snapshots" / "0123abcd"
    blobs = cache / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in folder.iterdir():
        file.rename(blobs / f"hash-of-{file.name}")
        (snapshot / file.name).symlink_to(f"../../blobs/hash-of-{file.name}")
    assert not read_checkpoint(snapshot).unused
    (tmp_path / "link").symlink_to(snapshot)
    assert not read_checkpoint(tmp_path / "link").unused
    for target in (tmp_path / "outside", cache / "blobs" / "a"):
        target.parent.mkdir(exist_ok=True)
        (blobs / f"hash-of-{SHARD}").replace(target)
        (snapshot / SHARD).unlink()
        (snapshot / SHARD).symlink_to(target)
        if target.name == "outside":
            with pytest.raises(ValueError, match=r"is a link to .*outside, out of its folder; .*Copy the file"):
                read_checkpoint(snapshot)
            target.rename(blobs / f"hash-of-{SHARD}")
    assert not read_checkpoint(snapshot).unused  # a folder of that name above the snapshot


def test_refuses_links_in_a_circle_and_repeated_tensors(hugging_face_folder, folder):
    (folder / "again.safetensors").symlink_to("again.safetensors")
    write_index(folder, {"a": SHARD, "b": "again.safetensors"})
    with pytest.raises(FileNotFoundError, match=r"lists the shards \['again.safetensors'\]"):
        read_checkpoint(folder)
    (folder / "again.safetensors").unlink()
    name = sorted(hugging_face_folder.tensors)[3]
    save_file({name: hugging_face_folder.tensors[name]}, folder / "again.safetensors")
    with pytest.raises(ValueError, match=rf"{SHARD}: contains the tensor '{name}', as .*again.safetensors does"):
        read_checkpoint(folder)
