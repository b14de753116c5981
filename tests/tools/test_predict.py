"""A file of any size is answered in order, in bounded memory, completely or not at all."""

import contextlib
import json
import logging
import random
import re
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from absl import flags

from keras_bert.io.row_errors import BadRows
from tests.forked import ForkedProgram
from tests.toys import toy_classifier, toy_reviews
from tools import predict
from tools.prediction_files import Row, read_rows

ROOT = Path(__file__).parents[2]
TOPICS = ["sport", "very good", "very-good"]


class WordCounter:
    """Stands in for a model where none is needed: it counts the words of a text."""

    def __init__(self, columns=("words",), lists=()):
        self.inputs = {"text": False}
        self.columns, self.lists = columns, lists

    def __call__(self, texts, names):
        return [[len(text.split())] for text in texts["text"]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Classifiers by what they do, each with the folder of its export."""
    folder = tmp_path_factory.mktemp("models")
    lively = {"initializer_range": 1.0, "seed": 4}  # so that texts differ in their labels
    classifiers = {
        "single": toy_classifier(encoder_arguments=lively),
        "pairs": toy_classifier(),
        "several": toy_classifier(TOPICS, lively, problem_type="multi_label_classification"),
        "regression": toy_classifier(["length", "worth"], problem_type="regression"),
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


# Chunks and batches.


@pytest.mark.parametrize(
    "chunk_size, batch_size, threads", [(1, 1, 1), (7, 3, 2), (64, 8, 4), (1000, 32, 2), (5, 9, 2)]
)
def test_predictions_are_in_the_order_of_the_rows(chunk_size, batch_size, threads):
    generator = random.Random(0)
    rows = [Row(i, ("x" * generator.randrange(50), str(i)), ()) for i in range(200)]
    sizes = []

    def answer(texts):
        sizes.append(len(texts))
        time.sleep(generator.random() / 1000)
        return [text + number for text, number in texts]

    found = list(predict.predict_rows(iter(rows), answer, chunk_size, batch_size, threads))
    assert found == [(row, "".join(row.texts)) for row in rows]
    assert max(sizes) <= batch_size


def test_sorting_in_chunks_saves_padding():
    generator = random.Random(0)
    rows = [Row(i, ("x" * generator.randrange(1, 100),), ()) for i in range(1024)]

    def padded(chunk_size):
        cells = []
        for _ in predict.predict_rows(
            iter(rows),
            lambda texts: cells.append(len(texts) * max(len(text) for (text,) in texts)) or texts,
            chunk_size,
            32,
            1,
        ):
            pass
        return sum(cells)

    characters = sum(len(row.texts[0]) for row in rows)
    assert padded(chunk_size=32) > 1.8 * characters
    assert padded(chunk_size=1024) < 1.1 * characters


def test_rows_are_not_read_far_ahead():
    read = 0

    def rows():
        nonlocal read
        for read in range(1, 10_000):
            yield Row(read, ("a text",), ())

    ahead = [
        read - row.line
        for row, _ in predict.predict_rows(rows(), lambda texts: texts, chunk_size=100, batch_size=10, threads=2)
    ]
    assert len(ahead) == 9_999
    assert max(ahead) < 200


def test_long_texts_end_chunks_and_batches(monkeypatch):
    monkeypatch.setattr(predict, "_CHARACTERS_IN_CHUNK", 1000)
    monkeypatch.setattr(predict, "_CHARACTERS_IN_BATCH", 300)
    batches = []
    rows = (Row(i, ("x" * 150,), ()) for i in range(20))
    found = list(predict.predict_rows(rows, lambda texts: batches.append(len(texts)) or texts, 1000, 32, 1))
    assert [row.line for row, _ in found] == list(range(20))
    assert batches == [2, 2, 2, 1, 2, 2, 2, 1, 2, 2, 2]


def test_batches_are_bounded_as_they_are_padded(monkeypatch):
    monkeypatch.setattr(predict, "_CHARACTERS_IN_BATCH", 300)
    rows = [Row(i, ("x" * length,), ()) for i, length in enumerate([1000, *[5] * 40, 100, 100])]
    batches = []
    list(predict.predict_rows(iter(rows), lambda texts: batches.append(texts) or texts, 1000, 32, 1))
    lengths = [[len(text) for (text,) in batch] for batch in batches]
    assert lengths == [[5] * 32, [5] * 8, [100, 100], [1000]]


def test_rows_with_as_many_choices_are_together(monkeypatch):
    monkeypatch.setattr(predict, "_CHARACTERS_IN_BATCH", 120)
    generator = random.Random(0)
    rows = [Row(i, ("x" * 9, ("y",) * generator.choice([2, 4])), ()) for i in range(60)]
    batches = []
    found = list(predict.predict_rows(iter(rows), lambda texts: batches.append(texts) or texts, 1000, 32, 1))
    assert found == [(row, row.texts) for row in rows]
    numbers = [[len(choices) for _, choices in batch] for batch in batches]
    assert [number for batch in numbers for number in batch] == sorted(len(row.texts[1]) for row in rows)
    assert {(len(batch), batch[0]) for batch in numbers if batch[0] == batch[-1]} >= {(6, 2), (3, 4)}
    assert all(len(batch) * max(batch) * 10 <= 120 for batch in numbers)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    text, number = "a text of some hundred characters, which is about what a sentence has in a review of a film", 20_000
    source = write_tsv(tmp_path / "in.tsv", {"text": [text] * number})

    def peak(job):
        tracemalloc.start()
        try:
            job()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def held():
        list(read_rows(source, "tsv", ["text"], [], BadRows()))

    def streamed():
        written = predict.predict_file(
            WordCounter(), (source, "tsv"), (tmp_path / "out.tsv", "tsv"), ["text"], [], BadRows(), False,
            chunk_size=256, batch_size=32, threads=2,
        )  # fmt: skip
        assert written == number

    assert peak(held) > 5e6
    assert peak(streamed) < 2e6


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_run_leaves_what_was_there(tmp_path, error):
    source = write_tsv(tmp_path / "in.tsv", {"text": ["a"] * 500})
    (tmp_path / "out.tsv").write_text("before")

    class Interrupted(WordCounter):
        calls = 0

        def __call__(self, texts, names):
            Interrupted.calls += 1
            if Interrupted.calls == 20:
                raise error
            return super().__call__(texts, names)

    with pytest.raises(error):
        predict.predict_file(
            Interrupted(), (source, "tsv"), (tmp_path / "out.tsv", "tsv"), ["text"], [], BadRows(), False,
            chunk_size=50, batch_size=10, threads=2,
        )  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.tsv", "out.tsv"]
    assert (tmp_path / "out.tsv").read_text() == "before"


@pytest.mark.parametrize("progress", [True, False, None])
def test_the_bar_is_drawn_when_asked_for(tmp_path, capsys, progress):
    source = write_tsv(tmp_path / "in.tsv", {"text": ["a"] * 99})
    predict.predict_file(
        WordCounter(), (source, "tsv"), (tmp_path / "out.tsv", "tsv"), ["text"], [], BadRows(), progress,
        chunk_size=50, batch_size=10, threads=2,
    )  # fmt: skip
    drawn = capsys.readouterr().err
    assert ("100/100" in drawn and "lines/s" in drawn) if progress else drawn == ""


# What is refused before anything is computed.


def test_paths_are_checked_first(tmp_path):
    source = write_tsv(tmp_path / "in.tsv", {"text": ["a"]})
    (tmp_path / "model" / "3").mkdir(parents=True)
    (tmp_path / "model" / "3" / "saved_model.pb").touch()
    model = tmp_path / "model" / "3"
    with pytest.raises(FileNotFoundError, match=r"has no saved_model\.pb$"):
        run(saved_model=tmp_path / "none", input=source, output=tmp_path / "out.tsv")
    with pytest.raises(FileNotFoundError, match=r"perhaps one of these is meant: \['.*/model/3'\]"):
        run(saved_model=tmp_path / "model", input=source, output=tmp_path / "out.tsv")
    with pytest.raises(FileNotFoundError, match="is no file"):
        run(saved_model=model, input=tmp_path / "none.tsv", output=tmp_path / "out.tsv")
    with pytest.raises(FileNotFoundError, match="is a folder"):
        run(saved_model=model, input=tmp_path, output=tmp_path / "out.tsv")
    with pytest.raises(ValueError, match=r"ends in none of \['\.tsv', .*give --format"):
        run(saved_model=model, input=model / "saved_model.pb", output=tmp_path / "out.tsv")
    with pytest.raises(ValueError, match="give --format"):
        run(saved_model=model, input="-", output=tmp_path / "out.tsv")
    with pytest.raises(ValueError, match="give --output_format"):
        run(saved_model=model, input=source, output=tmp_path / "out.parquet")


def test_no_output_is_overwritten(tmp_path):
    source = write_tsv(tmp_path / "in.tsv", {"text": ["a"]})
    (tmp_path / "saved_model.pb").touch()
    (tmp_path / "out.tsv").write_text("before")
    (tmp_path / "link.tsv").symlink_to(source)
    with pytest.raises(FileExistsError, match=r"out\.tsv exists; give another name, or --overwrite"):
        run(saved_model=tmp_path, input=source, output=tmp_path / "out.tsv")
    for same in (source, tmp_path / "link.tsv"):
        with pytest.raises(ValueError, match="are the same file"):
            run("--overwrite", saved_model=tmp_path, input=source, output=same)
    with pytest.raises(ValueError, match="is there and no file"):
        run("--overwrite", saved_model=tmp_path, input=source, output="/dev/null")
    assert (tmp_path / "out.tsv").read_text() == "before"


ONE, TWO, SEVERAL = {"text": False}, {"question": False, "context": False}, {"prompt": False, "choices": True}


@pytest.mark.parametrize(
    "inputs, given, file_format, message",
    [
        (ONE, ["label=x"], "tsv", "takes text: give --columns=text=...; got 'label=x'"),
        (ONE, ["a", "b"], "tsv", "takes text: give --columns=text=...; got 'a,b'"),
        (TWO, ["x"], "tsv", "takes question and context: give --columns=question=...,context=...; got 'x'"),
        (TWO, ["text=x", "context=y"], "tsv", "got 'text=x,context=y'"),
        (TWO, ["context=x", "context=y"], "tsv", "got 'context=x,context=y'"),
        (TWO, ["context=question"], "tsv", "must stand in different columns"),
        (TWO, ["context="], "tsv", "each with a name"),
        (TWO, [], "txt", "takes question and context, and a .txt file has one text a line; give a file with columns"),
        (SEVERAL, [], "txt", "give a file with columns"),
        (ONE, ["x"], "txt", "leave out --columns"),
        (SEVERAL, [], "csv", "--columns=choices=first+second, or a .jsonl file"),
        (SEVERAL, ["choices=a"], "tsv", "several texts of choices"),
        (SEVERAL, ["choices=a++b"], "jsonl", "each with a name"),
        (SEVERAL, ["choices=a+a"], "jsonl", "must stand in different columns"),
    ],
)
def test_columns_must_fit_the_model(inputs, given, file_format, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        predict.choose_columns(inputs, given, file_format)


@pytest.mark.parametrize(
    "inputs, given, file_format, columns",
    [
        (ONE, [], "txt", ["text"]),
        (ONE, ["message"], "csv", ["message"]),
        (ONE, ["text=a=b+c"], "csv", ["a=b+c"]),
        (TWO, ["context=text"], "csv", ["question", "text"]),
        (TWO, ["context=question", "question=context"], "tsv", ["context", "question"]),
        (SEVERAL, [], "jsonl", ["prompt", ("choices",)]),
        (SEVERAL, ["choices=endings", "prompt=start"], "jsonl", ["start", ("endings",)]),
        (SEVERAL, ["choices=ending0+ending1"], "tsv", ["prompt", ("ending0", "ending1")]),
    ],
)
def test_columns_have_the_names_of_inputs_unless_given(inputs, given, file_format, columns):
    assert predict.choose_columns(inputs, given, file_format) == columns


def test_names_of_columns_may_hold_commas():
    assert values_of(saved_model="m", input="i", output="o", columns='message,"text=a,b"').columns == [
        "message",
        "text=a,b",
    ]


def test_tables_hold_no_lists(caplog):
    lists = WordCounter(columns=[], lists=["words", "entities"])
    both = WordCounter(columns=["answer", "score"], lists=["n_best"])
    for file_format in ("tsv", "csv"):
        with pytest.raises(ValueError, match=r"\(words and entities\), which TSV and CSV cannot hold; write a \.jsonl"):
            predict.choose_answers(lists, file_format)
        with caplog.at_level(logging.WARNING):
            assert predict.choose_answers(both, file_format) == ["answer", "score"]
        assert caplog.messages == ["TSV and CSV cannot hold the lists of n_best; a .jsonl file has them, too"]
        caplog.clear()
    assert predict.choose_answers(lists, "jsonl") == ["words", "entities"]
    assert predict.choose_answers(both, "jsonl") == ["answer", "score", "n_best"]
    assert predict.choose_answers(WordCounter(), "tsv") == ("words",)
    assert caplog.messages == []


def test_refused_flags_say_what_is_allowed():
    with pytest.raises(flags.IllegalFlagValueError, match=r"csv\|jsonl\|tsv\|txt"):
        values_of(saved_model="m", input="i", output="o", format="xml")
    with pytest.raises(flags.IllegalFlagValueError, match="positive"):
        values_of(saved_model="m", input="i", output="o", batch_size=0)
    with pytest.raises(flags.IllegalFlagValueError, match="saved_model"):
        values_of(input="i", output="o")


# The whole program.


@pytest.mark.slow
def test_labels_and_probabilities_are_those_of_the_classifier(models, tmp_path, capsys):
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
    np.testing.assert_allclose(probabilities, classifier.predict_probabilities(texts), atol=1e-6)
    assert max(len(field) for row in rows for field in row[3:]) <= 14  # the digits of a float32
    assert capsys.readouterr().err.endswith("150 rows written to " + str(tmp_path / "new" / "out.tsv") + "\n")


@pytest.mark.slow
def test_pairs_are_classified(models, tmp_path):
    classifier, folder = models["pairs"]
    texts = toy_reviews(40)[0]
    columns = {"text_a": texts[:20], "other": texts[20:]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(saved_model=folder, input=tmp_path / "in.jsonl", output=tmp_path / "out.jsonl", columns="text_b=other")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    probabilities = [[row["probability_negative"], row["probability_positive"]] for row in found]
    expected = classifier.predict_probabilities((columns["text_a"], columns["other"]))
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    swapped = classifier.predict_probabilities((columns["other"], columns["text_a"]))
    assert np.abs(expected - swapped).max() > 1e-3


@pytest.mark.slow
def test_several_labels_and_values_are_written(models, tmp_path):
    texts = toy_reviews(40)[0]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    for name in ("several", "regression"):
        run(saved_model=models[name][1], input=tmp_path / "in.txt", output=tmp_path / f"{name}.jsonl")
    found = [json.loads(line) for line in (tmp_path / "several.jsonl").read_text().splitlines()]
    assert [row["labels"] for row in found] == models["several"][0].predict_labels(texts)
    assert len({tuple(row["labels"]) for row in found}) > 2
    assert list(found[0])[3:] == [f"probability_{topic}" for topic in TOPICS]
    found = [json.loads(line) for line in (tmp_path / "regression.jsonl").read_text().splitlines()]
    assert list(found[0]) == ["line", "length", "worth"]
    expected = models["regression"][0].predict_probabilities(texts)
    np.testing.assert_allclose([[row["length"], row["worth"]] for row in found], expected, atol=1e-6)


@pytest.mark.slow
def test_missing_columns_are_named_and_nothing_is_written(models, tmp_path):
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
def test_the_program_reads_and_writes_streams(models, tmp_path):
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
def test_an_interrupt_removes_the_unfinished_output(models, tmp_path):
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


@pytest.mark.slow
def test_help_needs_no_tensorflow():
    check = "import sys, tools.predict; assert not {'tensorflow', 'keras', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=True)
    help_text = program("--help").communicate()[0]
    assert "--[no]skip_bad_rows" in help_text
    assert "python -m tools.predict" in help_text
