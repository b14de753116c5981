"""Classifiers loaded from checkpoints of other projects."""

import json

import numpy as np
import pytest

from keras_bert.models.classifier import BertClassifier
from tests.models.golden import WORDS, copy_checkpoint, read_ids
from tests.tolerances import GOLDEN_LIMIT, assert_close

GOLDEN = "golden/hf_tiny/gelu/sequence_classification"


@pytest.fixture
def folder(shared, tmp_path):
    return copy_checkpoint(shared / GOLDEN, tmp_path)


def load(folder, **arguments):
    return BertClassifier.from_checkpoint(folder, **{"sequence_length": 32, **arguments})


def change_config(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def test_logits_equal_hugging_face(shared, folder):
    classifier, ids = load(folder), read_ids(shared / "golden" / "hf_tiny")
    assert classifier.labels == ["0", "1", "2"]
    expected = np.load(shared / GOLDEN / "outputs.npz")["logits"]
    assert_close(classifier(ids), expected, limit=GOLDEN_LIMIT)
    assert_close(classifier.predict(ids, verbose=0), expected, limit=GOLDEN_LIMIT)
    assert not classifier.checkpoint_report.random
    assert not classifier.checkpoint_report.unused


def test_the_layer_of_other_labels_is_random_and_reported(folder, caplog):
    caplog.set_level("INFO", logger="absl")
    classifier = load(folder, labels=["yes", "no"])
    assert set(classifier.checkpoint_report.random) == {"logits/kernel", "logits/bias"}
    assert set(classifier.checkpoint_report.unused) == {"classifier.weight", "classifier.bias"}
    assert "random  logits/kernel" in caplog.text
    assert "unused  classifier.weight" in caplog.text


def test_label_names_and_problem_type_must_agree_to_load_the_head(folder):
    change_config(folder, id2label={"0": "no", "1": "yes", "2": "maybe"}, label2id={"no": 0, "yes": 1, "maybe": 2})
    own = load(folder)
    assert own.labels == ["no", "yes", "maybe"]
    assert not own.checkpoint_report.random
    # In another order, the stored layer would predict the wrong names.
    assert "logits/kernel" in load(folder, labels=["yes", "no", "maybe"]).checkpoint_report.random
    change_config(folder, problem_type="single_label_classification")
    other = load(folder, problem_type="multi_label_classification")
    assert "logits/kernel" in other.checkpoint_report.random


def test_lower_case_argument_overrides_only_a_guess(folder):
    with pytest.raises(ValueError, match="lower_case=False contradicts the checkpoint"):
        load(folder, lower_case=False)
    (folder / "tokenizer_config.json").unlink()
    assert load(folder).preprocessor.tokenizer.lower_case
    assert not load(folder, lower_case=False).preprocessor.tokenizer.lower_case


def test_arguments_replace_those_of_the_checkpoint(folder):
    classifier = load(folder, hidden_dropout_prob=0.0, dtype="mixed_bfloat16", dropout=0.3)
    assert classifier.encoder.hidden_dropout_prob == 0.0
    assert classifier.encoder.dtype_policy.name == "mixed_bfloat16"
    assert classifier.dropout.rate == 0.3


def test_rejects_missing_vocabularies_and_long_sequences(folder):
    with pytest.raises(ValueError, match="sequence_length=128 is beyond the encoder's 64 positions"):
        load(folder, sequence_length=128)
    (folder / "vocab.txt").unlink()
    with pytest.raises(ValueError, match=r"has no vocabulary; pass vocabulary="):
        load(folder)
    assert load(folder, vocabulary=WORDS, lower_case=True).labels


def test_loads_a_tf1_checkpoint_with_a_random_head(shared):
    path = shared / "data" / "checkpoints" / "tf1_tiny"
    classifier = load(path, labels=["no", "yes"], sequence_length=8)
    assert set(classifier.checkpoint_report.random) == {"logits/kernel", "logits/bias"}
    assert classifier.checkpoint_report.skipped_optimizer_slots > 0
    assert classifier.predict(["some text"], verbose=0).shape == (1, 2)
    with pytest.raises(ValueError, match=r"its labels are unknown; pass labels="):
        load(path)
