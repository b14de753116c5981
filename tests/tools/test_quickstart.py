import re
import subprocess
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_bert.weights.preset_table import HUB, PRESETS
from tests.tools.program_flags import parse_flags
from tests.toys import toy_classifier
from tools import quickstart
from tools.support_messages import read_support_messages


def words(text):
    return set(re.findall(r"\w+", text.lower()))


def test_messages_are_varied():
    train, dev = read_support_messages("train"), read_support_messages("dev")
    labels = set(train.labels)
    assert len(labels) == 12
    assert set(dev.labels) == labels
    for label in labels:
        assert train.labels.count(label) + dev.labels.count(label) >= 60
    texts = train.texts + dev.texts
    assert len(set(texts)) == len(texts) == 792
    assert not set(quickstart.MESSAGES) & set(texts)
    assert max(len(a & b) / len(a | b) for a, b in combinations(map(words, texts), 2)) < 0.3


def test_baseline_accuracy_is_low():
    assert 0.2 < quickstart.baseline_accuracy(read_support_messages("train"), read_support_messages("dev")) < 0.5


def test_every_preset_that_needs_no_hub_has_a_recipe():
    assert set(quickstart.RECIPES) == {preset.name for preset in PRESETS.values() if preset.source != HUB}


def test_next_version_is_above_the_highest_one(tmp_path):
    assert quickstart.next_version(tmp_path / "absent") == tmp_path / "absent" / "1"
    for name in ("2", "10", ".11.unfinished"):
        (tmp_path / name).mkdir()
    assert quickstart.next_version(Path(tmp_path)) == tmp_path / "11"


@pytest.mark.slow
def test_trains_exports_and_classifies(tmp_path, monkeypatch, capsys):
    commands, run = [], subprocess.run
    monkeypatch.setattr(quickstart.flags, "FLAGS", parse_flags(quickstart, run_dir=tmp_path, epochs=1))
    monkeypatch.setattr(quickstart.subprocess, "run", lambda command, check: commands.append(command))

    def load(preset, labels, sequence_length, seed):
        assert preset == "bert_mini_en"
        return toy_classifier(labels, seed=seed)

    monkeypatch.setattr("keras_bert.BertClassifier", SimpleNamespace(from_preset=load))
    quickstart.main(["quickstart"])
    printed = capsys.readouterr().out
    assert "576 training and 216 test messages with 12 labels" in printed
    assert re.search(r"Test accuracy: 0\.\d{3} after \d+ s", printed)
    assert (tmp_path / "saved_model" / "1" / "saved_model.pb").is_file()
    lines = run(commands[0], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [re.split(r" +[01]\.\d\d  ", line, maxsplit=1)[1] for line in lines] == list(quickstart.MESSAGES)
    assert "keras_bert" not in quickstart.CLASSIFY
