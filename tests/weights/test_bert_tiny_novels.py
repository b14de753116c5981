"""The bundled weights are complete and predict English words."""

import pytest

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.weights.preset_names import resolve_preset

# Written for this test.
SENTENCES = {
    "the": "He walked slowly up [MASK] stairs and opened the door.",
    "her": "She took off [MASK] hat and sat down by the fire.",
    "to": "I do not want [MASK] see him again.",
    "said": '"I am very tired," she [MASK].',
    "of": "There was a glass [MASK] water upon the table.",
    "mother": "The little girl ran to her [MASK] and her father.",
    "not": "I am afraid I do [MASK] understand you.",
    "eyes": "The tears came into her [MASK].",
}


@pytest.fixture(scope="module")
def pretrainer():
    return BertPretrainer.from_preset("bert_tiny_novels")


FILES = "README.md config.json model.safetensors tokenizer_config.json training_curve.png vocab.txt"


def test_folder_is_complete_and_small():
    files = {file.name: file.stat().st_size for file in resolve_preset("bert_tiny_novels").iterdir()}
    assert set(files) == set(FILES.split())
    assert sum(files.values()) < 10e6


def test_only_new_layers_are_random(pretrainer):
    assert not pretrainer.checkpoint_report.random
    classifier = BertClassifier.from_preset("bert_tiny_novels", labels=["a", "b"])
    assert set(classifier.checkpoint_report.random) == {"logits/kernel", "logits/bias"}


def test_predicts_masked_words(pretrainer):
    answers = pretrainer.fill_masks(list(SENTENCES.values()), top=5)
    found = [expected in dict(answer[0]) for expected, answer in zip(SENTENCES, answers, strict=True)]
    assert sum(found) >= 6, dict(zip(SENTENCES, answers, strict=True))
