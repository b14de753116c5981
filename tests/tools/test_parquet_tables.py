import datetime
import json
import sys

import pytest

from keras_bert.io.row_errors import BadRowError, BadRows
from tools import parquet_tables
from tools.parquet_tables import count_rows, import_pyarrow, make_schema, open_parquet_table, read_parquet
from tools.prediction_files import open_table, read_rows

pa, parquet = import_pyarrow()
DAY = datetime.date(2024, 2, 29)


def write(path, **columns):
    parquet.write_table(pa.table(columns), path)
    return path


def test_reads_rows_as_from_json_lines(tmp_path):
    columns = {"prompt": ["a", "", "ü"], "id": [7, None, 9], "choices": [["b", ""], ["c"], ["d", "e"]]}
    path = write(tmp_path / "in.parquet", other=[1, 2, 3], **columns)
    lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    arguments = ["prompt", ("choices",)], ["id", "prompt"], BadRows()
    found = list(read_rows(path, "parquet", *arguments))
    assert found == list(read_rows(tmp_path / "in.jsonl", "jsonl", *arguments))
    assert found[1] == (2, ("", ("c",)), (None, ""))
    assert count_rows(path) == 3


def test_numbers_rows_across_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_tables, "_ROWS_AT_A_TIME", 3)
    texts = [str(number) for number in range(10)]
    parquet.write_table(pa.table({"text": texts}), tmp_path / "in.parquet", row_group_size=4)
    assert list(read_parquet(tmp_path / "in.parquet", ["text"])) == [(i + 1, [text]) for i, text in enumerate(texts)]


def test_a_missing_text_is_a_bad_row(tmp_path):
    path = write(tmp_path / "in.parquet", text=["good", None, "bad"])
    with pytest.raises(BadRowError, match=r"in\.parquet, line 2: 'text' must be a string, got None"):
        list(read_rows(path, "parquet", ["text"], [], BadRows()))
    bad_rows = BadRows(skip=True)
    assert [row.line for row in read_rows(path, "parquet", ["text"], [], bad_rows)] == [1, 3]
    assert bad_rows.count == 1


def test_rejects_other_files_and_columns(tmp_path):
    path = write(tmp_path / "in.parquet", text=["a"])
    with pytest.raises(ValueError, match=r"in\.parquet has no column 'message'; its columns are \['text'\]"):
        list(read_parquet(path, ["message"]))
    with pytest.raises(ValueError, match=r"in\.parquet has no column 'id'"):
        make_schema(path, "parquet", ["id"], {})
    with pytest.raises(ValueError, match=r"in\.parquet has no rows"):
        list(read_parquet(write(path, text=pa.array([], pa.string())), ["text"]))
    path.write_text("text\na\n")
    with pytest.raises(ValueError, match=r"in\.parquet is not a Parquet file"):
        list(read_parquet(path, ["text"]))


def test_writes_the_types_of_the_predictions(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_tables, "_ROWS_AT_A_TIME", 2)
    source = write(tmp_path / "in.parquet", id=pa.array([1, 2, 3], pa.int16()), day=[DAY, DAY, None])
    types = {
        "label": (0, "string"),
        "probability_x": (0, "float32"),
        "start": (0, "int32"),
        "labels": (1, "string"),
        "masks": (2, {"word": "string", "probability": "float32"}),
    }
    schema = make_schema(source, "parquet", ["id", "day"], types, has_file=True)
    masks = [[{"word": "a", "probability": 0.25}], []]
    rows = [
        ["x.csv", 2, 1, DAY, "a", 0.1, 3, [], []],
        ["x.csv", 3, 2, DAY, "b", 1e-30, 4, ["x", "y"], masks],
        ["y.csv", 2, 3, None, "ü", 1.0, 5, ["x"], [[]]],
    ]
    path = tmp_path / "new" / "out.parquet"
    with open_table(path, "parquet", schema.names, schema) as add:
        for row in rows:
            add(row)
    table = parquet.read_table(path)
    found = [list(row.values()) for row in table.to_pylist()]
    assert [row[:5] + row[6:] for row in found] == [row[:5] + row[6:] for row in rows]
    assert [row[5] for row in found] == pytest.approx([row[5] for row in rows], rel=1e-7)
    assert table.schema.names == ["file", "line", "id", "day", *types]
    assert table.schema.field("probability_x").type == pa.float32()
    assert [table.schema.field(name).type for name in ("id", "day")] == [pa.int16(), pa.date32()]
    with open_table(tmp_path / "out.jsonl", "jsonl", schema.names) as add:
        add(rows[0])
    assert json.loads((tmp_path / "out.jsonl").read_text())["day"] == "2024-02-29"


def test_kept_values_of_other_formats_are_strings(tmp_path):
    schema = make_schema("in.jsonl", "jsonl", ["id"], {})
    with open_parquet_table(tmp_path / "out.parquet", schema) as add:
        for number, value in enumerate(["a", 7, None, ["ü"]]):
            add([number, value])
    assert parquet.read_table(tmp_path / "out.parquet")["id"].to_pylist() == ["a", "7", None, '["ü"]']


def test_an_error_leaves_no_file(tmp_path):
    schema = make_schema("in.txt", "txt", [], {"start": (0, "int32")})
    with pytest.raises(ValueError, match="row"), open_parquet_table(tmp_path / "out.parquet", schema) as add:
        add([1, 2])
        raise ValueError("a bad row")
    assert list(tmp_path.iterdir()) == []


def test_missing_pyarrow_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install 'keras-bert-zoo\[features\]'"):
        import_pyarrow()
