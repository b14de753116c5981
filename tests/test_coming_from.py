"""Runs the new lines of docs/coming_from.md, with small models in place of those that the page names."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import keras_bert
from tests.tasks.test_squad import make_file
from tests.toys import VOCABULARY, toy_preprocessor, toy_reviews
from tests.weights.test_tf_hub import make_saved_model, pack

ROOT = Path(__file__).parents[1]
SECTIONS = dict(
    re.findall(
        r"^## (.*?)\n(.*?)(?=^## |\Z)", (ROOT / "docs/coming_from.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
)


def new_lines(section):
    """Returns the lines on the right of a section's tables."""
    rows = [row for row in SECTIONS[section].splitlines() if row.startswith("| `")]
    cells = [re.fullmatch(r"\| `[^`]+` \| `([^`]+)` \|", row) for row in rows]
    assert all(cells), rows
    return [cell[1] for cell in cells]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a small checkpoint and toy data under the names that the page uses."""
    monkeypatch.chdir(tmp_path)
    encoder = keras_bert.BertEncoder(len(VOCABULARY), hidden_size=8, num_hidden_layers=4, num_attention_heads=2, seed=1)
    model = keras_bert.BertPretrainer(encoder, seed=1)
    model.save_checkpoint("uncased_L-12_H-768_A-12", toy_preprocessor().tokenizer, format="google")
    pack(make_saved_model(tmp_path)).rename("bert_en_uncased_L-12_H-768_A-12_4.tar.gz")
    texts, _ = toy_reviews(24)
    Path("texts.txt").write_text("\n".join(texts))
    Path("text.txt").write_text("\n\n".join("\n".join(texts[start : start + 6]) for start in range(0, 24, 6)))
    (tmp_path / "glue" / "MRPC").mkdir(parents=True)
    rows = [f"{i % 2}\t{i}\t{i}\t{text}\t{text}" for i, text in enumerate(texts)]
    for split in ("train", "dev"):
        lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *rows]
        (tmp_path / "glue" / "MRPC" / f"{split}.tsv").write_text("".join(f"{line}\n" for line in lines))
        make_file(tmp_path / f"{split}.json", 8, "1.1", seed=0)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_new_lines_run(section, folder):
    lines = new_lines(section)
    assert len(lines) > 8
    texts, labels = ["a delight", "two hours I will not get back"] * 2, ["positive", "negative"] * 2
    names = {"keras_bert": keras_bert, "keras": keras_bert.keras, "tf": tf, "texts": texts, "labels": labels}
    names |= {"questions": ["Who came?"], "contexts": ["Ada came."], "prompts": ["He"], "choices": [["sat.", "blue."]]}
    names |= {"num_train_steps": 100, "num_warmup_steps": 10}
    names["dataset"] = tf.data.Dataset.from_tensor_slices((texts, [1, 0] * 2)).batch(2)
    for line in lines:
        if line.startswith("python "):
            command = [sys.executable, *shlex.split(line)[1:]]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            assert run.returncode == 0, (line, run.stdout[-2000:], run.stderr[-2000:])
            continue
        try:
            exec(line.replace("bert_base_en_uncased", "bert_tiny_novels"), names)
        except Exception as error:
            raise AssertionError(line) from error
    if section == "google-research/bert":
        assert json.loads((folder / "runs/mrpc/evaluation.json").read_text())["dev"]["accuracy"] >= 0
        assert len((folder / "features.jsonl").read_text().splitlines()) == 24
