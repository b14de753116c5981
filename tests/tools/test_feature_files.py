import json
import re
import sys

import numpy as np
import pyarrow.parquet
import pytest

from keras_bert.io.row_errors import BadRows
from keras_bert.models.feature_extractor import TextFeatures
from tools.feature_files import open_json_lines, open_parquet, read_texts, split_pair
from tools.parquet_tables import import_pyarrow

VECTORS = np.arange(24, dtype="float32").reshape([3, 2, 4]) / 7  # three units, two layers
FEATURES = [
    TextFeatures(["a", "b"], np.array([0, 2], "int32"), VECTORS[:2]),
    TextFeatures([], np.array([], "int32"), VECTORS[:0]),
    TextFeatures(["ü\u2028"], np.array([0], "int32"), VECTORS[2:]),
]


def original_pair(line):
    """The pair that google-research/bert's reader returns for a line."""
    line = line.strip()
    match = re.match(r"^(.*) \|\|\| (.*)$", line)
    return (line, "") if match is None else match.groups()


@pytest.mark.parametrize(
    "line",
    ["", " ", "a", "a ||| b", "a ||| b ||| c", "a ||| ||| b", " ||| b", "a ||| ", "|||", "a|||b", "a |||b", "a\t||| b",
     "\u00a0a ||| b\u3000", " ||| ||| ", "a |||  ||| b", "||| ||| |||", "a\rb ||| c\u2028d ||| e"],
)  # fmt: skip
def test_splits_pairs_like_the_original(line):
    assert split_pair(line) == original_pair(line)


def test_reads_texts_with_line_numbers(tmp_path):
    (tmp_path / "in.txt").write_bytes("\ufeffa ||| b\r\n\nü".encode())
    rows = read_texts(tmp_path / "in.txt", "txt", [], BadRows())
    assert [row[:2] for row in rows] == [(1, ("a", "b")), (2, ("", "")), (3, ("ü", ""))]
    (tmp_path / "in.csv").write_text('id,q,a\n1,"x\ny ||| z",b\n2,,\n')
    rows = read_texts(tmp_path / "in.csv", "csv", ["q", "a"], BadRows())
    assert [row[:2] for row in rows] == [(2, ("x\ny ||| z", "b")), (4, ("", ""))]


def test_writes_json_lines_of_units(tmp_path):
    with open_json_lines(tmp_path / "out.jsonl", "words", [-1, 0]) as write:
        write([1, 2], FEATURES[:2])
        write([7], FEATURES[2:])
    assert (tmp_path / "out.jsonl").read_text().splitlines() == [
        '{"linex_index": 0, "features": [{"token": "a", "layers": [{"index": -1, "values": [0.0, 0.142857, 0.285714, '
        '0.428571]}, {"index": 0, "values": [0.571429, 0.714286, 0.857143, 1.0]}]}, {"token": "b", "layers": '
        '[{"index": -1, "values": [1.142857, 1.285714, 1.428571, 1.571429]}, {"index": 0, "values": [1.714286, '
        "1.857143, 2.0, 2.142857]}]}]}",
        '{"linex_index": 1, "features": []}',
        '{"linex_index": 6, "features": [{"token": "\\u00fc\\u2028", "layers": [{"index": -1, "values": [2.285714, '
        '2.428571, 2.571429, 2.714286]}, {"index": 0, "values": [2.857143, 3.0, 3.142857, 3.285714]}]}]}',
    ]


def test_writes_json_lines_of_texts(tmp_path):
    with open_json_lines(tmp_path / "out.jsonl", "text", [3]) as write:
        write([5], VECTORS[:1, 0])
    row = {"linex_index": 4, "vector": [0.0, 0.142857, 0.285714, 0.428571]}
    assert (tmp_path / "out.jsonl").read_text() == json.dumps(row) + "\n"


def test_writes_parquet_of_units(tmp_path):
    dtype = "float16"
    with open_parquet(tmp_path / "out.parquet", "words", {"layer_-1": 4, "layer_0": 4}, dtype, {"a": 1}) as write:
        write([1, 2], FEATURES[:2])
        write([3], FEATURES[1:2])  # without any row
        write([7], FEATURES[2:])
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["line", "number", "word", "layer_-1", "layer_0"]
    vector = "fixed_size_list<element: halffloat>[4]"
    assert [str(field.type) for field in table.schema] == ["int64", "int32", "string", vector, vector]
    expected = {"line": [1, 1, 7], "number": [0, 2, 0], "word": ["a", "b", "ü\u2028"]}
    assert {name: table[name].to_pylist() for name in expected} == expected
    for index, name in enumerate(("layer_-1", "layer_0")):
        np.testing.assert_array_equal(table[name].to_pylist(), VECTORS[:, index].astype(dtype))
    assert json.loads(table.schema.metadata[b"keras_bert"]) == {"a": 1}


def test_writes_parquet_of_texts(tmp_path):
    with open_parquet(tmp_path / "out.parquet", "text", {"vector": 4}, "float32", {}) as write:
        write([1, 3], VECTORS[:2, 0])
        write([4], VECTORS[2:, 0])
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["line", "vector"]
    assert table["line"].to_pylist() == [1, 3, 4]
    np.testing.assert_array_equal(table["vector"].to_pylist(), VECTORS[:, 0])
    assert pyarrow.parquet.ParquetFile(tmp_path / "out.parquet").num_row_groups == 2


def test_rejects_features_that_are_not_finite(tmp_path):
    path, columns = tmp_path / "out", {"layer_-1": 4, "layer_0": 4}
    not_a_number, too_large = VECTORS.copy(), VECTORS.copy()
    not_a_number[1, 0, 2], too_large[1, 0, 2] = np.nan, 1e5
    message = "line 8: its features are not finite in "
    with pytest.raises(ValueError, match=f"{message}float32"), open_json_lines(path, "text", [-1]) as write:
        write([7, 8, 9], not_a_number[:, 0])
    with (
        pytest.raises(ValueError, match=f"{message}float16"),
        open_parquet(path, "text", columns, "float16", {}) as write,
    ):
        write([7, 8, 9], too_large)
    assert not list(tmp_path.iterdir())
    with open_parquet(path, "text", columns, "float32", {}) as write:
        write([7, 8, 9], too_large)
    with pytest.raises(FileExistsError), open_parquet(path, "text", columns, "float32", {}):
        pass


def test_names_the_extra_that_installs_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"Parquet needs pyarrow: pip install 'keras-bert-zoo\[features\]'"):
        import_pyarrow()
