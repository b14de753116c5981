import pytest

from keras_bert.io.atomic_write import atomic_text_file


def test_the_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "new folder" / "file.txt"
    with atomic_text_file(path) as file:
        file.write("ü\r\n\u2028")
        assert not path.exists()
    assert path.read_bytes() == "ü\r\n\u2028".encode()
    assert [entry.name for entry in path.parent.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(error), atomic_text_file(path, overwrite=True) as file:
        file.write("half")
        raise error
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]


def test_nothing_is_overwritten_unless_told_to(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(FileExistsError, match=r"file.txt exists and is not overwritten"), atomic_text_file(path):
        pytest.fail("the block must not be entered")
    with atomic_text_file(path, overwrite=True) as file:
        file.write("new")
    assert path.read_text() == "new"
    with pytest.raises(IsADirectoryError, match="is a folder"), atomic_text_file(tmp_path, overwrite=True):
        pytest.fail("the block must not be entered")


def test_a_file_that_came_meanwhile_is_not_overwritten(tmp_path):
    path = tmp_path / "file.txt"
    with pytest.raises(FileExistsError), atomic_text_file(path):
        path.write_text("another's")
    assert path.read_text() == "another's"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]
