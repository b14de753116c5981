import os

import pytest

from keras_bert.io import untrusted_files
from keras_bert.io.untrusted_files import open_own_file, parse_json, read_json_file, read_regular_file


def test_opens_regular_files_only(tmp_path):
    (tmp_path / "target").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with os.fdopen(open_own_file(tmp_path / "new", os.O_RDWR | os.O_CREAT, "advice"), "r+b") as file:
        file.write(b"written")
    assert (tmp_path / "new").read_text() == "written"
    for name, problem in (
        ("link", f"is a link to {tmp_path / 'target'}"),
        ("dangling", "is a link"),
        ("folder", "is not a regular file"),
        ("pipe", "is not a regular file"),
    ):
        for flags in (os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_TRUNC):
            with pytest.raises(ValueError, match=f"{tmp_path / name} {problem}.*Do something"):
                open_own_file(tmp_path / name, flags, "Do something.")
    assert not (tmp_path / "nothing").exists() and (tmp_path / "target").read_text() == "kept"
    with pytest.raises(FileNotFoundError):
        open_own_file(tmp_path / "none", os.O_RDONLY, "advice")


def test_reads_no_pipe_device_or_folder(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name, problem in (
        ("pipe", "not a regular file"),
        ("device", "not a"),
        (".", "not a"),
        ("loop", "cannot be read"),
    ):
        with pytest.raises(ValueError, match=problem):
            read_regular_file(tmp_path / name, 8)
    (tmp_path / "file").write_text("0123456789")
    assert read_regular_file(tmp_path / "file", 8) == b"01234567"
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "none", 8)


def test_refuses_links_where_the_system_cannot(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_NOFOLLOW")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(ValueError, match="is a link"):
        open_own_file(tmp_path / "link", os.O_RDWR | os.O_CREAT, "advice")


def test_parses_json():
    assert parse_json(b'{"a": [1, -2.5, null, "\\u00e9"], "b": 18446744073709551615}')["b"] == 2**64 - 1
    assert parse_json(b"[" * 100 + b"]" * 100)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value"),
        (b"\xff", "decode"),
        (b"[" * 101 + b"]" * 101, "nested more than 100 deep"),
        (b'{"a":' * 100_000, "nested more than 100 deep|Expecting"),
        (b"9" * 400, "an integer of 400 characters has more than 64 bits: 9999"),
        (b"-" + b"9" * 5000, "more than 64 bits"),
        (b"18446744073709551616", "more than 64 bits"),
    ],
)
def test_refuses_what_is_not_json(content, message):
    with pytest.raises(ValueError, match=message):
        parse_json(content)


def test_reads_no_more_than_the_maximum(tmp_path, monkeypatch):
    monkeypatch.setattr(untrusted_files, "MAX_JSON_BYTES", 8)
    (tmp_path / "file").write_text('"123456"')
    assert read_json_file(tmp_path / "file") == "123456"
    (tmp_path / "file").write_text('"1234567"' + " " * 10000)
    with pytest.raises(ValueError, match="there are 9 bytes, and at most 8 are read"):
        read_json_file(tmp_path / "file")
