import json
import os
from pathlib import Path

import pytest
import tensorflow as tf

from keras_bert.io.beam_pipelines import load_beam
from tests.tools.program_flags import parse_flags
from tools import predict
from tools.parquet_tables import import_pyarrow

pa, parquet = import_pyarrow()
try:
    load_beam()
    from tools import prediction_pipeline
except ImportError as missing:
    if os.environ.get("CI") == "true":
        raise
    pytest.skip(str(missing), allow_module_level=True)

# Beam's own job server takes the serialized pipeline that would go to Flink; its workers are threads of this process.
EMBEDDED = ["--job_endpoint=embed", "--environment_type=LOOPBACK"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A SavedModel that counts the bytes and the words of a text, and lists the first words."""

    def serve(text):
        words = tf.strings.split(text)
        return {
            "bytes": tf.strings.length(text),
            "share": tf.cast(words.row_lengths(), tf.float32) / 7,
            "pieces": words.to_tensor(shape=[None, 4]),
        }

    module = tf.Module()
    module.serve = tf.function(serve, input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    folder = tmp_path_factory.mktemp("model") / "1"
    tf.saved_model.save(module, folder, signatures=module.serve)
    return folder


@pytest.fixture
def run(model):
    """Runs `tools.predict` with a pipeline, in parts of 7 rows."""

    def run(source, target, *arguments, beam_options=(), **options):
        options = {"saved_model": model, "chunk_size": 7, "batch_size": 3, "runner": "direct", **options}
        predict.run(parse_flags(predict, *arguments, input=source, output=target, **options), beam_options)

    return run


@pytest.fixture
def here(model):
    """Runs `tools.predict` without a pipeline."""

    def run(source, target, *arguments, **options):
        predict.run(parse_flags(predict, *arguments, saved_model=model, input=source, output=target, **options))
        return target

    return run


def write_texts(path, num_rows=30):
    """Writes a CSV file whose rows have texts of different lengths, some with line breaks, and a number."""
    lines = ["id,message"]
    for number in range(num_rows):
        lines.append(f'{number},"{"word " * (number * 5 % 11)}\nnumber {number}"')
    path.write_text("\n".join(lines) + "\n")
    return path


def read_parts(folder):
    return "".join(path.read_text() for path in sorted(Path(folder).glob("part-*")))


COLUMNS = {"columns": "message", "keep_columns": "id"}


def test_the_same_rows_as_without_a_pipeline(tmp_path, run, here, capsys):
    source = write_texts(tmp_path / "in.csv")
    target = tmp_path / "new" / "out.jsonl"
    run(source, target, **COLUMNS)
    assert capsys.readouterr().err.endswith(f"30 rows written to {target}\n")
    expected = here(source, tmp_path / "here.jsonl", **COLUMNS).read_text()
    assert read_parts(target) == expected
    assert len({json.loads(line)["bytes"] for line in expected.splitlines()}) > 8
    parts = [f"part-00000-{number:06}.jsonl" for number in range(5)]
    assert sorted(os.listdir(target)) == ["_job.json", "_rows-00000.json", *parts]


def test_several_parquet_files(tmp_path, run, here):
    rows = []
    for name, count in (("a", 9), ("b", 20)):
        texts = [f"{name} " * (number * 3 % 8) for number in range(count)]
        parquet.write_table(pa.table({"text": texts, "id": range(count)}), tmp_path / f"{name}.parquet")
        source = str(tmp_path / f"{name}.parquet")
        table = parquet.read_table(here(source, tmp_path / f"here_{name}.parquet", keep_columns="id"))
        rows += [{"file": source, **row} for row in table.to_pylist()]
        (tmp_path / f"here_{name}.parquet").unlink()
    run(tmp_path / "*.parquet", tmp_path / "out", output_format="parquet", keep_columns="id")
    table = parquet.read_table(tmp_path / "out")  # other files of the folder are ignored, as by Spark
    assert table.to_pylist() == rows
    assert table.schema.field("share").type == pa.float32()
    assert rows[-1]["pieces"][:1] == ["b"] and rows[-1]["line"] == 20


def test_bad_rows_are_errors_or_written_with_reasons(tmp_path, run, here, capsys):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n' * 20)
    (tmp_path / "b.jsonl").write_text('{"text": "x"}\n' * 8 + '{"text": 7}\nno\n{"text": "y"}\n')
    source, target = tmp_path / "?.jsonl", tmp_path / "out.jsonl"
    with pytest.raises(RuntimeError, match=r"^the pipeline failed: .*b\.jsonl, line 9: 'text' must be a string, got 7"):
        run(source, target)
    run(source, target, "--skip_bad_rows")
    assert capsys.readouterr().err.endswith("29 rows written to " + str(target) + "; 2 bad rows skipped\n")
    bad = [json.loads(line) for line in (target / "_bad_rows-00001.jsonl").read_text().splitlines()]
    assert [(row["file"], row["line"]) for row in bad] == [(str(tmp_path / "b.jsonl"), line) for line in (9, 10)]
    assert bad[0]["reason"] == "'text' must be a string, got 7"
    found = [json.loads(line) for line in read_parts(target).splitlines()]
    lines = here(tmp_path / "b.jsonl", tmp_path / "here.jsonl", "--skip_bad_rows").read_text().splitlines()
    del found[:20]
    assert [json.loads(line) for line in lines] == [
        {name: value for name, value in row.items() if name != "file"} for row in found
    ]


def test_a_repeated_command_makes_only_missing_parts(tmp_path, run, here, monkeypatch):
    source = write_texts(tmp_path / "in.csv")
    target = tmp_path / "out.jsonl"
    predict_texts, num_calls = prediction_pipeline.predict_texts, 0

    def fail(*arguments):
        nonlocal num_calls
        num_calls += 1
        if num_calls > 8:
            raise OSError("the machine is gone")
        return predict_texts(*arguments)

    monkeypatch.setattr(prediction_pipeline, "predict_texts", fail)
    with pytest.raises(RuntimeError, match="the pipeline failed: the machine is gone"):
        run(source, target, threads=1, **COLUMNS)
    made = {path.name: path.stat().st_mtime_ns for path in target.glob("part-*")}
    assert 0 < len(made) < 5
    (target / ".part-00000-000004.jsonl.unfinished-1").write_text("half")  # of a worker that was killed
    monkeypatch.setattr(prediction_pipeline, "predict_texts", predict_texts)
    for _ in range(2):
        run(source, target, "--skip_bad_rows", batch_size=5, **COLUMNS)
        assert read_parts(target) == here(source, tmp_path / "here.jsonl", "--overwrite", **COLUMNS).read_text()
    assert made.items() <= {path.name: path.stat().st_mtime_ns for path in target.glob("part-*")}.items()
    assert not list(target.glob(".*"))


def test_refuses_the_folder_of_another_job(tmp_path, run):
    source = write_texts(tmp_path / "in.csv")
    target = tmp_path / "out.jsonl"
    run(source, target, **COLUMNS)
    for changes, names in [({"chunk_size": 8}, "chunk_size"), ({"keep_columns": "message"}, "kept_columns")]:
        with pytest.raises(ValueError, match=f"has parts of another job, which differs in {names} "):
            run(source, target, **{**COLUMNS, **changes})
    write_texts(source, 31)
    with pytest.raises(ValueError, match="differs in sizes "):
        run(source, target, **COLUMNS)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="exists and has other files"):
        run(source, tmp_path / "mine", output_format="jsonl", **COLUMNS)
    assert os.listdir(tmp_path / "mine") == ["notes.txt"]


def test_parts_that_workers_wrote_elsewhere_are_an_error(tmp_path, run, monkeypatch):
    monkeypatch.setattr(prediction_pipeline, "write_part", lambda predicted, job, schema: None)
    with pytest.raises(RuntimeError, match=r"part-00000-000000\.jsonl is missing\. The model, input and output must"):
        run(write_texts(tmp_path / "in.csv"), tmp_path / "out.jsonl", **COLUMNS)


def test_files_of_another_file_system(tmp_path, run, here):
    source = write_texts(tmp_path / "in.csv")
    tf.io.gfile.makedirs("ram://predictions")
    tf.io.gfile.copy(str(source), "ram://predictions/in.csv")
    run("ram://predictions/in.csv", "ram://predictions/out.jsonl", **COLUMNS)
    names = sorted(tf.io.gfile.listdir("ram://predictions/out.jsonl"))
    assert len(names) == 7
    parts = [f"ram://predictions/out.jsonl/{name}" for name in names if name.startswith("part")]
    found = "".join(tf.io.gfile.GFile(path, "r").read() for path in parts)
    assert found == here(source, tmp_path / "here.jsonl", **COLUMNS).read_text()
    tf.io.gfile.remove(parts[2])
    run("ram://predictions/in.csv", "ram://predictions/out.jsonl", **COLUMNS)
    assert "".join(tf.io.gfile.GFile(path, "r").read() for path in parts) == found


def test_relative_paths_are_refused_on_a_cluster(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = write_texts(tmp_path / "in.csv")
    with pytest.raises(ValueError, match=r"out\.jsonl is a relative path"):
        run(source, "out.jsonl", runner="flink", beam_options=EMBEDDED, **COLUMNS)
    with pytest.raises(ValueError, match="Beam has no pipeline options --flink_mastr=HOST"):
        run(source, "out.jsonl", beam_options=["--flink_mastr=HOST"], **COLUMNS)
    assert not os.path.exists("out.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("runner, options", [("direct", {"num_workers": 2}), ("flink", {"beam_options": EMBEDDED})])
def test_the_same_rows_from_several_processes_and_a_portable_runner(tmp_path, run, here, runner, options, monkeypatch):
    if runner == "direct":  # workers are processes of their own
        handler = prediction_pipeline.SavedModelHandler
        monkeypatch.setattr(handler, "run_inference", lambda *_: pytest.fail("in the process of the pipeline"))
    source = write_texts(tmp_path / "in.csv")
    run(source, tmp_path / "out.jsonl", runner=runner, **options, **COLUMNS)
    assert read_parts(tmp_path / "out.jsonl") == here(source, tmp_path / "here.jsonl", **COLUMNS).read_text()
