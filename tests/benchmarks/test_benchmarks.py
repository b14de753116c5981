import importlib
import re
import sys

import pytest
from absl import app

from benchmarks import __main__ as program
from benchmarks import encoder, load, optimizer
from benchmarks.comparison import ProgramError, comparison_table, format_figures, parse_figures, run_rounds
from tests.tasks.programs import parse
from tests.tasks.test_squad import make_file as make_squad_file
from tests.toys import VOCABULARY, toy_classifier, toy_reviews

ENCODER = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}


def test_reads_the_figures_of_peers():
    line = "hf bf16 sdpa: train 79.4 ex/s, infer 386.6 ex/s (2 s), dev accuracy 79.01 % after 1 epoch(s) of 2000"
    figures = {"train ex/s": 79.4, "infer ex/s": 386.6, "accuracy %": 79.01}
    assert parse_figures(line) == parse_figures(format_figures("x", figures, "1 s")) == figures


def test_table_compares_round_by_round():
    rounds = [
        {"ours": {"train ms": own, "accuracy %": 50.0}, "theirs": {"train ms": other, "infer s": 1.0}}
        for own, other in ((100.0, 150.0), (200.0, 180.0), (100.0, 170.0))
    ]
    assert [line.split() for line in comparison_table(rounds, "ours").splitlines()] == [
        ["speedup", "of", "ours:"],
        ["median", "min", "max"] * 2,
        ["train", "ms"],
        ["ours", "100.0", "100.0", "200.0"],
        ["theirs", "170.0", "150.0", "180.0", "1.50", "0.90", "1.70"],
        ["accuracy", "%"],
        ["ours", "50.00", "50.00", "50.00"],
        ["infer", "s"],
        ["theirs", "1.000", "1.000", "1.000"],
    ]


def test_runs_programs_round_by_round():
    python = [sys.executable, "-c"]
    programs = {name: [*python, f"print('{name}: train {time} ms')"] for name, time in (("a", 2), ("b", 3))}
    assert list(run_rounds(programs, 2, report=str)) == [{"a": {"train ms": 2.0}, "b": {"train ms": 3.0}}] * 2
    for code, message in (
        ("import sys; sys.exit('no model')", "(?s)exit status 1.*no model"),
        ("print(1)", "printed no figures"),
        ("print('infer 2 s')", "b prints infer s, a train ms"),
        ("import time; time.sleep(60)", "still running after 1 s"),
    ):
        with pytest.raises(ProgramError, match=message):
            list(run_rounds({**programs, "b": [*python, code]}, 1, timeout=1, report=str))


def test_rejects_wrong_flags():
    for options, message in (
        ({"suite": "optimizer", "data_dir": "x"}, "does not use --data_dir"),
        ({"suite": "sst2", "data_dir": "/nowhere"}, "needs --data_dir; there is no file /nowhere/train.tsv"),
        ({"suite": "tokenizer"}, "needs --vocabulary and --text"),
    ):
        with pytest.raises(app.UsageError, match=message):
            program.check_flags(parse(program, **options))
    with pytest.raises(app.UsageError, match="is not NAME=COMMAND"):
        program.parse_peers(["python"])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmark")
    for split, rows in (("train", 64), ("dev", 8)):
        texts, labels = toy_reviews(rows, seed=rows)
        lines = [f"{text}\t{int(label == 'positive')}" for text, label in zip(texts, labels, strict=True)]
        (folder / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    toy_classifier(encoder_arguments={"max_position_embeddings": 384}).save_checkpoint(folder / "toy")
    for name, number in {"train": 30, "eval": 20}.items():
        make_squad_file(folder / f"{name}.json", number, "1.1", number)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    (folder / "text.txt").write_text("the film was good .\nthe plot was lovely .\n\n" * 30, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("suite", [suite for suite in program.SUITES if suite not in ("load", "machine", "scale")])
def test_every_suite_measures(suite, files, monkeypatch):
    monkeypatch.setattr(encoder, "_PEAK_SIZE", 64)
    monkeypatch.setattr(optimizer, "MINILM", {"vocab_size": 50, **ENCODER})
    toy = {"init_checkpoint": files / "toy"}
    options = {
        "encoder": {"repeats": 1, "sequence_length": 8, "vocab_size": 50, **ENCODER},
        "sst2": {"data_dir": files, **toy},
        "serving": {"repeats": 1, **toy},
        "squad": {f"{split}_file": files / f"{split}.json" for split in ("train", "eval")}
        | {"steps": 3, "questions": 5, **toy},
        "pretraining": {"sequence_length": 32, "steps": 2, **ENCODER},
        "pretraining_data": {"sequence_length": 16, "instances": 40},
        "tokenizer": {"repeats": 1},
        "optimizer": {"repeats": 1},
        "accelerator": {"repeats": 1, "size": "tiny", "peak_tflops": 1},
    }[suite]
    if "text" in program.SUITES[suite]:
        options |= {"vocabulary": files / "vocab.txt", "text": files / "t*.txt"}
    if "batch_size" in program.SUITES[suite]:
        options["batch_size"] = 4
    values = parse(program, suite=suite, **options)
    program.check_flags(values)
    programs = importlib.import_module(f"benchmarks.{suite}").PROGRAMS
    for name in ("keras_bert", "litert_int8_dynamic") if suite == "serving" else programs:  # all take 20 seconds
        figures, remark = programs[name](values)
        assert parse_figures(format_figures("keras_bert", figures, remark)).keys() == figures.keys()
        assert min(value for name, value in figures.items() if name != "input %") > 0
        if suite == "sst2":
            assert figures["fit_vs_train %"] == pytest.approx(100 * figures["fit ex/s"] / figures["train ex/s"])


@pytest.mark.slow
def test_measures_the_server_under_load(files, capsys, monkeypatch):
    monkeypatch.setattr(load, "_LENGTHS", (8, 16))
    monkeypatch.setattr(load, "_OVERLOAD_SECONDS", 1.0)
    load.measure(parse(program, suite="load", init_checkpoint=files / "toy", rate=10.0, seconds=18.0))
    first, second, memory, _ = capsys.readouterr().out.splitlines()
    for line in (first, second):
        counts = re.search(r": (.*?);", line)[1]
        assert re.fullmatch(r"\d+ right", counts), line
    assert len(memory.split(",")) == 7
