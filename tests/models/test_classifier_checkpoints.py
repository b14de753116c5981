"""Classifiers that begin with somebody else's weights."""

import json
import shutil

import numpy as np
import pytest

from keras_bert.models.classifier import BertClassifier

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(195))]


@pytest.fixture
def folder(shared, tmp_path):
    """A Hugging Face folder with a classifier of three labels and a vocabulary of 200 words."""
    golden = shared / "golden" / "hf_tiny" / "gelu" / "sequence_classification"
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(golden / name, tmp_path / name)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return tmp_path


def test_head_equals_hugging_face(shared, folder):
    golden = shared / "golden" / "hf_tiny"
    inputs = np.load(golden / "inputs.npz")
    classifier = BertClassifier.from_checkpoint(folder, sequence_length=32)
    assert classifier.labels == ["0", "1", "2"]
    ids = {
        "token_ids": inputs["input_ids"],
        "segment_ids": inputs["token_type_ids"],
        "padding_mask": inputs["attention_mask"],
    }
    expected = np.load(golden / "gelu" / "sequence_classification" / "outputs.npz")["logits"]
    np.testing.assert_allclose(classifier(ids), expected, atol=1e-5)
    np.testing.assert_allclose(classifier.predict(ids, verbose=0), expected, atol=1e-5)
    assert not classifier.checkpoint_report.random
    assert not classifier.checkpoint_report.unused


def test_other_labels_start_at_random_and_are_reported(folder, caplog):
    caplog.set_level("INFO", logger="absl")
    classifier = BertClassifier.from_checkpoint(folder, labels=["yes", "no"], sequence_length=32)
    assert set(classifier.checkpoint_report.random) == {"logits/kernel", "logits/bias"}
    assert set(classifier.checkpoint_report.unused) == {"classifier.weight", "classifier.bias"}
    assert "random  logits/kernel" in caplog.text
    assert "unused  classifier.weight" in caplog.text


def test_named_labels_must_agree_to_take_the_head(folder):
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"0": "no", "1": "yes", "2": "maybe"}
    (folder / "config.json").write_text(json.dumps({**config, "label2id": {"no": 0, "yes": 1, "maybe": 2}}))
    own = BertClassifier.from_checkpoint(folder, sequence_length=32)
    assert own.labels == ["no", "yes", "maybe"]
    assert not own.checkpoint_report.random
    # In another order the layer of the file would answer the wrong names.
    other = BertClassifier.from_checkpoint(folder, labels=["yes", "no", "maybe"], sequence_length=32)
    assert "logits/kernel" in other.checkpoint_report.random


def test_another_problem_does_not_take_the_head(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "problem_type": "single_label_classification"}))
    classifier = BertClassifier.from_checkpoint(folder, problem_type="multi_label_classification", sequence_length=32)
    assert "logits/kernel" in classifier.checkpoint_report.random


def test_a_guessed_case_may_be_overruled(folder):
    (folder / "tokenizer_config.json").unlink()
    assert BertClassifier.from_checkpoint(folder, sequence_length=32).preprocessor.tokenizer.lower_case
    cased = BertClassifier.from_checkpoint(folder, sequence_length=32, lower_case=False)
    assert not cased.preprocessor.tokenizer.lower_case


def test_arguments_replace_those_of_the_checkpoint(folder):
    classifier = BertClassifier.from_checkpoint(
        folder, sequence_length=32, hidden_dropout_prob=0.0, dtype="mixed_bfloat16", dropout=0.3
    )
    assert classifier.encoder.hidden_dropout_prob == 0.0
    assert classifier.encoder.dtype_policy.name == "mixed_bfloat16"
    assert classifier.dropout.rate == 0.3


def test_lower_case_must_be_the_checkpoints(folder):
    with pytest.raises(ValueError, match="lower_case=False contradicts the checkpoint"):
        BertClassifier.from_checkpoint(folder, sequence_length=32, lower_case=False)


def test_no_vocabulary(folder):
    (folder / "vocab.txt").unlink()
    with pytest.raises(ValueError, match=r"has no vocab.txt; pass vocabulary="):
        BertClassifier.from_checkpoint(folder, sequence_length=32)
    assert BertClassifier.from_checkpoint(folder, vocabulary=WORDS, lower_case=True, sequence_length=32).labels


def test_sequence_length_beyond_the_positions(folder):
    with pytest.raises(ValueError, match="sequence_length=128 is beyond the encoder's 64 positions"):
        BertClassifier.from_checkpoint(folder, sequence_length=128)


def test_tf1_checkpoint(shared):
    classifier = BertClassifier.from_checkpoint(
        shared / "data" / "checkpoints" / "tf1_tiny", labels=["no", "yes"], sequence_length=8
    )
    assert set(classifier.checkpoint_report.random) == {"logits/kernel", "logits/bias"}
    assert classifier.checkpoint_report.skipped_optimizer_slots > 0
    assert classifier.predict(["some text"], verbose=0).shape == (1, 2)


def test_labels_must_be_known(shared):
    with pytest.raises(ValueError, match=r"its labels are unknown; pass labels="):
        BertClassifier.from_checkpoint(shared / "data" / "checkpoints" / "tf1_tiny")
