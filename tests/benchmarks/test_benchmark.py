"""The benchmark reads what programs print, compares it the right way round, and refuses what it cannot compare."""

import fcntl
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import benchmark, encoder, masking, optimizer, pretraining, pretraining_data, sst2, tasks, tokenizer
from benchmarks.figures import comparison_table, format_figures, parse_figures, times_faster
from benchmarks.processes import ProgramError, parse_peer, run_program, run_turns
from benchmarks.timing import median_seconds
from tests.forked import run as run_forked
from tests.tasks.test_squad import make_file as make_squad_file
from tests.toys import VOCABULARY, toy_classifier, toy_reviews

ROOT = Path(__file__).parents[2]
TINY = {
    "batch_size": 2,
    "sequence_length": 8,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
}


def script(code):
    return [sys.executable, "-c", code]


def run_benchmark(*arguments):
    command = [sys.executable, "-m", "benchmarks.benchmark", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        (
            "torch sdpa bf16 B16 S128 H384 L6: fwd 105 ms (152.4 ex/s)  train 474 ms (33.76 ex/s)",
            {("fwd", "ms"): 105.0, ("train", "ms"): 474.0},
        ),
        (
            "hf bf16 sdpa: train 79.4 ex/s, infer 386.6 ex/s, dev acc 0.7901 after 1 epoch(s) of 2000",
            {("train", "ex/s"): 79.4, ("infer", "ex/s"): 386.6, ("acc", ""): 0.7901},
        ),
        (
            "hub fp32 seq64: train 53.0 ex/s, infer 153.1 ex/s (random init)",
            {("train", "ex/s"): 53.0, ("infer", "ex/s"): 153.1},
        ),
        ("train 10ms.", {("train", "ms"): 10.0}),
        ("tokenize 2.9e-1 s", {("tokenize", "s"): 0.29}),
        ("acc 0", {("acc", ""): 0.0}),
        ("took 3 steps of 5 seconds, loss 0.3, shape 16", {}),
        ("train nan ms, infer -3 ms", {}),
        ("", {}),
    ],
)
def test_lines_are_read(line, figures):
    assert parse_figures(line) == figures


@pytest.mark.parametrize("line", ["train 3 ms, train 4 ms", "train 0 ms", "train 0.00 ex/s"])
def test_lines_that_make_no_sense_are_refused(line):
    with pytest.raises(ValueError, match=r"twice|cannot be 0"):
        parse_figures(line)


def test_what_is_written_is_read():
    figures = {
        ("train", "ms"): 1234.4,
        ("fwd", "s"): 0.01234,
        ("packed", "tok/s"): 98.7,
        ("input", "%"): -0.53,
        ("acc", ""): 0.9,
    }
    line = format_figures("keras_bert", figures, "4 rows, train 9 ms")
    start = "keras_bert: train 1234 ms, fwd 0.01234 s, packed 98.70 tok/s, input -0.5300 %, acc 0.9000 "
    assert line == f"{start}(4 rows, train 9 ms)"
    assert parse_figures(line) == {**figures, ("train", "ms"): 1234.0}


@pytest.mark.parametrize(("unit", "ratio"), [("ms", 4.0), ("s", 4.0), ("ex/s", 0.25), ("GFLOP/s", 0.25), ("%", None)])
def test_a_ratio_says_how_many_times_as_fast_ours_is(unit, ratio):
    assert times_faster(2.0, 8.0, unit) == ratio


def test_the_table_compares_turn_by_turn():
    turns = [
        {"ours": {("train", "ms"): own, ("acc", ""): 0.5}, "theirs": {("train", "ms"): other, ("infer", "s"): 1.0}}
        for own, other in ((100.0, 150.0), (200.0, 180.0), (100.0, 170.0))
    ]
    assert [line.split() for line in comparison_table(turns, "ours").splitlines()] == [
        ["ours", "is", "so", "many", "times", "as", "fast:"],
        ["median", "lowest", "highest"] * 2,
        ["train,", "ms"],
        ["ours", "100.0", "100.0", "200.0"],
        ["theirs", "170.0", "150.0", "180.0", "1.50", "0.90", "1.70"],
        ["acc"],
        ["ours", "0.5000", "0.5000", "0.5000"],
        ["infer,", "s"],
        ["theirs", "1.000", "1.000", "1.000"],
    ]


