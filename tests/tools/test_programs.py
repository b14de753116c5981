"""The programs say what they can do, refuse what they cannot, and run."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import run as run_forked
from tests.toys import toy_classifier

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "tool",
    [
        "quickstart",
        "ablation",
        "ask",
        "attention",
        "benchmark",
        "build_vocab",
        "create_pretraining_data",
        "data_service",
        "extract_features",
        "fill_mask",
        "inspect_pretraining_data",
        "prepare_corpus",
        "triviaqa_to_squad",
    ],
)
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
    answer = run_forked([sys.executable, "-m", "tools.ask", f"--saved_model={folder}", "good", "bad"], cwd=ROOT)
    assert answer.returncode == 0, answer.stderr[-2000:]
    lines = answer.stdout.splitlines()[-2:]
    assert [line.split()[-1] for line in lines] == ["good", "bad"]
    assert all(line.split()[0] in ("negative", "positive") for line in lines)
