"""`from_preset` and `push_to_hub` of models and of everything with a vocabulary, on a local hub."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_bert
from keras_bert.weights.preset_names import resolve_preset
from tests.toys import VOCABULARY, toy_classifier, toy_encoder, toy_preprocessor

ADDRESS = "hf://owner/name"
TEXTS = ["a good film", "the plot was awful"]
CLASSES = {
    "BertClassifier": {},
    "BertTokenClassifier": {"labels": ["O", "B-X"], "sequence_length": 16},
    "BertMultipleChoice": {"sequence_length": 16},
    "BertSpanLabeler": {"sequence_length": 16, "max_query_length": 4, "stride": 4},
    "BertPretrainer": {},
    "BertFeatureExtractor": {"sequence_length": 16},
    "BertTextEmbedder": {"sequence_length": 16},
    "BertEncoder": {},
}


@pytest.fixture
def published(hub, tmp_path):
    """A classifier, whose checkpoint is on the hub."""
    classifier = toy_classifier()
    folder = classifier.save_checkpoint(tmp_path / "model")
    hub.commit("owner/name", {path.name: path.read_bytes() for path in folder.iterdir()})
    return classifier


@pytest.mark.parametrize("name", CLASSES)
def test_every_model_loads_from_the_hub(hub, published, name):
    arguments = dict(CLASSES[name])
    if name in ("BertClassifier", "BertTokenClassifier", "BertMultipleChoice", "BertSpanLabeler"):
        arguments.setdefault("sequence_length", 16)
    model = getattr(keras_bert, name).from_preset(ADDRESS, **arguments)
    encoder = getattr(model, "encoder", model)
    np.testing.assert_array_equal(encoder.embeddings.token_embeddings, published.encoder.embeddings.token_embeddings)
    if name == "BertClassifier":
        assert model.labels == ["negative", "positive"]
        np.testing.assert_array_equal(model.predict(TEXTS), published.predict(TEXTS))


def test_vocabulary_of_a_folder_of_keras_hub(tmp_path):
    folder = toy_classifier().save_checkpoint(tmp_path / "model", format="keras_hub")
    tokenizer = keras_bert.BertPreprocessor.from_preset(folder).tokenizer
    assert tokenizer.vocabulary == VOCABULARY and tokenizer.lower_case is True


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("BertTokenizer", {}),
        ("BertPreprocessor", {"sequence_length": 16}),
        ("BertQuestionPreprocessor", {"sequence_length": 16, "max_query_length": 4}),
        ("BertWordPreprocessor", {"sequence_length": 16}),
    ],
)
def test_vocabularies_load_without_weights(hub, published, name, arguments):
    loaded = getattr(keras_bert, name).from_preset(ADDRESS, **arguments)
    tokenizer = getattr(loaded, "tokenizer", loaded)
    assert tokenizer.vocabulary == VOCABULARY and tokenizer.lower_case is True
    assert {"config.json", "model.safetensors"}.isdisjoint(hub.downloads())
    assert all(getattr(loaded, key) == value for key, value in arguments.items())


def test_tokenizer_arguments(tmp_path):
    folder = toy_classifier().save_checkpoint(tmp_path / "model")
    tokenizer = keras_bert.BertTokenizer.from_preset(folder, strip_accents=False, special_tokens_in_text=True)
    assert tokenizer.strip_accents is False and tokenizer.special_tokens_in_text
    with pytest.raises(ValueError, match="lower_case=False contradicts the checkpoint"):
        keras_bert.BertTokenizer.from_preset(folder, lower_case=False)
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer.json").unlink()
    assert keras_bert.BertTokenizer.from_preset(folder).lower_case is True  # inferred
    (folder / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"has neither vocab\.txt nor tokenizer\.json"):
        keras_bert.BertPreprocessor.from_preset(folder)


def test_pushed_model_comes_back(hub):
    classifier = toy_classifier()
    card = {"license": "mit", "language": "en", "scores": [{"metric": "accuracy", "value": 0.5, "dataset": "toy"}]}
    url = classifier.push_to_hub("me/toy", card=card, private=True, dtype="bfloat16")
    assert url.startswith(f"{hub.address}/me/toy/commit/")
    files = hub.files("me/toy")
    assert {"README.md", "config.json", "model.safetensors", "vocab.txt"} <= files.keys()
    text = files["README.md"].decode()
    assert 'keras_bert.BertClassifier.from_preset("hf://me/toy")' in text and 'license: "mit"' in text
    assert '"accuracy"' in text and "`negative`, `positive`" in text
    loaded = keras_bert.BertClassifier.from_preset("hf://me/toy", sequence_length=16)
    np.testing.assert_allclose(loaded.predict(TEXTS), classifier.predict(TEXTS), atol=0.05)


def test_card_names_the_model_that_training_started_from(hub, published):
    classifier = keras_bert.BertClassifier.from_preset(ADDRESS, sequence_length=16)
    classifier.push_to_hub("me/toy")
    assert 'base_model: "owner/name"' in hub.files("me/toy")["README.md"].decode()


def test_encoder_is_pushed_with_a_tokenizer(hub):
    toy_encoder().push_to_hub("me/encoder", tokenizer=toy_preprocessor().tokenizer)
    files = hub.files("me/encoder")
    assert files["vocab.txt"].decode().split() == VOCABULARY
    assert json.loads(files["config.json"])["architectures"] == ["BertModel"]
    assert "keras_bert.BertEncoder.from_preset" in files["README.md"].decode()


def test_shards_in_the_store_that_repositories_share(hub, tmp_path):
    """`huggingface_hub` keeps large files in `blobs` of the cache; the blobs of repositories are links to them."""
    classifier = toy_classifier()
    folder = classifier.save_checkpoint(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for shard in set(weight_map.values()):
        save_file({name: tensors[name] for name in tensors if weight_map[name] == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    hub.commit("owner/name", {path.name: path.read_bytes() for path in folder.iterdir()})
    cached = resolve_preset(ADDRESS)
    for shard in cached.glob("*.safetensors"):
        blob = shard.resolve()
        shared = tmp_path / "hub" / "blobs" / "ab" / ("ab" + blob.name[2:])
        shared.parent.mkdir(parents=True, exist_ok=True)
        blob.rename(shared)
        blob.symlink_to(os.path.relpath(shared, blob.parent))
    hub.requests.clear()
    loaded = keras_bert.BertClassifier.from_preset(ADDRESS, sequence_length=16)
    assert hub.requests == []
    np.testing.assert_array_equal(loaded.predict(TEXTS), classifier.predict(TEXTS))


def test_wrong_arguments_are_found_before_anything_is_written(hub):
    with pytest.raises(ValueError, match="a model on the hub is named"):
        toy_encoder().push_to_hub("name")
    with pytest.raises(TypeError, match="licence"):
        toy_encoder().push_to_hub("me/encoder", card={"licence": "mit"})
    assert hub.requests == []
