import errno
import json
import os

import pytest

from keras_bert.io import atomic_write
from keras_bert.io.atomic_write import (
    atomic_folder,
    atomic_path,
    atomic_remote_path,
    atomic_text_file,
    replace_folder,
    write_json,
)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "new folder" / "file.txt"
    with atomic_text_file(path) as file:
        file.write("ü\r\n\u2028")
        assert not path.exists()
    assert path.read_bytes() == "ü\r\n\u2028".encode()
    assert names(path.parent) == ["file.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_keeps_the_old_file(tmp_path, error):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(error), atomic_text_file(path, overwrite=True) as file:
        file.write("half")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file.txt"]


def test_a_file_is_overwritten_only_on_request(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(FileExistsError, match=r"file.txt exists and is not overwritten"), atomic_path(path):
        pytest.fail("the block must not be entered")
    with atomic_text_file(path, overwrite=True) as file:
        file.write("new")
    assert path.read_text() == "new"
    with pytest.raises(IsADirectoryError, match="is a folder"), atomic_text_file(tmp_path, overwrite=True):
        pytest.fail("the block must not be entered")


def test_a_file_created_by_another_process_is_kept(tmp_path):
    path = tmp_path / "file.txt"
    with pytest.raises(FileExistsError), atomic_text_file(path):
        path.write_text("other")
    assert path.read_text() == "other"
    assert names(tmp_path) == ["file.txt"]


def test_json_has_null_for_nonfinite_numbers(tmp_path):
    file = tmp_path / "results.json"
    write_json(file, {"label": "naïve", "scores": [0.5, float("nan"), (float("inf"),)]})
    assert json.loads(file.read_text(encoding="utf-8")) == {"label": "naïve", "scores": [0.5, None, [None]]}
    with pytest.raises(TypeError):
        write_json(file, {"label": object()}, overwrite=True)
    assert "naïve" in file.read_text(encoding="utf-8")
    assert names(tmp_path) == ["results.json"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(tmp_path / "results.json", {})
    assert not names(tmp_path)


def test_a_folder_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "new" / "folder"
    with atomic_folder(path) as folder:
        (folder / "file").touch()
        assert not path.exists()
    assert names(path) == ["file"]
    assert names(path.parent) == ["folder"]


def test_a_folder_replaces_only_an_empty_folder(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    with atomic_folder(path) as folder:
        (folder / "mine").touch()
    for taken in (path, path / "mine"):
        with pytest.raises(FileExistsError, match="exists and is not overwritten"), atomic_folder(taken):
            pytest.fail("the block must not be entered")
    assert names(path) == ["mine"]


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_folder_created_by_another_process_is_kept(tmp_path, is_folder):
    path = tmp_path / "folder"
    with pytest.raises(FileExistsError, match="exists and is not overwritten"), atomic_folder(path):
        if is_folder:
            path.mkdir()
        (path / "other" if is_folder else path).touch()
    assert names(tmp_path) == ["folder"]


def test_replacing_a_folder_keeps_a_complete_one_at_every_moment(tmp_path, monkeypatch):
    unfinished, path, replaced = (tmp_path / name for name in ("unfinished", "path", "replaced"))
    for folder in (unfinished, path):
        folder.mkdir()
        (folder / folder.name).touch()
    rename, calls = os.rename, []

    def fail_at_second_call(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError("stopped")
        rename(source, target)

    monkeypatch.setattr(atomic_write.os, "rename", fail_at_second_call)
    with pytest.raises(OSError, match="stopped"):
        replace_folder(unfinished, path, replaced)
    assert names(replaced) == ["path"]
    replace_folder(unfinished, path, replaced)
    assert names(path) == ["unfinished"]


def test_a_remote_file_is_renamed_when_complete(tmp_path):
    path = tmp_path / "records"
    path.write_text("old")
    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error), atomic_remote_path(str(path)) as unfinished, open(unfinished, "w") as file:
            file.write("half")
            raise error
    assert path.read_text() == "old"
    for text in ("new", "newer"):
        with atomic_remote_path(str(path)) as unfinished, open(unfinished, "w") as file:
            file.write(text)
    assert path.read_text() == "newer"
    assert names(tmp_path) == ["records"]
