import threading

import pytest

from keras_bert.io.remote_paths import look_up_each, matching_files


def test_a_name_with_characters_of_patterns_is_a_name_first(tmp_path):
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


def test_look_ups_wait_at_the_same_time_and_come_in_order():
    barrier = threading.Barrier(3, timeout=10)

    def look_up(path):
        barrier.wait()
        return path.upper()

    assert look_up_each(look_up, ["a", "c", "b"]) == ["A", "C", "B"]


def test_an_error_of_a_look_up_is_raised():
    with pytest.raises(ZeroDivisionError):
        look_up_each(lambda number: 1 // number, [1, 0])