def test_a_program_may_print_more_than_its_line():
    code = (
        "import sys; print('train 1 ms'); print('x: train 2 ms (a)'); print('done'); print('fwd 9 ms', file=sys.stderr)"
    )
    assert run_program("x", script(code)) == ("x: train 2 ms (a)", {("train", "ms"): 2.0})


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; print('half way'); sys.exit('no such model')", r"(?s)exit status 1: .*no such model\nhalf way"),
        ("print('hello')", r"(?s)printed no figures .*: .*\nhello"),
        ("pass", r"printed nothing\)"),
        ("print('train 0 ms')", "cannot be read .*cannot be 0"),
        ("import os; os.kill(os.getpid(), 9)", "exit status -9"),
    ],
)
def test_a_program_that_fails_shows_its_output(code, message):
    with pytest.raises(ProgramError, match=message):
        run_program("x", script(code))


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path):
    child = f"import fcntl, time; f = open({str(tmp_path / 'lock')!r}, 'w'); fcntl.flock(f, 2); "
    child += "print('locked', flush=True); time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    started = time.monotonic()
    with pytest.raises(ProgramError, match=r"(?s)still running after 2 s .*locked"):
        run_program("x", script(code), timeout=2)
    with open(tmp_path / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as soon as the child has let go of it
    assert time.monotonic() - started < 30


def test_programs_run_in_turn():
    programs = {name: script(f"print('{name}: train {time} ms')") for name, time in (("a", 2), ("b", 3))}
    reports = []
    turns = list(run_turns(programs, 2, "a", 60, reports.append))
    assert turns == [{"a": {("train", "ms"): 2.0}, "b": {("train", "ms"): 3.0}}] * 2
    assert reports == [f"turn {turn} of 2: {rest}" for turn in (1, 2) for rest in ("a: train 2 ms", "b: train 3 ms")]


def test_programs_must_have_a_figure_in_common():
    programs = {"a": script("print('train 2 ms')"), "b": script("print('train 2 s, acc 0.5')")}
    with pytest.raises(
        ProgramError, match="b has no figure in common with a: it prints train in s, acc, and a train in"
    ):
        list(run_turns(programs, 1, "a", 60, lambda line: None))


def test_a_program_must_print_the_same_figures_in_every_turn(tmp_path):
    code = f"import pathlib; p = pathlib.Path({str(tmp_path / 'seen')!r}); "
    code += "print('fwd' if p.exists() else 'train', 2, 's'); p.touch()"
    turns = run_turns({"a": script(code)}, 2, "a", 60, lambda line: None)
    assert next(turns) == {"a": {("train", "s"): 2.0}}
    with pytest.raises(ProgramError, match="a prints fwd in s, but printed train in s in its first turn"):
        next(turns)


@pytest.mark.parametrize(
    ("peer", "message"),
    [
        ("python", "is not NAME=COMMAND"),
        ("=python", "is not NAME=COMMAND"),
        ("theirs=", "is not NAME=COMMAND"),
        ("theirs=python 'x", "cannot be split"),
        ("theirs=no-such-program --x=1", "no program no-such-program"),
    ],
)
def test_a_malformed_peer_is_refused(peer, message):
    with pytest.raises(ValueError, match=message):
        parse_peer(peer)


def test_the_median_is_of_calls_after_the_warm_up():
    naps = iter([0.2, 0.2, 0.0, 0.05, 0.3])
    assert 0.05 <= median_seconds(lambda: time.sleep(next(naps)), repeats=3) < 0.15


def count_slowly(sizes):
    """Multiplications and additions of a forward pass, layer by layer and row by row."""
    tokens, hidden, inner = sizes["sequence_length"], sizes["hidden_size"], sizes["intermediate_size"]
    operations = 0
    for _ in range(sizes["batch_size"]):
        for _ in range(sizes["num_hidden_layers"]):
            for _ in range(tokens):
                operations += 2 * hidden * hidden * 4  # query, key, value, output
                operations += 2 * hidden * inner + 2 * inner * hidden
                for _ in range(tokens):
                    operations += 2 * hidden  # the scores of one token for another, over all heads
                    operations += 2 * hidden  # what it gathers from there
        operations += 2 * hidden * hidden  # pooler
    return operations


def test_operations_are_counted():
    assert encoder.forward_flops(encoder.matrix_products(**TINY)) == count_slowly(TINY)
    minilm = encoder.matrix_products(16, 128, 384, 6, 12, 1536)
    assert 3 * encoder.forward_flops(minilm) == pytest.approx(138e9, rel=0.005)


def test_refusals():
    assert (
        "<encoder|sst2|training|tokenizer|masking|pretraining|pretraining_data|tasks|optimizer>"
        in run_benchmark("--suite=speed").stderr
    )
    assert "no use for --data_dir; its flags are --repeats" in run_benchmark("--suite=optimizer", "--data_dir=x").stderr
    assert "no train.tsv and no dev.tsv" in run_benchmark("--suite=sst2", f"--data_dir={ROOT}").stderr
    assert "needs --train_file, a file of SQuAD; got None" in run_benchmark("--suite=tasks").stderr
    assert "needs --vocabulary and --text" in run_benchmark("--suite=tokenizer").stderr
    assert "needs --vocabulary and --text" in run_benchmark("--suite=masking").stderr
    assert "no file nothing" in run_benchmark("--suite=tokenizer", f"--text={ROOT}/*", "--vocabulary=nothing").stderr
    assert "the programs of the suite encoder are ['keras_bert']" in run_benchmark("--suite=encoder", "--once=x").stderr
    assert "is not NAME=COMMAND" in run_benchmark("--suite=encoder", "--peer=python").stderr
    twice = run_benchmark("--suite=encoder", f"--peer=keras_bert={shlex.quote(sys.executable)} x.py")
    assert "two programs of the name keras_bert" in twice.stderr
    assert "must be a new file" in run_benchmark("--suite=encoder", f"--output={ROOT}/setup.cfg").stderr


def test_finished_turns_are_kept_when_a_program_fails(tmp_path, capsys):
    code = f"import pathlib; p = pathlib.Path({str(tmp_path / 'runs')!r}); n = p.read_text() if p.exists() else ''; "
    code += "p.write_text(n + 'x'); print(f'train {4 // (2 - len(n))} ms')"
    programs = {"keras_bert": script("print('train 1 ms')"), "theirs": script(code)}
    with pytest.raises(SystemExit, match="ZeroDivisionError"):
        benchmark.compare(programs, 3, 60, tmp_path / "figures.json", {"suite": "encoder"})
    row = capsys.readouterr().out.splitlines()[-2]
    assert row.split() == ["theirs", "3.000", "2.000", "4.000", "3.00", "2.00", "4.00"]
    assert json.loads((tmp_path / "figures.json").read_text()) == {
        "suite": "encoder",
        "turns": [{"keras_bert": {"train ms": 1.0}, "theirs": {"train ms": float(time)}} for time in (2, 4)],
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json", "runs"]


def test_the_tokenizers_read_the_same(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    (tmp_path / "text.txt").write_text("good film\n\nbad plot .\ngood\n")
    for measure in tokenizer.PROGRAMS.values():
        figures, remark = measure(str(tmp_path / "vocab.txt"), [str(tmp_path / "t*.txt")], 10, 2, 1)
        assert figures["tokenize", "s"] > 0
        assert remark.startswith("3 lines, 6 tokens, ")


@pytest.mark.slow
def test_encoder_beside_a_peer(tmp_path):
    peer = shlex.join(script("print('x: train 10.0 ms (200 ex/s), fwd 1e3 ms')"))
    sizes = [f"--{name}={value}" for name, value in TINY.items()]
    output = tmp_path / "figures.json"
    flags = ["--vocab_size=50", "--precision=mixed_bfloat16", "--turns=1", "--repeats=1"]
    answer = run_benchmark("--suite=encoder", *sizes, *flags, f"--peer=theirs={peer}", f"--output={output}")
    assert answer.returncode == 0, answer.stderr[-2000:]
    (turn,) = json.loads(output.read_text())["turns"]
    ours = turn["keras_bert"]
    assert list(ours) == [
        "fwd ms",
        "train ms",
        "products GFLOP/s",
        "ceiling GFLOP/s",
        "largest GFLOP/s",
        "share %",
    ]
    gigaflops = 3e-9 * count_slowly(TINY)
    assert ours["products GFLOP/s"] == pytest.approx(gigaflops / ours["train ms"] * 1e3, rel=0.01)
    assert ours["share %"] == pytest.approx(100 * ours["products GFLOP/s"] / ours["ceiling GFLOP/s"], rel=0.01)
    row = next(line.split() for line in answer.stdout.splitlines() if line.startswith("  theirs") and "1000" in line)
    assert float(row[-1]) == pytest.approx(1e3 / ours["fwd ms"], rel=0.01, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["keras_bert", "two replicas"])
def test_training(name):
    code = (
        "import json, sys; from benchmarks import training\n"
        "training.MINILM.update(num_hidden_layers=1, hidden_size=16, num_attention_heads=2, intermediate_size=32)\n"
        "figures, remark = training.PROGRAMS[sys.argv[1]](4, 8, 'float32', 5)\n"
        "print(json.dumps([list(figures.items()), remark]))"
    )
    answer = run_forked([sys.executable, "-c", code, name], cwd=ROOT)
    assert answer.returncode == 0, answer.stderr[-2000:]
    figures, remark = json.loads(answer.stdout.splitlines()[-1])
    figures = {" ".join(name): value for name, value in figures}
    assert list(figures) == ["update ms", "host %", "log %", "checkpoint ms"]
    assert 0 < figures["log %"] < figures["host %"] < 100
    assert figures["checkpoint ms"] > figures["update ms"] * figures["host %"] / 100 > 0
    assert remark == f"{2 if name == 'two replicas' else 1} replicas, 5 updates"


@pytest.mark.slow
def test_sst2(tmp_path):
    for split, rows in (("train", 420), ("dev", 40)):
        texts, labels = toy_reviews(rows, seed=rows)
        lines = [f"{text}\t{int(label == 'positive')}" for text, label in zip(texts, labels, strict=True)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    checkpoint = toy_classifier(encoder_arguments={"max_position_embeddings": 128}).save_checkpoint(tmp_path / "toy")
    arguments = {
        "init_checkpoint": str(checkpoint),
        "epochs": 1,
        "batch_size": 32,
        "precision": "mixed_bfloat16",
        "seed": 1,
    }
    figures, remark = sst2.measure_ours(str(tmp_path), examples=400, **arguments)
    assert list(figures) == [("train", "ex/s"), ("infer", "ex/s"), ("serve", "ex/s"), ("acc", "")]
    assert min(figures.values()) > 0
    assert figures["acc", ""] <= 1
    assert remark == "1 x 400 examples"
    with pytest.raises(ValueError, match="more than --examples=320"):
        sst2.measure_ours(str(tmp_path), examples=320, **arguments)


@pytest.mark.slow
def test_tasks(tmp_path):
    files = {
        f"{name}_file": str(make_squad_file(tmp_path / f"{name}.json", number, "1.1", number))
        for name, number in {"train": 30, "eval": 20}.items()
    }
    checkpoint = toy_classifier(encoder_arguments={"max_position_embeddings": 384}).save_checkpoint(tmp_path / "toy")
    arguments = {"init_checkpoint": str(checkpoint), "batch_size": 4, "precision": "float32", "seed": 1}
    figures, remark = tasks.measure_ours(**files, updates=3, questions=5, **arguments)
    assert [name for name, _ in figures] == ["features", "train", "unbucketed", "answer", "serve"]
    assert min(figures.values()) > 0
    assert remark == "30 questions in 30 windows; 5 are answered"


@pytest.mark.slow
def test_maskers(tmp_path):
    vocabulary, text = tmp_path / "vocab.txt", tmp_path / "text.txt"
    vocabulary.write_text("\n".join(VOCABULARY), encoding="utf-8")
    text.write_text("the film was good , and the plot was lovely .\n" * 20, encoding="utf-8")
    arguments = {"vocabulary": str(vocabulary), "text": [str(text)], "lines": 20, "sequence_length": 16}
    rows = masking.read_rows(**arguments)
    assert rows.shape == (220 // 13, 16)
    first = " ".join(VOCABULARY[i] for i in rows[0])
    assert first == "[CLS] the film was good , and [SEP] the plot was lovely . the film [SEP]"
    for measure in masking.PROGRAMS.values():
        figures, detail = measure(**arguments, batch_size=4, max_predictions=3, repeats=1)
        assert ("pieces", "ex/s") in figures
        assert detail == "16 rows of 16 ids"
    for wrong in ({"sequence_length": 4}, {"lines": 1}):
        with pytest.raises(ValueError, match="row"):
            masking.read_rows(**{**arguments, **wrong})


@pytest.mark.slow
def test_pretraining(tmp_path):
    vocabulary, text = tmp_path / "vocab.txt", tmp_path / "text.txt"
    vocabulary.write_text("\n".join([*VOCABULARY, "[MASK]"]), encoding="utf-8")
    text.write_text("the film was good .\nthe plot was lovely .\n\n" * 30, encoding="utf-8")
    sizes = {name: size for name, size in TINY.items() if name not in ("batch_size", "sequence_length")}
    figures, detail = pretraining.measure_ours(str(vocabulary), [str(text)], 4, 32, "float32", updates=2, **sizes)
    assert list(figures) == [
        ("train", "ex/s"),
        ("share", "%"),
        ("input", "%"),
        ("padded", "tok/s"),
        ("packed", "tok/s"),
    ]
    assert min(figures[name] for name in figures if name != ("input", "%")) > 0
    assert detail.startswith("4 rows of 32 tokens; of them real: padded ")


@pytest.mark.slow
def test_pretraining_data(tmp_path):
    vocabulary, text = tmp_path / "vocab.txt", tmp_path / "text.txt"
    vocabulary.write_text("\n".join([*VOCABULARY, "[MASK]"]), encoding="utf-8")
    text.write_text("the film was good .\nthe plot was lovely .\n\n" * 30, encoding="utf-8")
    figures, detail = pretraining_data.measure_ours(str(vocabulary), [str(text)], 4, 16, instances=40)
    assert len(figures) == 4 and min(figures.values()) > 0
    assert "%" in detail


@pytest.mark.slow
def test_optimizers(monkeypatch):
    monkeypatch.setattr(optimizer, "MINILM", {**optimizer.MINILM, "vocab_size": 50, "num_hidden_layers": 1})
    for measure in optimizer.PROGRAMS.values():
        figures, _ = measure(repeats=1)
        assert figures["step", "ms"] > 0
