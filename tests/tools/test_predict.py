import contextlib
import json
import logging
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from keras_bert.io.row_errors import BadRows
from tests.forked import ForkedProgram
from tests.tolerances import assert_close
from tests.tools.program_flags import parse_flags
from tests.toys import toy_classifier, toy_reviews
from tools import predict
from tools.prediction_batches import Batching

ROOT = Path(__file__).parents[2]
TOPICS = ["sport", "very good", "very-good"]


class WordCounter:
    """Stands in for a `ServingSignature`: counts the words of a text."""

    def __init__(self, columns=("words",), lists=()):
        self.inputs = {"text": False}
        self.columns, self.lists = columns, lists

    def __call__(self, texts, names):
        return [[len(text.split())] for text in texts["text"]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """{name: (classifier, folder of its export)}."""
    folder = tmp_path_factory.mktemp("models")
    wide = {"initializer_range": 1.0, "seed": 4}  # so that texts get different labels
    classifiers = {
        "single": toy_classifier(encoder_arguments=wide),
        "pairs": toy_classifier(),
        "multi_label": toy_classifier(TOPICS, wide, problem_type="multi_label_classification"),
    }
    return {
        name: (classifier, classifier.export(folder / name / "1", pairs=name == "pairs"))
        for name, classifier in classifiers.items()
    }


def run(*arguments, **options):
    predict.run(parse_flags(predict, *arguments, **options))


def write_tsv(path, columns):
    lines = ["\t".join(columns), *("\t".join(row) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("progress", [True, False, None])
def test_shows_a_progress_bar_on_request(tmp_path, capsys, progress):
    source = write_tsv(tmp_path / "in.tsv", {"text": ["a"] * 99})
    target, batching = tmp_path / "out.tsv", Batching(50, 10, 2)
    predict.predict_file(WordCounter(), (source, "tsv"), (target, "tsv"), ["text"], [], BadRows(), batching, progress)
    drawn = capsys.readouterr().err
    assert ("100/100" in drawn and "lines/s" in drawn) if progress else drawn == ""


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"saved_model": "none"}, FileNotFoundError, r"has no saved_model\.pb$"),
        ({"saved_model": "model"}, FileNotFoundError, r"did you mean one of \['model/3'\]"),
        ({"input": "none.tsv"}, FileNotFoundError, "does not exist"),
        ({"input": "model"}, FileNotFoundError, "is a folder"),
        ({"input": "in.dat"}, ValueError, r"ends in none of \['\.tsv', .*give --format"),
        ({"input": "-"}, ValueError, "give --format"),
        ({"output": "out.dat"}, ValueError, "give --output_format"),
        ({"output": "out.parquet.gz"}, ValueError, "cannot be Parquet"),
        ({"input": "-", "format": "parquet"}, ValueError, "--input=- cannot be Parquet"),
        ({"num_workers": 2}, ValueError, "--num_workers applies to --runner=direct only"),
        ({"runner": "direct"}, ValueError, "remove it yourself"),
        ({"runner": "direct", "output": "-"}, ValueError, "- is not available"),
        ({"output": "in.tsv"}, ValueError, "are the same file"),
        ({"output": "link.tsv"}, ValueError, "are the same file"),
        ({"output": "/dev/null"}, ValueError, "is not a regular file"),
    ],
)
def test_checks_paths_first(tmp_path, monkeypatch, changes, error, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model" / "3").mkdir(parents=True)
    for name in ("in.tsv", "in.dat", "model/3/saved_model.pb"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "link.tsv").symlink_to("in.tsv")
    with pytest.raises(error, match=message):
        run("--overwrite", **{"saved_model": "model/3", "input": "in.tsv", "output": "out.tsv", **changes})
    assert (tmp_path / "in.tsv").read_text() == "mine"


ONE, TWO, SEVERAL = {"text": False}, {"question": False, "context": False}, {"prompt": False, "choices": True}


@pytest.mark.parametrize(
    "inputs, flag, file_format, message",
    [
        (ONE, ["label=x"], "tsv", "takes text: give --columns=text=...; got 'label=x'"),
        (TWO, ["x"], "tsv", "takes question and context: give --columns=question=...,context=...; got 'x'"),
        (TWO, ["context=x", "context=y"], "tsv", "got 'context=x,context=y'"),
        (TWO, ["context=question"], "tsv", "must name different columns"),
        (TWO, ["context="], "tsv", "must name different columns"),
        (TWO, [], "txt", "takes question and context, but a .txt file has one text per line; give a file with columns"),
        (ONE, ["x"], "txt", "leave out --columns"),
        (SEVERAL, [], "csv", "--columns=choices=first+second, or a .jsonl or .parquet file"),
        (SEVERAL, ["choices=a++b"], "jsonl", "must name different columns"),
        (SEVERAL, ["choices=a+a"], "jsonl", "must name different columns"),
    ],
)
def test_rejects_columns_that_do_not_fit(inputs, flag, file_format, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        predict.choose_columns(inputs, flag, file_format)


@pytest.mark.parametrize(
    "inputs, flag, file_format, columns",
    [
        (ONE, [], "txt", ["text"]),
        (ONE, ["message"], "csv", ["message"]),
        (TWO, ["context=text"], "csv", ["question", "text"]),
        (SEVERAL, [], "jsonl", ["prompt", ("choices",)]),
        (SEVERAL, [], "parquet", ["prompt", ("choices",)]),
        (SEVERAL, ["choices=endings", "prompt=start"], "jsonl", ["start", ("endings",)]),
        (SEVERAL, ["choices=ending0+ending1"], "tsv", ["prompt", ("ending0", "ending1")]),
    ],
)
def test_columns_default_to_the_names_of_the_inputs(inputs, flag, file_format, columns):
    assert predict.choose_columns(inputs, flag, file_format) == columns


def test_tables_leave_out_lists(caplog):
    lists = WordCounter(columns=[], lists=["words", "entities"])
    both = WordCounter(columns=["answer", "score"], lists=["n_best"])
    for file_format in ("tsv", "csv"):
        with pytest.raises(
            ValueError, match=r"\(words and entities\), which TSV and CSV cannot hold; write a \.jsonl or"
        ):
            predict.choose_predictions(lists, file_format)
        with caplog.at_level(logging.WARNING):
            assert predict.choose_predictions(both, file_format) == ["answer", "score"]
        assert caplog.messages == [
            "TSV and CSV cannot hold the lists of n_best; write a .jsonl or .parquet file to get them"
        ]
        caplog.clear()
    for file_format in ("jsonl", "parquet"):
        assert predict.choose_predictions(lists, file_format) == ["words", "entities"]
    assert predict.choose_predictions(both, "jsonl") == ["answer", "score", "n_best"]
    assert predict.choose_predictions(WordCounter(), "tsv") == ("words",)
    assert caplog.messages == []


@pytest.mark.slow
def test_labels_and_probabilities_match_the_classifier(models, tmp_path, capsys):
    classifier, folder = models["single"]
    texts, labels = toy_reviews(150)
    source = write_tsv(tmp_path / "in.tsv", {"review": texts, "label_before": labels})
    target = tmp_path / "new" / "out.tsv"
    columns = {"columns": "review", "keep_columns": "label_before"}
    run(saved_model=folder, input=source, output=target, chunk_size=40, batch_size=16, **columns)
    header, *rows = [line.split("\t") for line in target.read_text().splitlines()]
    assert header == ["line", "label_before", "label", "probability_negative", "probability_positive"]
    assert [row[0] for row in rows] == [str(line) for line in range(2, 152)]
    assert [row[1] for row in rows] == labels
    assert [row[2] for row in rows] == classifier.predict_labels(texts)
    assert {row[2] for row in rows} == {"negative", "positive"}
    probabilities = np.array([row[3:] for row in rows], dtype=float)
    assert_close(probabilities, classifier.predict_probabilities(texts), num_terms=64)
    assert max(len(field) for row in rows for field in row[3:]) <= 14  # the digits of a float32
    assert capsys.readouterr().err.endswith(f"150 rows written to {target}\n")


@pytest.mark.slow
def test_pairs_match_the_classifier(models, tmp_path):
    classifier, folder = models["pairs"]
    texts = toy_reviews(40)[0]
    source = write_tsv(tmp_path / "in.tsv", {"other": texts[20:], "text_a": texts[:20]})
    run(saved_model=folder, input=source, output=tmp_path / "out.jsonl", columns="text_b=other")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    probabilities = [[row["probability_negative"], row["probability_positive"]] for row in found]
    expected = classifier.predict_probabilities((texts[:20], texts[20:]))
    assert_close(probabilities, expected, num_terms=64)
    assert np.abs(expected - classifier.predict_probabilities((texts[20:], texts[:20]))).max() > 1e-3


@pytest.mark.slow
def test_label_sets_match_the_classifier(models, tmp_path):
    classifier, folder = models["multi_label"]
    texts = toy_reviews(40)[0]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    run(saved_model=folder, input=tmp_path / "in.txt", output=tmp_path / "out.jsonl")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["labels"] for row in found] == classifier.predict_labels(texts)
    assert len({tuple(row["labels"]) for row in found}) > 2
    assert list(found[0])[3:] == [f"probability_{topic}" for topic in TOPICS]


def start(*arguments):
    command = [sys.executable, "-m", "tools.predict", *arguments]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return ForkedProgram(command, cwd=ROOT, text=True, **pipes)


@pytest.mark.slow
def test_reads_standard_input_and_writes_standard_output(models, tmp_path):
    arguments = [f"--saved_model={models['single'][1]}", "--input=-", "--format=tsv", "--output=-"]
    arguments += ["--output_format=jsonl"]
    out, err = start(*arguments, "--skip_bad_rows").communicate("text\tlabel\ngood\tx\nbad\nfine\ty\n")
    assert [json.loads(line)["line"] for line in out.splitlines()] == [2, 4], err
    assert err.endswith("2 rows written to -; 1 bad row skipped\n")
    refused = start(*arguments)
    _, err = refused.communicate("text\tlabel\nbad\n")
    assert refused.returncode == 1
    assert "line 2: has 1 column instead of 2 (text, label)" in err
    assert "skip_bad_rows" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_interrupt_removes_the_unfinished_output(models, tmp_path):
    arguments = [f"--saved_model={models['single'][1]}", "--input=-", "--format=txt", "--chunk_size=1"]
    process = start(*arguments, f"--output={tmp_path / 'out.tsv'}")
    try:
        process.stdin.write("good\n" * 100)
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert [path.name.split("-")[0] for path in tmp_path.iterdir()] == [".out.tsv.unfinished"]
        # The input stays open, or the program could come to its end first. Python drops an interrupt that arrives while
        # an object is being finalized: a user would press Ctrl-C again, too.
        while process.poll() is None and time.monotonic() < deadline + 30:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode not in (0, -signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []
