"""The program prints the words of each mask, and says what a model lacks."""

import re
import sys
from pathlib import Path

import pytest
from absl import flags

from keras_bert.models.pretrainer import BertPretrainer
from tests.forked import run as run_forked
from tests.toys import toy_encoder, toy_preprocessor
from tools import fill_mask

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    pretrainer = BertPretrainer(toy_encoder(), seed=1)
    return pretrainer.save_checkpoint(tmp_path_factory.mktemp("fill") / "model", toy_preprocessor().tokenizer)


def values_of(*arguments):
    values = flags.FlagValues()
    fill_mask.define_flags(values)
    values(["fill_mask", *arguments])
    return values


def test_words_and_probabilities(checkpoint, capsys):
    texts = ["a [MASK] film", "[MASK] [MASK]", "good"]
    fill_mask.run(values_of(f"--checkpoint={checkpoint}", "--top=3"), texts)
    lines = capsys.readouterr().out.splitlines()
    expected = BertPretrainer.from_checkpoint(checkpoint).fill_masks(texts, 3)
    assert lines[0] == "a [MASK] film"
    assert lines[1:4] == [f"  {100 * probability:5.1f}%  {word}" for word, probability in expected[0][0]]
    assert lines[4:6] == ["[MASK] [MASK]", "  [MASK] 1"]
    assert lines[9] == "  [MASK] 2"
    assert lines[-2:] == ["good", "  has no [MASK]"]
    assert len(lines) == 4 + 9 + 2


def test_a_model_without_the_head(tmp_path):
    folder = toy_encoder().save_checkpoint(tmp_path / "encoder", toy_preprocessor().tokenizer)
    with pytest.raises(ValueError, match=r"encoder has no head for masked words; give a model that was pre-trained"):
        fill_mask.run(values_of(f"--checkpoint={folder}"), ["[MASK]"])


@pytest.mark.parametrize("arguments", [[], ["--checkpoint=a", "--preset=b"], ["--checkpoint=a", "--top=0"]])
def test_flags_that_cannot_be(arguments):
    with pytest.raises(flags.IllegalFlagValueError):
        values_of(*arguments)


@pytest.mark.slow
def test_the_program(checkpoint, tmp_path):
    program = [sys.executable, "-m", "tools.fill_mask"]
    answer = run_forked([*program, f"--checkpoint={checkpoint}", "a [MASK] film"], cwd=ROOT)
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert re.search(r"^a \[MASK\] film\n  +\d+\.\d%  \S+$", answer.stdout, re.MULTILINE)
    answer = run_forked([*program, f"--checkpoint={tmp_path / 'missing'}", "a"], cwd=ROOT)
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1].startswith("tools.fill_mask: ")
    assert "Traceback" not in answer.stderr
    assert "no texts; put them behind" in run_forked([*program, f"--checkpoint={checkpoint}"], cwd=ROOT).stderr
