"""Predictions for files are in order, complete, and computed in bounded memory."""

import contextlib
import json
import logging
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from absl import flags

from keras_bert.io.row_errors import BadRows
from tests.forked import ForkedProgram
from tests.tolerances import assert_close
from tests.toys import toy_classifier, toy_reviews
from tools import predict
from tools.predict import Batching
from tools.prediction_files import Row

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


def values_of(*arguments, **options):
    values = flags.FlagValues()
    predict.define_flags(values)
    values(["predict", *arguments, *(f"--{name}={value}" for name, value in options.items())])
    return values


def run(*arguments, **options):
    predict.run(values_of(*arguments, **options))


def write_tsv(path, columns):
    lines = ["\t".join(columns), *("\t".join(row) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def read_tsv(path):
    return [line.split("\t") for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "batching", [Batching(1, 1, 1), Batching(7, 3, 2), Batching(64, 8, 4), Batching(1000, 32, 2), Batching(5, 9, 2)]
)
def test_keeps_the_order_of_the_rows(batching):
    generator = random.Random(0)
    rows = [Row(i, ("x" * generator.randrange(50), str(i)), ()) for i in range(200)]
    sizes = []

    def answer(texts):
        sizes.append(len(texts))
        time.sleep(generator.random() / 1000)
        return [text + number for text, number in texts]

    found = list(predict.predict_rows(iter(rows), answer, batching))
    assert found == [(row, "".join(row.texts)) for row in rows]
    assert max(sizes) <= batching.batch_size


def test_sorting_in_chunks_reduces_padding():
    generator = random.Random(0)
    rows = [Row(i, ("x" * generator.randrange(1, 100),), ()) for i in range(1024)]

    def padded(chunk_size):
        cells = []
        for _ in predict.predict_rows(
            iter(rows),
            lambda texts: cells.append(len(texts) * max(len(text) for (text,) in texts)) or texts,
            Batching(chunk_size, 32, 1),
        ):
            pass
        return sum(cells)

    characters = sum(len(row.texts[0]) for row in rows)
    assert padded(chunk_size=32) > 1.8 * characters
    assert padded(chunk_size=1024) < 1.1 * characters


def test_reads_at_most_two_chunks_ahead():
    read = 0

    def rows():
        nonlocal read
        for read in range(1, 10_000):
            yield Row(read, ("a text",), ())

    ahead = [read - row.line for row, _ in predict.predict_rows(rows(), lambda texts: texts, Batching(100, 10, 2))]
    assert len(ahead) == 9_999
    assert max(ahead) < 200


def test_batch_bound_includes_padding(monkeypatch):
    monkeypatch.setattr(predict, "_MAX_BATCH_CHARACTERS", 300)
    rows = [Row(i, ("x" * length,), ()) for i, length in enumerate([1000, *[5] * 40, 100, 100])]
    batches = []
    list(predict.predict_rows(iter(rows), lambda texts: batches.append(texts) or texts, Batching(1000, 32, 1)))
    lengths = [[len(text) for (text,) in batch] for batch in batches]
    assert lengths == [[5] * 32, [5] * 8, [100, 100], [1000]]


def test_groups_rows_by_number_of_choices(monkeypatch):
    monkeypatch.setattr(predict, "_MAX_BATCH_CHARACTERS", 120)
    generator = random.Random(0)
    rows = [Row(i, ("x" * 9, ("y",) * generator.choice([2, 4])), ()) for i in range(60)]
    batches = []
    found = list(predict.predict_rows(iter(rows), lambda texts: batches.append(texts) or texts, Batching(1000, 32, 1)))
    assert found == [(row, row.texts) for row in rows]
    numbers = [[len(choices) for _, choices in batch] for batch in batches]
    assert [number for batch in numbers for number in batch] == sorted(len(row.texts[1]) for row in rows)
    assert {(len(batch), batch[0]) for batch in numbers if batch[0] == batch[-1]} >= {(6, 2), (3, 4)}
    assert all(len(batch) * max(batch) * 10 <= 120 for batch in numbers)


def test_interrupt_keeps_the_old_output(tmp_path):
    source = write_tsv(tmp_path / "in.tsv", {"text": ["a"] * 500})
    (tmp_path / "out.tsv").write_text("before")

    class Interrupted(WordCounter):
        calls = 0

        def __call__(self, texts, names):
            Interrupted.calls += 1
            if Interrupted.calls == 20:
                raise KeyboardInterrupt
            return super().__call__(texts, names)

    with pytest.raises(KeyboardInterrupt):
        predict.predict_file(
            Interrupted(), (source, "tsv"), (tmp_path / "out.tsv", "tsv"), ["text"], [], BadRows(),
            Batching(50, 10, 2),
        )  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.tsv", "out.tsv"]
    assert (tmp_path / "out.tsv").read_text() == "before"


@pytest.mark.parametrize("progress", [True, False, None])
def test_shows_a_progress_bar_on_request(tmp_path, capsys, progress):
    source = write_tsv(tmp_path / "in.tsv", {"text": ["a"] * 99})
    predict.predict_file(
        WordCounter(), (source, "tsv"), (tmp_path / "out.tsv", "tsv"), ["text"], [], BadRows(),
        Batching(50, 10, 2), progress,
    )  # fmt: skip
    drawn = capsys.readouterr().err
    assert ("100/100" in drawn and "lines/s" in drawn) if progress else drawn == ""


def test_checks_paths_first(tmp_path):
    source = write_tsv(tmp_path / "in.tsv", {"text": ["a"]})
    (tmp_path / "model" / "3").mkdir(parents=True)
    (tmp_path / "model" / "3" / "saved_model.pb").touch()
    model = tmp_path / "model" / "3"
    with pytest.raises(FileNotFoundError, match=r"has no saved_model\.pb$"):
        run(saved_model=tmp_path / "none", input=source, output=tmp_path / "out.tsv")
    with pytest.raises(FileNotFoundError, match=r"did you mean one of \['.*/model/3'\]"):
        run(saved_model=tmp_path / "model", input=source, output=tmp_path / "out.tsv")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        run(saved_model=model, input=tmp_path / "none.tsv", output=tmp_path / "out.tsv")
    with pytest.raises(FileNotFoundError, match="is a folder"):
        run(saved_model=model, input=tmp_path, output=tmp_path / "out.tsv")
    with pytest.raises(ValueError, match=r"ends in none of \['\.tsv', .*give --format"):
        run(saved_model=model, input=model / "saved_model.pb", output=tmp_path / "out.tsv")
    with pytest.raises(ValueError, match="give --format"):
        run(saved_model=model, input="-", output=tmp_path / "out.tsv")
    with pytest.raises(ValueError, match="give --output_format"):
        run(saved_model=model, input=source, output=tmp_path / "out.parquet")


def test_does_not_overwrite_outputs(tmp_path):
    source = write_tsv(tmp_path / "in.tsv", {"text": ["a"]})
    (tmp_path / "saved_model.pb").touch()
    (tmp_path / "out.tsv").write_text("before")
    (tmp_path / "link.tsv").symlink_to(source)
    with pytest.raises(FileExistsError, match=r"out\.tsv exists; give another name, or --overwrite"):
        run(saved_model=tmp_path, input=source, output=tmp_path / "out.tsv")
    for same in (source, tmp_path / "link.tsv"):
        with pytest.raises(ValueError, match="are the same file"):
            run("--overwrite", saved_model=tmp_path, input=source, output=same)
    with pytest.raises(ValueError, match="is not a regular file"):
        run("--overwrite", saved_model=tmp_path, input=source, output="/dev/null")
    assert (tmp_path / "out.tsv").read_text() == "before"


ONE, TWO, SEVERAL = {"text": False}, {"question": False, "context": False}, {"prompt": False, "choices": True}


@pytest.mark.parametrize(
    "inputs, given, file_format, message",
    [
        (ONE, ["label=x"], "tsv", "takes text: give --columns=text=...; got 'label=x'"),
        (TWO, ["x"], "tsv", "takes question and context: give --columns=question=...,context=...; got 'x'"),
        (TWO, ["context=x", "context=y"], "tsv", "got 'context=x,context=y'"),
        (TWO, ["context=question"], "tsv", "must name different columns"),
        (TWO, ["context="], "tsv", "must name different columns"),
        (TWO, [], "txt", "takes question and context, but a .txt file has one text per line; give a file with columns"),
        (ONE, ["x"], "txt", "leave out --columns"),
        (SEVERAL, [], "csv", "--columns=choices=first+second, or a .jsonl file"),
        (SEVERAL, ["choices=a++b"], "jsonl", "must name different columns"),
        (SEVERAL, ["choices=a+a"], "jsonl", "must name different columns"),
    ],
)
def test_rejects_columns_that_do_not_fit(inputs, given, file_format, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        predict.choose_columns(inputs, given, file_format)


@pytest.mark.parametrize(
    "inputs, given, file_format, columns",
    [
        (ONE, [], "txt", ["text"]),
        (ONE, ["message"], "csv", ["message"]),
        (TWO, ["context=text"], "csv", ["question", "text"]),
        (SEVERAL, [], "jsonl", ["prompt", ("choices",)]),
        (SEVERAL, ["choices=endings", "prompt=start"], "jsonl", ["start", ("endings",)]),
        (SEVERAL, ["choices=ending0+ending1"], "tsv", ["prompt", ("ending0", "ending1")]),
    ],
)
def test_columns_default_to_the_names_of_the_inputs(inputs, given, file_format, columns):
    assert predict.choose_columns(inputs, given, file_format) == columns


def test_tables_leave_out_lists(caplog):
    lists = WordCounter(columns=[], lists=["words", "entities"])
    both = WordCounter(columns=["answer", "score"], lists=["n_best"])
    for file_format in ("tsv", "csv"):
        with pytest.raises(ValueError, match=r"\(words and entities\), which TSV and CSV cannot hold; write a \.jsonl"):
            predict.choose_predictions(lists, file_format)
        with caplog.at_level(logging.WARNING):
            assert predict.choose_predictions(both, file_format) == ["answer", "score"]
        assert caplog.messages == ["TSV and CSV cannot hold the lists of n_best; write a .jsonl file to get them"]
        caplog.clear()
    assert predict.choose_predictions(lists, "jsonl") == ["words", "entities"]
    assert predict.choose_predictions(both, "jsonl") == ["answer", "score", "n_best"]
    assert predict.choose_predictions(WordCounter(), "tsv") == ("words",)
    assert caplog.messages == []


@pytest.mark.slow
def test_labels_and_probabilities_match_the_classifier(models, tmp_path, capsys):
    classifier, folder = models["single"]
    texts, labels = toy_reviews(150)
    source = write_tsv(tmp_path / "in.tsv", {"review": texts, "label_before": labels})
    run(
        saved_model=folder, input=source, output=tmp_path / "new" / "out.tsv", columns="review",
        keep_columns="label_before", chunk_size=40, batch_size=16,
    )  # fmt: skip
    header, *rows = read_tsv(tmp_path / "new" / "out.tsv")
    assert header == ["line", "label_before", "label", "probability_negative", "probability_positive"]
    assert [row[0] for row in rows] == [str(line) for line in range(2, 152)]
    assert [row[1] for row in rows] == labels
    assert [row[2] for row in rows] == classifier.predict_labels(texts)
    assert {row[2] for row in rows} == {"negative", "positive"}
    probabilities = np.array([row[3:] for row in rows], dtype=float)
    assert_close(probabilities, classifier.predict_probabilities(texts), num_terms=64)
    assert max(len(field) for row in rows for field in row[3:]) <= 14  # the digits of a float32
    assert capsys.readouterr().err.endswith("150 rows written to " + str(tmp_path / "new" / "out.tsv") + "\n")


@pytest.mark.slow
def test_pairs(models, tmp_path):
    classifier, folder = models["pairs"]
    texts = toy_reviews(40)[0]
    columns = {"text_a": texts[:20], "other": texts[20:]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(saved_model=folder, input=tmp_path / "in.jsonl", output=tmp_path / "out.jsonl", columns="text_b=other")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    probabilities = [[row["probability_negative"], row["probability_positive"]] for row in found]
    expected = classifier.predict_probabilities((columns["text_a"], columns["other"]))
    assert_close(probabilities, expected, num_terms=64)
    swapped = classifier.predict_probabilities((columns["other"], columns["text_a"]))
    assert np.abs(expected - swapped).max() > 1e-3


@pytest.mark.slow
def test_multi_label_classification(models, tmp_path):
    classifier, folder = models["multi_label"]
    texts = toy_reviews(40)[0]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    run(saved_model=folder, input=tmp_path / "in.txt", output=tmp_path / "out.jsonl")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["labels"] for row in found] == classifier.predict_labels(texts)
    assert len({tuple(row["labels"]) for row in found}) > 2
    assert list(found[0])[3:] == [f"probability_{topic}" for topic in TOPICS]


@pytest.mark.slow
def test_missing_columns(models, tmp_path):
    source = write_tsv(tmp_path / "in.tsv", {"review": ["good"]})
    with pytest.raises(ValueError, match=r"has no column 'text'; its columns are \['review'\]"):
        run(saved_model=models["single"][1], input=source, output=tmp_path / "out.tsv")
    with pytest.raises(ValueError, match="give --columns=text="):
        run(saved_model=models["single"][1], input=source, output=tmp_path / "out.tsv", columns="text_a=review")
    assert [path.name for path in tmp_path.iterdir()] == ["in.tsv"]


def program(*arguments, **options):
    return ForkedProgram(
        [sys.executable, "-m", "tools.predict", *map(str, arguments)],
        cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


@pytest.mark.slow
def test_reads_standard_input_and_writes_standard_output(models, tmp_path):
    arguments = [
        f"--saved_model={models['single'][1]}",
        "--input=-",
        "--format=tsv",
        "--output=-",
        "--output_format=jsonl",
    ]
    out, err = program(*arguments, "--skip_bad_rows").communicate("text\tlabel\ngood\tx\nbad\nfine\ty\n")
    assert [json.loads(line)["line"] for line in out.splitlines()] == [2, 4], err
    assert err.endswith("2 rows written to -; 1 bad row skipped\n")
    refused = program(*arguments)
    _, err = refused.communicate("text\tlabel\nbad\n")
    assert refused.returncode == 1
    assert "line 2: has 1 column instead of 2 (text, label)" in err
    assert "skip_bad_rows" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_interrupt_removes_the_unfinished_output(models, tmp_path):
    arguments = [
        f"--saved_model={models['single'][1]}",
        "--input=-",
        "--format=txt",
        f"--output={tmp_path / 'out.tsv'}",
    ]
    process = program(*arguments, "--chunk_size=1")
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
