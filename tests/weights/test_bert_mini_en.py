"""The bundled weights are complete, small, and near their teacher's."""

import zlib

import numpy as np
import pytest

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.text_embedder import BertTextEmbedder
from keras_bert.weights.preset_names import resolve_preset

# Written for this test: each sentence has the meaning of the one in the same place below.
SENTENCES = [
    "My package has not arrived yet.",
    "The film was boring from beginning to end.",
    "How can I change my password?",
    "The little girl ran to her mother.",
    "We had fish and potatoes for dinner.",
    "The train to London leaves at nine.",
]
PARAPHRASES = [
    "I am still waiting for my delivery.",
    "It was a dull movie, and I nearly fell asleep.",
    "I would like to set a new login password.",
    "A small child hurried over to her mum.",
    "In the evening we ate a meal of fish.",
    "Nine o'clock is when the London train departs.",
]


@pytest.fixture(scope="module")
def embedder():
    return BertTextEmbedder.from_preset("bert_mini_en")


def test_folder_takes_at_most_16_mb_of_a_wheel():
    files = [file for file in resolve_preset("bert_mini_en").rglob("*") if file.is_file()]
    assert sum(len(zlib.compress(file.read_bytes())) for file in files) < 16e6  # a wheel is compressed


def test_only_the_new_layer_of_a_classifier_is_random():
    classifier = BertClassifier.from_preset("bert_mini_en", labels=["a", "b"])
    assert classifier.pooling == "mean"
    assert set(classifier.checkpoint_report.random) == {"logits/kernel", "logits/bias"}


def test_finds_the_sentence_with_the_same_meaning(embedder):
    similarity = embedder.similarity(SENTENCES, PARAPHRASES)
    assert np.sum(similarity.argmax(axis=1) == np.arange(len(SENTENCES))) >= 5, similarity


def test_vectors_are_near_those_of_the_teacher(embedder, minilm):
    teacher, texts = BertTextEmbedder.from_checkpoint(minilm), SENTENCES + PARAPHRASES
    assert np.mean(np.sum(embedder.encode(texts) * teacher.encode(texts), axis=1)) > 0.8
