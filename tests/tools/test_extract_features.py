import json

import numpy as np
import pyarrow.parquet
import pytest

from keras_bert.io.row_errors import BadRowError
from keras_bert.models.feature_extractor import BertFeatureExtractor
from keras_bert.models.text_embedder import BertTextEmbedder
from tests.tolerances import assert_close
from tests.tools.program_flags import parse_flags
from tests.toys import toy_encoder, toy_preprocessor, toy_reviews
from tools import extract_features

NUM_TERMS = 4 * 16  # layers, hidden size
TEXTS = ["a good film", "", "goodly , goodly the plot was", "the film was bad", "  "]
PAIRS = ["the plot", "", "", "was it good ?", ""]
LINES = [f"{a} ||| {b}" if b else a for a, b in zip(TEXTS, PAIRS, strict=True)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features") / "model"
    return toy_encoder(num_hidden_layers=4).save_checkpoint(folder, toy_preprocessor().tokenizer)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


def run(*arguments, **options):
    extract_features.run(parse_flags(extract_features, *arguments, **{"max_seq_length": 16, **options}))


def read_json(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_parquet(path):
    table = pyarrow.parquet.read_table(path)
    return {name: table[name].to_pylist() for name in table.column_names}


def original_rows(checkpoint, layers):
    """Returns what the original writes for the texts, computed one by one: (linex_index, token, layer, values)."""
    extractor = BertFeatureExtractor.from_checkpoint(checkpoint, sequence_length=16)
    vocabulary = extractor.preprocessor.tokenizer.vocabulary
    rows = []
    for number, (a, b) in enumerate(zip(TEXTS, PAIRS, strict=True)):
        ids = extractor.preprocessor(([a], [b]) if b else [a])
        hidden_states = extractor.encoder(ids, return_hidden_states=True)["hidden_states"][1:]
        for position, token_id in enumerate(ids["token_ids"].numpy()[0]):
            token = vocabulary[token_id]
            rows += [(number, token, layer, np.array(hidden_states[layer])[0, position]) for layer in layers]
    return rows


def test_json_lines_match_the_original(checkpoint, source, tmp_path, capsys):
    run(checkpoint=checkpoint, input=source, output=tmp_path / "out.jsonl", batch_size=2)
    objects = read_json(tmp_path / "out.jsonl")
    found = [
        (row["linex_index"], token["token"], layer["index"], layer["values"])
        for row in objects
        for token in row["features"]
        for layer in token["layers"]
    ]
    expected = original_rows(checkpoint, [-1, -2, -3, -4])
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    assert_close(np.array([row[3] for row in found]), np.array([row[3] for row in expected]), num_terms=NUM_TERMS)
    assert all(value == round(value, 6) for row in found for value in row[3])
    assert [len(row["features"]) for row in objects] == [8, 2, 10, 11, 2]
    assert capsys.readouterr().err == f"features of 5 texts written to {tmp_path / 'out.jsonl'}\n"


def test_parquet_matches_json_lines(checkpoint, source, tmp_path):
    for name in ("out.jsonl", "out.parquet"):
        (tmp_path / name).write_text("before")
        run("--overwrite", checkpoint=checkpoint, input=source, output=tmp_path / name, layers="-1,0")
    objects, table = read_json(tmp_path / "out.jsonl"), read_parquet(tmp_path / "out.parquet")
    tokens = [(row["linex_index"] + 1, i, token) for row in objects for i, token in enumerate(row["features"])]
    assert list(table) == ["line", "position", "token", "layer_-1", "layer_0"]
    assert table["line"] == [line for line, _, _ in tokens]
    assert table["position"] == [position for _, position, _ in tokens]
    assert table["token"] == [token["token"] for _, _, token in tokens]
    for index, name in enumerate(("layer_-1", "layer_0")):
        expected = [token["layers"][index]["values"] for _, _, token in tokens]
        np.testing.assert_allclose(table[name], expected, atol=1e-6)  # JSON has six decimals
    settings = json.loads(pyarrow.parquet.read_schema(tmp_path / "out.parquet").metadata[b"keras_bert"])
    expected = {"model": str(checkpoint), "layers": [-1, 0], "unit": "wordpieces", "combine": "stack"}
    assert settings == {**expected, "max_seq_length": 16, "dtype": "float32"}


def test_words_equal_those_of_the_extractor(checkpoint, source, tmp_path):
    options = {"unit": "words", "word_pooling": "mean", "combine": "concat", "layers": "-1,1"}
    run(checkpoint=checkpoint, input=source, output=tmp_path / "out.parquet", **options)
    table = read_parquet(tmp_path / "out.parquet")
    extractor = BertFeatureExtractor.from_checkpoint(checkpoint, [-1, 1], sequence_length=16)
    expected = extractor.extract((TEXTS, PAIRS), "words", "mean")
    assert table["word"] == [word for text in expected for word in text.names]
    assert table["line"] == [line for line, text in enumerate(expected, start=1) for _ in text.names]
    assert table["number"] == [number for text in expected for number in text.numbers]
    assert_close(np.stack(table["vector"]), np.concatenate([text.vectors for text in expected]), num_terms=NUM_TERMS)
    assert len(table["word"]) > 12


def test_texts_equal_those_of_the_embedder(checkpoint, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    options = {"checkpoint": checkpoint, "unit": "text", "pooling": "max"}
    for name in ("out.parquet", "out.jsonl"):
        run("--nonormalize", input=tmp_path / "in.txt", output=tmp_path / name, **options)
    table, objects = read_parquet(tmp_path / "out.parquet"), read_json(tmp_path / "out.jsonl")
    embedder = BertTextEmbedder.from_checkpoint(checkpoint, pooling="max", normalize=False, sequence_length=16)
    assert list(table) == ["line", "vector"] and table["line"] == [1, 2, 3, 4, 5]
    assert_close(np.asarray(table["vector"]), embedder.encode(TEXTS), num_terms=NUM_TERMS)
    np.testing.assert_allclose([row["vector"] for row in objects], table["vector"], atol=1e-6)


def test_reads_text_columns(checkpoint, tmp_path):
    rows = zip(TEXTS, PAIRS, strict=True)
    (tmp_path / "in.tsv").write_text("id\tq\ta\n" + "".join(f"7\t{a}\t{b}\n" for a, b in rows))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n\n" for text in TEXTS))
    options = {"checkpoint": checkpoint, "layers": "-1"}
    pairs = {"text_a_column": "q", "text_b_column": "a"}
    run(input=tmp_path / "in.tsv", output=tmp_path / "pairs.parquet", **options, **pairs)
    run(input=tmp_path / "in.tsv", output=tmp_path / "single.parquet", **options, text_column="q")
    run(input=tmp_path / "in.jsonl", output=tmp_path / "json.parquet", **options)
    tables = [read_parquet(tmp_path / f"{name}.parquet") for name in ("pairs", "single", "json")]
    lines = [sorted(set(table["line"])) for table in tables]
    assert lines == [[2, 3, 4, 5, 6], [2, 3, 4, 5, 6], [1, 3, 5, 7, 9]]
    extractor = BertFeatureExtractor.from_checkpoint(checkpoint, sequence_length=16)
    for table, texts in zip(tables, [(TEXTS, PAIRS), TEXTS, TEXTS], strict=True):
        vectors = np.concatenate([features.vectors for features in extractor.extract(texts)])
        assert_close(np.stack(table["layer_-1"]), vectors, num_terms=NUM_TERMS)


def test_chunks_do_not_change_the_features(checkpoint, tmp_path, monkeypatch):
    texts = toy_reviews(40)[0]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    options = {"checkpoint": checkpoint, "input": tmp_path / "in.txt", "layers": "-1"}
    run(output=tmp_path / "whole.parquet", **options)
    monkeypatch.setattr(extract_features, "_MAX_NUMBERS", 16 * 16 * 7)  # tokens, hidden size, texts
    run(output=tmp_path / "parts.parquet", **options, batch_size=3)
    whole, parts = (pyarrow.parquet.ParquetFile(tmp_path / f"{name}.parquet") for name in ("whole", "parts"))
    assert (whole.num_row_groups, parts.num_row_groups) == (1, 6)
    whole, parts = (read_parquet(tmp_path / f"{name}.parquet") for name in ("whole", "parts"))
    assert_close(np.stack(parts.pop("layer_-1")), np.stack(whole.pop("layer_-1")), num_terms=NUM_TERMS)
    assert parts == whole


@pytest.mark.parametrize("unit, numbers", [("wordpieces", [3, 16, 16]), ("words", [1, 14, 13])])
def test_counts_truncated_texts(checkpoint, tmp_path, capsys, unit, numbers):
    (tmp_path / "in.txt").write_text(f"good\n{'bad ' * 100_000}\n{'good ' * 9} ||| {'bad ' * 9}\n")
    run(checkpoint=checkpoint, input=tmp_path / "in.txt", output=tmp_path / "out.jsonl", layers="-1", unit=unit)
    assert capsys.readouterr().err.endswith("; 2 of them truncated to 16 tokens\n")
    assert [len(row["features"]) for row in read_json(tmp_path / "out.jsonl")] == numbers


def test_bad_rows_are_errors_or_skipped(checkpoint, tmp_path, capsys):
    (tmp_path / "in.txt").write_bytes(b"good\n\xc3(\nbad\n")
    options = {"checkpoint": checkpoint, "input": tmp_path / "in.txt", "output": tmp_path / "out.jsonl"}
    with pytest.raises(BadRowError, match=r"in\.txt, line 2: is not UTF-8: byte 1"):
        run(**options)
    run("--skip_bad_rows", **options)
    assert [row["linex_index"] for row in read_json(tmp_path / "out.jsonl")] == [0, 2]
    assert capsys.readouterr().err.endswith("; 1 bad row skipped\n")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"input": "empty.txt"}, r"empty\.txt has no rows"),
        ({"input": "empty.txt", "output": "out.parquet"}, r"empty\.txt has no rows"),
        ({"output": "in.txt", "format": "jsonl"}, "are the same file"),
        ({"output": "."}, "is a folder"),
        ({"input": "nowhere.txt"}, r"--input=nowhere\.txt does not exist"),
        ({"output": "out.npy"}, r"cannot tell the format of out\.npy .* give --format"),
        ({"output": "out.parquet.gz"}, r"leave out \.gz"),
        ({"combine": "sum"}, "--combine and --vector_dtype are for Parquet"),
        ({"word_pooling": "mean"}, "--word_pooling is for --unit=words and has no effect with --unit=wordpieces"),
        ({"normalize": False, "unit": "words"}, "--normalize is for --unit=text and has no effect with --unit=words"),
        (
            {"layers": "-1", "unit": "text"},
            "--layers is for --unit=wordpieces or words and has no effect with --unit=t",
        ),
        ({"unit": "text"}, "line 1 has a pair of texts; --unit=text takes single ones"),
        (
            {"unit": "text", "input_format": "tsv", "text_a_column": "a", "text_b_column": "b"},
            "--unit=text takes single texts; leave out --text_a_column",
        ),
        ({"text_column": "text"}, r"a \.txt file has no columns"),
        ({"layers": "-1,last"}, "comma-separated integers, got '-1,last'"),
        ({"layers": "-6"}, r"from 0 \(the embeddings\) to 4 .* to -5; got -6"),
        ({"layers": ""}, "at least one number"),
        ({"max_seq_length": 64}, "sequence_length=64 is beyond the encoder's 32 positions"),
        ({"input_format": "csv", "text_a_column": "a"}, "either --text_column, or --text_a_column and --text_b_column"),
        ({"input_format": "csv"}, "has no column 'text'"),
    ],
)
def test_rejects_invalid_options(checkpoint, source, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").touch()
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        run(**{"checkpoint": checkpoint, "input": source, "output": "out.jsonl", **options})
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "empty.txt"}
    assert source.read_text() == "\n".join(LINES) + "\n"
