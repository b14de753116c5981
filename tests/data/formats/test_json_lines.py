import json

import pytest

from keras_bert.data.formats.json_lines import read_objects
from tests.data.conftest import assert_bad_row


def test_reads_objects_with_their_lines(tmp_path):
    objects = [{"text": 'tab \t line\nquote " \u2028 😀'}, {}, {"a": [1, {"b": None}]}]
    path = tmp_path / "rows.jsonl"
    for ascii_only in (True, False):
        lines = [json.dumps(value, ensure_ascii=ascii_only) for value in objects]
        path.write_bytes(("\ufeff" + lines[0] + "\r\n\n  \n" + lines[1] + "\n" + lines[2]).encode())
        assert list(read_objects(path)) == list(zip((1, 4, 5), objects, strict=True))


@pytest.mark.parametrize(
    "line, reason",
    [
        (b'{"text": "a"', "is not valid JSON"),
        (b"{'text': 'a'}", "is not valid JSON"),
        (b'{"text": "a\tb"}', "is not valid JSON"),
        (b'{"label": NaN}', "is not valid JSON .NaN is not a JSON number"),
        (b'{"label": -Infinity}', "-Infinity is not a JSON number"),
        (b"[1, 2]", r"must be a JSON object, got \[1, 2\]"),
        (b'"text"', "must be a JSON object, got 'text'"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"label": ' + b"9" * 5000 + b"}", "is not valid JSON"),
        (b'{"text": "\xff"}', "is not UTF-8"),
        (b'{"text": "\0"}', "holds a NUL character"),
    ],
)
def test_reports_an_invalid_row(tmp_path, line, reason):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": "good"}\n' + line + b"\n")
    kept = [(1, {"text": "good"})]
    assert_bad_row(lambda bad_rows: read_objects(path, bad_rows), f"rows.jsonl, line 2: .*{reason}", 2, kept)


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_refuses_a_file_without_rows(tmp_path, content):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"rows.jsonl has no rows"):
        list(read_objects(path))
