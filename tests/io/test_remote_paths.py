import threading

import pytest

from keras_bert.io.remote_paths import look_up_each, matching_files


def test_a_path_that_exists_is_not_a_pattern(tmp_path):
    for name in ("a[1]*.txt", "a1.txt", "b.txt"):
        (tmp_path / name).write_text("night\n")
    assert matching_files([str(tmp_path / "a[1]*.txt")]) == [str(tmp_path / "a[1]*.txt")]
    assert matching_files([str(tmp_path / "?*.txt")]) == [
        str(tmp_path / name) for name in ("a1.txt", "a[1]*.txt", "b.txt")
    ]
    with pytest.raises(FileNotFoundError, match=r"no file is named .*c\*, and none matches it"):
        matching_files([str(tmp_path / "?*.txt"), str(tmp_path / "c*")])
    with pytest.raises(FileNotFoundError, match=r"is a folder; give a pattern of its files, such as '.*/\*.txt'"):
        matching_files([str(tmp_path)])


def test_looks_up_in_parallel_and_keeps_the_order():
    barrier = threading.Barrier(3, timeout=10)

    def look_up(path):
        barrier.wait()
        return path.upper()

    assert look_up_each(look_up, ["a", "c", "b"]) == ["A", "C", "B"]


def test_raises_the_error_of_a_look_up():
    with pytest.raises(ZeroDivisionError):
        look_up_each(lambda number: 1 // number, [1, 0])
