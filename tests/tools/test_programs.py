"""Help texts of the programs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "tool",
    [
        "quickstart",
        "ask",
        "attention",
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
