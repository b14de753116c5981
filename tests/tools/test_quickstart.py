import re
from itertools import combinations
from pathlib import Path

from keras_bert.weights.preset_names import PRESETS
from tools.quickstart import MESSAGES, RECIPES, baseline_accuracy, next_version, recipe
from tools.support_messages import read_support_messages


def words(text):
    return set(re.findall(r"\w+", text.lower()))


def test_messages_are_what_the_readme_says():
    train, dev = read_support_messages("train"), read_support_messages("dev")
    intents = set(train.labels)
    assert len(intents) == 12
    assert set(dev.labels) == intents
    for intent in intents:
        assert train.labels.count(intent) + dev.labels.count(intent) >= 60
    texts = train.texts + dev.texts
    assert len(set(texts)) == len(texts) == 792
    assert not set(MESSAGES) & set(texts)
    assert max(len(a & b) / len(a | b) for a, b in combinations(map(words, texts), 2)) < 0.3


def test_the_baseline_learns_something_but_not_much():
    assert 0.2 < baseline_accuracy(read_support_messages("train"), read_support_messages("dev")) < 0.5


def test_every_preset_has_a_recipe_that_flags_overrule():
    assert set(RECIPES) == set(PRESETS)
    for preset, (epochs, learning_rate) in RECIPES.items():
        assert recipe(preset) == (epochs, learning_rate)
        assert recipe(preset, epochs=1) == (1, learning_rate)
        assert recipe(preset, learning_rate=0.0) == (epochs, 0.0)


def test_next_version(tmp_path):
    assert next_version(tmp_path / "absent") == tmp_path / "absent" / "1"
    for name in ("2", "10", ".11.unfinished"):
        (tmp_path / name).mkdir()
    assert next_version(Path(tmp_path)) == tmp_path / "11"
