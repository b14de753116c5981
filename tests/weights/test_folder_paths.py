import contextlib

import pytest

from keras_bert.weights.folder_paths import member_path


def test_follows_links_within_the_folder_and_to_the_blobs_of_the_cache(tmp_path):
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "1f"
    blobs.mkdir(parents=True)
    (snapshot / "1_Pooling").mkdir(parents=True)
    (blobs / "abc").write_text("")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    (snapshot / "1_Pooling" / "config.json").symlink_to("../../../blobs/abc")
    (snapshot / "other").symlink_to("1_Pooling")
    for folder, name in [
        (snapshot, "model.safetensors"),
        (snapshot / "1_Pooling", "config.json"),
        (snapshot, "other"),
        (snapshot, "absent"),
    ]:
        assert member_path(folder, name, snapshot / "modules.json") == folder / name


@pytest.mark.parametrize("name", ["..", ".", "", "../x", "/etc/passwd", "a/b", "a\\b", "C:x", "a\0b", "é" * 200, "out"])
def test_refuses_to_leave_the_folder(tmp_path, name):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret").write_text("")
    (folder / "out").symlink_to("../secret")
    with pytest.raises(ValueError, match=r"index.json: names .*, which is not a file or folder directly in"):
        member_path(folder, name, folder / "index.json")


def test_refuses_a_loop_of_links(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert member_path(tmp_path, "c", tmp_path / "index.json") == tmp_path / "c"
    with contextlib.suppress(ValueError):
        assert not member_path(tmp_path, "a", tmp_path / "index.json").is_file()
