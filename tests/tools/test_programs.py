"""The programs say what they can do, refuse what they cannot, and run."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.toys import VOCABULARY, toy_classifier
from tools import benchmark

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("tool", ["quickstart", "ask", "benchmark"])
def test_help_names_the_flags(tool):
    answer = run(f"tools.{tool}", "--help")
    assert "--" in answer.stdout
    assert f"python -m tools.{tool}" in answer.stdout


def test_ask_refuses_what_it_cannot_do(tmp_path):
    assert "no messages" in run("tools.ask", f"--saved_model={tmp_path}").stderr
    assert "has no saved_model.pb" in run("tools.ask", f"--saved_model={tmp_path}", "a message").stderr


@pytest.mark.slow
def test_ask_answers(tmp_path):
    folder = toy_classifier().export(tmp_path / "1")
    answer = run("tools.ask", f"--saved_model={folder}", "good", "bad")
    assert answer.returncode == 0, answer.stderr[-2000:]
    lines = answer.stdout.splitlines()[-2:]
    assert [line.split()[-1] for line in lines] == ["good", "bad"]
    assert all(line.split()[0] in ("negative", "positive") for line in lines)


def test_benchmark_measures_in_turn(capsys):
    calls = []
    seconds = benchmark.measure({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, turns=3)
    assert calls == ["a", "b"] * 4
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}
    benchmark.print_table({"a": [1.0, 1.0, 1.0], "b": [2.0, 6.0, 4.0]}, ours="a")
    assert capsys.readouterr().out.splitlines()[-1].split() == ["b", "4.000", "4.00", "2.00", "6.00"]


def test_benchmark_needs_text():
    assert "needs --vocabulary and --text" in run("tools.benchmark", "--suite=tokenizer").stderr


def test_tokenizer_programs_agree_on_what_they_read(tmp_path, capsys):
    pytest.importorskip("tokenizers")
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    (tmp_path / "text.txt").write_text("good film\n\nbad plot .\n")
    programs = benchmark.tokenizer_programs(str(tmp_path / "vocab.txt"), [tmp_path / "text.txt"], 10, 2)
    assert "2 lines, 5 tokens" in capsys.readouterr().out
    for program in programs.values():
        program()
